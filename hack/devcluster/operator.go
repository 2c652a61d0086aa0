package main

import (
	"context"
	"net/http"

	"forrst.dev/lock-operator/hack/admissionclient"
)

// startOperator starts the operator and waits until its façade and its webhook are ready.
func (c *cluster) startOperator(ctx context.Context) error {
	c.ports.webhook.release()
	c.ports.operatorHealth.release()
	metrics := "0"
	if c.options.observe {
		metrics = c.ports.metrics.address()
		c.ports.metrics.release()
	}
	arguments := []string{
		"--components=controller,webhook,facade",
		"--kubeconfig=" + c.dir.componentKubeconfig(operatorName),
		"--facade-bind-address=" + c.facade,
		"--facade-auth=" + c.options.auth,
		"--webhook-bind-address=" + c.ports.webhook.address(),
		"--webhook-cert-dir=" + c.dir.pki(),
		"--webhook-client-ca=" + c.webhookClient.Authority,
		"--webhook-client-names=" + admissionclient.Name,
		"--health-probe-bind-address=" + c.ports.operatorHealth.address(),
		"--metrics-bind-address=" + metrics,
		// As config/guards has it, which config/dev includes.
		"--guards",
		// No load balancer needs time to notice the end.
		"--facade-shutdown-delay=0s", "--webhook-shutdown-delay=0s", "--webhook-drain-timeout=0s",
	}
	if c.options.routes != "" {
		arguments = append(arguments, "--facade-routes="+c.options.routes)
	}
	if c.options.maxLocks != "" {
		arguments = append(arguments, "--max-locks-per-namespace="+c.options.maxLocks)
	}
	if err := c.supervisor.start(operatorName, c.options.operator, arguments...); err != nil {
		return err
	}
	client := &http.Client{Timeout: probeTimeout}
	if err := waitForOK(ctx, client, operatorName, "http://"+c.ports.operatorHealth.address()+"/readyz"); err != nil {
		return err
	}
	return waitForOK(ctx, client, "the façade", "http://"+c.facade+"/readyz")
}
