package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/hack/admissionclient"
)

// A cluster is one starting or running development cluster.
type cluster struct {
	options     options
	dir         stateDir
	facade      string
	out         io.Writer
	supervisor  *supervisor
	ports       *ports
	credentials *credentials
	// webhookClient is what the API server presents to the webhook.
	webhookClient admissionclient.Files
}

// newCluster prepares the state folder for a new cluster.
func newCluster(ctx context.Context, opts options, facade string, out io.Writer) (*cluster, error) {
	dir := stateDir(opts.dir)
	if err := dir.reset(); err != nil {
		return nil, err
	}
	credentials, err := issueCredentials(opts.operatorUser)
	if err != nil {
		return nil, err
	}
	if err := credentials.write(dir); err != nil {
		return nil, fmt.Errorf("storing the credentials: %w", err)
	}
	ports, err := reservePorts(ctx)
	if err != nil {
		return nil, err
	}
	c := &cluster{options: opts, dir: dir, facade: facade, out: out, ports: ports, credentials: credentials}
	webhook := ports.webhook.address()
	if opts.operator == "" {
		webhook = admissionclient.AnyWebhook
	}
	if c.webhookClient, err = admissionclient.Write(dir.pki(), webhook); err != nil {
		ports.release()
		return nil, err
	}
	for path, user := range map[string]user{
		dir.kubeconfig(): credentials.administrator,
		dir.componentKubeconfig(controllerManagerName): credentials.controllerManager,
		dir.componentKubeconfig(schedulerName):         credentials.scheduler,
		dir.componentKubeconfig(operatorName):          credentials.operator,
	} {
		if err := writeKubeconfig(path, c.apiServerURL(), credentials.certificate, user.token); err != nil {
			ports.release()
			return nil, err
		}
	}
	return c, nil
}

// keep starts and announces the cluster. It returns when the context ends or the start
// fails.
func (c *cluster) keep(ctx context.Context) error {
	started := time.Now()
	fmt.Fprintf(c.out, "Starting a development cluster; logs are in %s\n", displayPath(c.dir.logs()))
	if err := c.start(ctx); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "Ready after %.1fs\n", time.Since(started).Seconds())

	a := announcement{
		PID:        os.Getpid(),
		Kubeconfig: c.dir.kubeconfig(),
		Kubectl:    filepath.Join(c.options.binaries, kubectlName),
		Logs:       c.dir.logs(),
		Token:      c.tokenPath(),
		Prometheus: c.prometheusURL(),
		Options:    c.options.chosen(),
	}
	if c.options.operator != "" {
		a.Facade = "http://" + c.facade
	}
	if err := a.save(c.dir); err != nil {
		return err
	}
	a.print(c.out, "Ctrl-C")

	<-ctx.Done()
	return nil
}

// start starts all components in order and returns when a lock can be acquired or, without
// operator, when the control plane serves.
func (c *cluster) start(ctx context.Context) error {
	var objects []*unstructured.Unstructured
	if c.options.operator != "" {
		var err error
		if objects, err = c.manifests(ctx); err != nil {
			return err
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.dir.kubeconfig())
	if err != nil {
		return err
	}
	if err := c.step(etcdName, func() error { return c.startEtcd(ctx) }); err != nil {
		return err
	}
	if err := c.step(apiServerName, func() error { return c.startAPIServer(ctx, config) }); err != nil {
		return err
	}
	// The start does not wait for it here, since no component up to the operator needs it.
	if err := c.startControllerManager(); err != nil {
		return err
	}
	// No other client needs protection from these requests, and the user waits for them.
	config.QPS = -1
	admin, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	var established time.Time
	if c.options.operator != "" {
		if established, err = c.installAndStartOperator(ctx, admin, objects); err != nil {
			return err
		}
	}
	if err := c.step(controllerManagerName, func() error { return waitForControllerManager(ctx, admin) }); err != nil {
		return err
	}
	if err := c.addChosen(ctx, admin); err != nil {
		return err
	}
	return c.step("quick creates", func() error { return waitForQuickCreates(ctx, established) })
}

// addChosen adds what the cluster has only if an option asks for it.
func (c *cluster) addChosen(ctx context.Context, admin client.Client) error {
	if c.options.nodes > 0 {
		if err := c.step("nodes", func() error { return c.startNodes(ctx, admin) }); err != nil {
			return err
		}
	}
	if c.options.auth == authToken {
		if err := c.step("identities", func() error { return c.createIdentities(ctx, admin) }); err != nil {
			return err
		}
	}
	if c.options.observe {
		return c.step(prometheusName, func() error { return c.startPrometheus(ctx, admin) })
	}
	return nil
}

// manifests returns the objects to install.
func (c *cluster) manifests(ctx context.Context) ([]*unstructured.Unstructured, error) {
	objects, err := renderManifests(ctx, filepath.Join(c.options.binaries, kubectlName), c.options.config)
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		if err := directWebhooks(object, c.ports.webhook.address(), c.credentials.certificate); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// installAndStartOperator returns when the last of the operator's resources was established.
func (c *cluster) installAndStartOperator(ctx context.Context, admin client.Client, objects []*unstructured.Unstructured) (established time.Time, err error) {
	err = c.step("manifests", func() error {
		established, err = install(ctx, admin, objects)
		return err
	})
	if err != nil {
		return established, err
	}
	return established, c.step(operatorName, func() error { return c.startOperator(ctx) })
}

// step runs one part of the start and prints how long it took.
func (c *cluster) step(name string, do func() error) error {
	started := time.Now()
	if err := do(); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "  %-24s ready after %.1fs\n", name, time.Since(started).Seconds())
	return nil
}
