package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/grpclog"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// startTimeout bounds the start of a program, and pollEvery is how often it is asked whether it has started.
	startTimeout = 2 * time.Minute
	pollEvery    = 20 * time.Millisecond
	// The operator's service account on a development cluster.
	operatorNamespace, operatorName = "forrst-system", "lock-operator"
	// userName is the service account of the ordinary user.
	userName = "bench"
	// youngDefinition is how long the API server delays creates after it has begun to serve a definition.
	youngDefinition = 2 * time.Second
)

// bareDefinition defines [bareType]. Without a schema the API server neither prunes nor validates its objects.
const bareDefinition = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "bares.bench.forrst.dev"},
"spec": {"group": "bench.forrst.dev", "scope": "Namespaced", "names": {"kind": "Bare", "plural": "bares"},
"versions": [{"name": "v1", "served": true, "storage": true,
"schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}`

// cluster is a development cluster in its own folder, with its clients.
type cluster struct {
	dir, kubeconfig string
	facade          facade
	// admin may do everything; operator is the operator's own identity, whose requests skip the webhook; user is an ordinary
	// user.
	admin, operator, user *rest.Config
	clientset             kubernetes.Interface
	etcd                  *clientv3.Client
	// pids are the processes whose processor time is measured, by program.
	pids map[string]int
}

// startCluster starts the cluster of "make run" with the programs of a folder, and waits until it is ready. It ends with the
// scenario.
func (b *bench) startCluster(folder string) *cluster {
	c := &cluster{dir: filepath.Join(b.temporaryFolder(), "dev")}
	var output bytes.Buffer
	command := exec.Command(filepath.Join(folder, "bin", "devcluster"), "run", "--dir", c.dir, "--facade-addr", "127.0.0.1:0",
		"--max-locks-per-namespace", "0", // Benchmarks fill one namespace.
		"--operator", filepath.Join(folder, "bin", "lock-operator"), "--config", filepath.Join(folder, "config"))
	command.Stdout, command.Stderr = &output, &output
	// Ctrl-C reaches the benchmark alone, which then ends the cluster.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	check(command.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = command.Wait() // its output says how it ended
	}()
	b.cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM) // it may have ended already
		<-ended
	})
	b.await("the cluster is ready", func() bool {
		select {
		case <-ended:
			check(errors.New("the cluster ended: " + output.String()))
		default:
		}
		return c.isReady()
	})
	c.connect(b)
	return c
}

// isReady reports whether the cluster has told its addresses.
func (c *cluster) isReady() bool {
	content, err := os.ReadFile(filepath.Join(c.dir, "cluster.json"))
	if err != nil {
		return false
	}
	var announced struct{ Facade, Kubeconfig string }
	if err := json.Unmarshal(content, &announced); err != nil {
		return false
	}
	c.facade, c.kubeconfig = facade{addresses: []string{strings.TrimPrefix(announced.Facade, "http://")}}, announced.Kubeconfig
	return true
}

// operatorKubeconfig returns the path of the operator's own kubeconfig.
func (c *cluster) operatorKubeconfig() string {
	return filepath.Join(c.dir, "pki", "lock-operator.kubeconfig")
}

func (c *cluster) connect(b *bench) {
	c.admin, c.operator = unlimited(c.kubeconfig), unlimited(c.operatorKubeconfig())
	c.clientset = must(kubernetes.NewForConfig(c.admin))
	c.defineBare(b)
	c.addUser(b)
	// A lost connection at the end is expected.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(&bytes.Buffer{}, &bytes.Buffer{}, &bytes.Buffer{}))
	// The socket of the API server.
	c.etcd = must(clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(c.workingDir(), "localhost:2379")}, Logger: zap.NewNop()}))
	b.cleanup(func() { _ = c.etcd.Close() })
	c.pids = map[string]int{clientProgram: os.Getpid()}
	for _, program := range []string{apiServerProgram, etcdProgram, operatorProgram} {
		c.pids[program] = c.pid(program)
	}
}

// unlimited returns the client configuration of a file, without client-side rate limits.
func unlimited(kubeconfig string) *rest.Config {
	config := must(clientcmd.BuildConfigFromFlags("", kubeconfig))
	config.QPS = -1
	return config
}

