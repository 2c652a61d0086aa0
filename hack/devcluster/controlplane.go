package main

import (
	"context"
	"net/http"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
)

// Etcd listens on sockets in its working folder, which only this user may enter, so it needs
// no certificates. etcd requires a host and a port, which become the sockets' names. An
// absolute path would have to be shorter than 108 bytes.
const (
	etcdURL     = "unix://localhost:2379"
	etcdPeerURL = "unix://localhost:2380"
)

// startEtcd starts etcd and waits until it serves.
func (c *cluster) startEtcd(ctx context.Context) error {
	healthURL := "http://" + c.ports.etcdHealth.address()
	c.ports.etcdHealth.release()
	err := c.startBinary(etcdName,
		"--name=dev",
		"--data-dir=data",
		"--listen-client-urls="+etcdURL,
		"--advertise-client-urls="+etcdURL,
		// The defaults of these three flags are fixed ports.
		"--listen-peer-urls="+etcdPeerURL,
		"--initial-advertise-peer-urls="+etcdPeerURL,
		"--initial-cluster=dev="+etcdPeerURL,
		// For metrics and probes only.
		"--listen-metrics-urls="+healthURL,
		"--enable-grpc-gateway=false",
		// A member without peers need not wait a second for a leader.
		"--heartbeat-interval=10",
		"--election-timeout=100",
		// Room for millions of locks, such as those of "make bench-scale".
		"--quota-backend-bytes=8589934592",
		// The data does not outlive the cluster, so it need not survive a crash.
		"--unsafe-no-fsync",
	)
	if err != nil {
		return err
	}
	return waitForOK(ctx, &http.Client{Timeout: probeTimeout}, etcdName, healthURL+"/readyz")
}

// startAPIServer starts kube-apiserver and waits until it is ready.
func (c *cluster) startAPIServer(ctx context.Context, config *rest.Config) error {
	c.ports.apiServer.release()
	err := c.startBinary(apiServerName,
		"--bind-address="+loopback,
		"--secure-port="+c.ports.apiServer.number(),
		// Without these two flags, kube-apiserver looks for the address of a network interface,
		// which a machine without a network lacks, and publishes it to no use.
		"--advertise-address="+loopback,
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.0.0.0/24",
		"--authorization-mode=RBAC",
		"--token-auth-file="+c.pki(tokensFile),
		// With it, the API server presents a certificate to the webhook, which serves no other client.
		"--admission-control-config-file="+c.webhookClient.Admission,
		"--tls-cert-file="+c.pki(certificateFile),
		"--tls-private-key-file="+c.pki(keyFile),
		"--etcd-servers="+etcdURL,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+c.pki(signingKeyFile),
		"--service-account-signing-key-file="+c.pki(signingKeyFile),
	)
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	client.Timeout = probeTimeout
	return waitForOK(ctx, client, apiServerName, c.apiServerURL()+"/readyz")
}

func (c *cluster) pki(name string) string { return filepath.Join(c.dir.pki(), name) }

func (c *cluster) apiServerURL() string { return "https://" + c.ports.apiServer.address() }

// controllers are those with work in a cluster without nodes, volumes and cloud. The others
// would cost seconds and memory, and one of them creates a folder in /usr.
var controllers = []string{
	"clusterrole-aggregation-controller",
	"cronjob-controller",
	"deployment-controller",
	"disruption-controller",
	"garbage-collector-controller",
	"job-controller",
	"namespace-controller",
	"replicaset-controller",
	"resourcequota-controller",
	"root-ca-certificate-publisher-controller",
	"serviceaccount-controller",
	"serviceaccount-token-controller",
	"statefulset-controller",
	"ttl-after-finished-controller",
	"validatingadmissionpolicy-status-controller",
}

// nodeControllers have work in a cluster with nodes only.
var nodeControllers = []string{
	"daemonset-controller",
	"disruption-controller",
	"endpoints-controller",
	"endpointslice-controller",
	"node-lifecycle-controller",
	"pod-garbage-collector-controller",
	"taint-eviction-controller",
}

// startControllerManager starts kube-controller-manager without waiting for it,
// see [waitForControllerManager].
func (c *cluster) startControllerManager() error {
	chosen := controllers
	if c.options.nodes > 0 {
		chosen = slices.Concat(controllers, nodeControllers)
	}
	return c.startBinary(controllerManagerName,
		"--kubeconfig="+c.dir.componentKubeconfig(controllerManagerName),
		// Each controller has its own role, as on a real cluster, instead of all permissions.
		"--use-service-account-credentials",
		"--service-account-private-key-file="+c.pki(signingKeyFile),
		"--root-ca-file="+c.pki(certificateFile),
		"--controllers="+strings.Join(chosen, ","),
		"--leader-elect=false",
		// The defaults spread the controllers' first requests over seconds.
		"--kube-api-qps=1000",
		"--kube-api-burst=1000",
		// No component sends it requests.
		"--secure-port=0",
	)
}

func (c *cluster) startBinary(name string, args ...string) error {
	return c.supervisor.start(name, filepath.Join(c.options.binaries, name), args...)
}
