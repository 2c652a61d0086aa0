package main

import (
	"context"
	"path/filepath"
	"strings"
)

// startEtcd starts etcd and waits until it serves.
func (c *cluster) startEtcd(ctx context.Context) error {
	peerURL := "https://" + c.ports.etcdPeer.address()
	c.ports.etcdClient.release()
	c.ports.etcdPeer.release()
	err := c.startBinary(etcdName,
		"--name=dev",
		"--data-dir="+c.dir.etcdData(),
		"--listen-client-urls="+c.etcdURL(),
		"--advertise-client-urls="+c.etcdURL(),
		// The defaults of these three are fixed ports.
		"--listen-peer-urls="+peerURL,
		"--initial-advertise-peer-urls="+peerURL,
		"--initial-cluster=dev="+peerURL,
		"--cert-file="+c.dir.certificate(etcdServing),
		"--key-file="+c.dir.key(etcdServing),
		"--trusted-ca-file="+c.dir.certificate(etcdAuthority),
		"--client-cert-auth",
		"--peer-cert-file="+c.dir.certificate(etcdServing),
		"--peer-key-file="+c.dir.key(etcdServing),
		"--peer-trusted-ca-file="+c.dir.certificate(etcdAuthority),
		"--peer-client-cert-auth",
		// The gateway would call etcd without credentials, in vain and for nobody.
		"--enable-grpc-gateway=false",
		// A member without peers need not wait a second for a leader to show up.
		"--heartbeat-interval=10",
		"--election-timeout=100",
		// Nothing outlives the cluster, so nothing has to survive a crash.
		"--unsafe-no-fsync",
	)
	if err != nil {
		return err
	}
	client, err := newHTTPClient(c.credentials.etcd, c.credentials.pairs[apiServerToEtcd])
	if err != nil {
		return err
	}
	return waitForOK(ctx, client, etcdName, c.etcdURL()+"/readyz")
}

func (c *cluster) etcdURL() string { return "https://" + c.ports.etcdClient.address() }

// startAPIServer starts kube-apiserver and waits until it is ready.
func (c *cluster) startAPIServer(ctx context.Context) error {
	c.ports.apiServer.release()
	err := c.startBinary(apiServerName,
		"--bind-address="+loopback,
		"--secure-port="+c.ports.apiServer.number(),
		// Without these two it looks for the address of a network interface, which a
		// machine without a network does not have, and publishes it in vain.
		"--advertise-address="+loopback,
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.0.0.0/24",
		"--authorization-mode=RBAC",
		"--cert-dir="+c.dir.pki(),
		"--tls-cert-file="+c.dir.certificate(apiServerServing),
		"--tls-private-key-file="+c.dir.key(apiServerServing),
		"--client-ca-file="+c.dir.certificate(clusterAuthority),
		"--etcd-servers="+c.etcdURL(),
		"--etcd-cafile="+c.dir.certificate(etcdAuthority),
		"--etcd-certfile="+c.dir.certificate(apiServerToEtcd),
		"--etcd-keyfile="+c.dir.key(apiServerToEtcd),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+c.dir.certificate(serviceAccounts),
		"--service-account-signing-key-file="+c.dir.key(serviceAccounts),
	)
	if err != nil {
		return err
	}
	client, err := newHTTPClient(c.credentials.cluster, c.credentials.pairs[administrator])
	if err != nil {
		return err
	}
	return waitForOK(ctx, client, apiServerName, c.apiServerURL()+"/readyz")
}

func (c *cluster) apiServerURL() string { return "https://" + c.ports.apiServer.address() }

// controllers are the ones that have something to do where there are neither
// nodes nor volumes nor a cloud. The others would cost seconds and memory, and one
// of them creates a folder in /usr.
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

// startControllerManager starts kube-controller-manager without waiting for it,
// see [cluster.waitForControllerManager].
func (c *cluster) startControllerManager() error {
	return c.startBinary(controllerManagerName,
		"--kubeconfig="+c.dir.componentKubeconfig(controllerManager),
		// Each controller has its own role, as on a real cluster, instead of one that
		// may do everything.
		"--use-service-account-credentials",
		"--service-account-private-key-file="+c.dir.key(serviceAccounts),
		"--root-ca-file="+c.dir.certificate(clusterAuthority),
		"--controllers="+strings.Join(controllers, ","),
		"--leader-elect=false",
		// The defaults spread over seconds what the controllers ask for at their start.
		"--kube-api-qps=1000",
		"--kube-api-burst=1000",
		// Nobody asks it anything, so it does not listen.
		"--secure-port=0",
	)
}

func (c *cluster) startBinary(name string, args ...string) error {
	return c.supervisor.start(name, filepath.Join(c.options.binaries, name), args...)
}