// workingDir returns the working folder of the cluster's processes.
func (c *cluster) workingDir() string { return filepath.Join(c.dir, "etcd") }

// pid returns the cluster's process of the program.
func (c *cluster) pid(program string) int {
	for _, path := range must(filepath.Glob("/proc/[0-9]*/cmdline")) {
		content, _ := os.ReadFile(path) // an ended process has no such file
		name, _, _ := strings.Cut(string(content), "\x00")
		process := filepath.Dir(path)
		dir, _ := os.Readlink(filepath.Join(process, "cwd"))
		if filepath.Base(name) == program && dir == c.workingDir() {
			return must(strconv.Atoi(filepath.Base(process)))
		}
	}
	check(fmt.Errorf("no process runs %s", program))
	return 0
}

// defineBare returns when creates of bare custom resources are quick.
func (c *cluster) defineBare(b *bench) {
	client := c.clientset.Discovery().RESTClient()
	check(client.Post().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").
		SetHeader("Content-Type", "application/json").Body([]byte(bareDefinition)).Do(b).Error())
	b.await("the bare custom resource is served", func() bool {
		return client.Get().AbsPath("/apis", bareType.Group, bareType.Version, bareType.resource).Do(b).Error() == nil
	})
	check(waitUntil(b, time.Now().Add(youngDefinition)))
}

// addUser creates a service account that may use locks and leases. The webhook admits its writes, like those of a program
// with the SDK.
func (c *cluster) addUser(ctx context.Context) {
	meta, options := metav1.ObjectMeta{Name: userName, Namespace: namespace}, metav1.CreateOptions{}
	verbs := []string{"create", "get", "list", "watch", "update", "delete"}
	must(c.clientset.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, options))
	must(c.clientset.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{lockType.Group}, Resources: []string{lockType.resource}, Verbs: verbs},
		{APIGroups: []string{bareType.Group}, Resources: []string{bareType.resource}, Verbs: verbs},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: verbs},
	}}, options))
	must(c.clientset.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: userName},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.ServiceAccountKind, Name: userName, Namespace: namespace},
			// The floors take the operator's identity, so nothing but the object differs from a lock.
			{Kind: rbacv1.ServiceAccountKind, Name: operatorName, Namespace: operatorNamespace},
		},
	}, options))
	c.user = rest.AnonymousClientConfig(c.admin)
	c.user.QPS, c.user.BearerToken = -1, c.token(ctx, namespace, userName)
}

// token returns a token of a service account for the audiences; without any, for the API server.
func (c *cluster) token(ctx context.Context, namespace, name string, audiences ...string) string {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	return must(c.clientset.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})).Status.Token
}

// requestCounts counts requests about one resource.
type requestCounts struct{ writes, reads float64 }

// countRequests returns how many requests about a resource the API server has counted, without watches, which stay open
// instead of being sent for each lock. It costs the API server about as much as ten locks, so callers read outside of timed
// sections.
func (c *cluster) countRequests(ctx context.Context, resource string) (counts requestCounts) {
	text := must(c.clientset.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx))
	parser := expfmt.NewTextParser(model.LegacyValidation)
	for _, metric := range must(parser.TextToMetricFamilies(bytes.NewReader(text)))["apiserver_request_total"].GetMetric() {
		labels := map[string]string{}
		for _, pair := range metric.GetLabel() {
			labels[pair.GetName()] = pair.GetValue()
		}
		switch verb := labels["verb"]; {
		case labels["resource"] != resource || verb == "WATCH":
		case verb == "GET" || verb == "LIST":
			counts.reads += metric.GetCounter().GetValue()
		default:
			counts.writes += metric.GetCounter().GetValue()
		}
	}
	return counts
}

// await asks again and again whether something is so, for up to startTimeout.
func (b *bench) await(what string, isSo func() bool) {
	ctx, cancel := context.WithTimeoutCause(b, startTimeout, fmt.Errorf("%s: not within %s", what, startTimeout))
	defer cancel()
	for !isSo() {
		check(waitUntil(ctx, time.Now().Add(pollEvery)))
	}
}
