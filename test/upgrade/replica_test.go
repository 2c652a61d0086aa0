package upgrade_test

import (
	"context"
	"net/http"
	"os/exec"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"forrst.dev/lock-operator/hack/admissionclient"
	"forrst.dev/lock-operator/test/support/fixture"
)

const (
	facade      = "facade"
	controllers = "controllers"
	webhook     = "webhook"

	// processTimeout bounds how long a process may take to start or to stop.
	processTimeout = 60 * time.Second
	// endpointsDelay is how long connections are sent to a replica that is to stop: the nodes of a
	// cluster take so long to notice.
	endpointsDelay = 2 * time.Second
)

// installation is what runs of a release: two replicas of each component.
type installation struct {
	services map[string]*service
	replicas map[string][]*replica
	// folders has the folder of the certificate of each component with one.
	folders map[string]string
}

// replica is a running process of a component.
type replica struct {
	of      *release
	address string
	session *gexec.Session
}

// start starts a replica and waits until it is ready; connections are sent to it from then on.
func (i *installation) start(ctx context.Context, from *release, component string) *replica {
	GinkgoHelper()
	started := &replica{of: from, address: fixture.FreeAddress(ctx)}
	probes := fixture.FreeAddress(ctx)
	flags := from.known("--health-probe-bind-address="+probes, "--metrics-bind-address=0", "--metrics-cert-dir=")
	switch component {
	case facade:
		// Replicas of one machine cannot all have the port of the manifests. Of two releases they share no lines anyhow.
		flags = append(flags, from.known("--peers-bind-address=0")...)
		// The clients of the test call as fast as they are answered.
		flags = append(flags, "--facade-max-rate-per-caller=0", "--facade-max-rate-per-namespace=0",
			"--facade-bind-address="+started.address,
			"--facade-tls-cert-file="+filepath.Join(i.folders[facade], "tls.crt"), "--facade-tls-key-file="+filepath.Join(i.folders[facade], "tls.key"))
	case webhook:
		client := environment.WebhookClient()
		flags = append(flags, "--webhook-bind-address="+started.address, "--webhook-cert-dir="+i.folders[webhook],
			"--webhook-client-ca="+client.Authority, "--webhook-client-names="+admissionclient.Name)
	}
	account := "system:serviceaccount:forrst-system:lock-operator-" + component
	identity := environment.Identity(account, "system:serviceaccounts", "system:serviceaccounts:forrst-system", "system:authenticated")
	arguments := append(append(from.arguments(component), "--kubeconfig="+identity.Kubectl.Kubeconfig()), flags...)
	var err error
	started.session, err = gexec.Start(exec.Command(from.program, arguments...), GinkgoWriter, GinkgoWriter) //nolint:noctx // A signal ends it.
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { started.session.Kill().Wait(processTimeout) })
	Eventually(func(ctx context.Context) (int, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+probes+"/readyz", http.NoBody)
		if err != nil {
			return 0, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0, err
		}
		return response.StatusCode, response.Body.Close()
	}).WithContext(ctx).WithTimeout(processTimeout).Should(Equal(http.StatusOK), "%s of %s", component, from.name)
	if service := i.services[component]; service != nil {
		service.add(started.address)
	}
	return started
}

// stop stops a replica as a node does: it gets connections for a while.
func (i *installation) stop(component string, stopped *replica) {
	GinkgoHelper()
	stopped.session.Terminate()
	if service := i.services[component]; service != nil {
		noticed := time.NewTimer(endpointsDelay)
		defer noticed.Stop()
		<-noticed.C
		service.remove(stopped.address)
	}
	Eventually(stopped.session).WithTimeout(processTimeout).Should(gexec.Exit(0), "%s of %s", component, stopped.of.name)
}

// roll replaces the replicas of each component, one at a time: the new one is ready before the old
// one stops.
func (i *installation) roll(ctx context.Context, to *release) {
	GinkgoHelper()
	for _, component := range []string{webhook, controllers, facade} {
		for index, former := range i.replicas[component] {
			i.replicas[component][index] = i.start(ctx, to, component)
			i.stop(component, former)
		}
	}
}
