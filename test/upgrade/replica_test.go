package upgrade_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/facade/peers"
	"forrst.dev/lock-operator/hack/admissionclient"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/webhook/server"
)

// replicasEach is how many replicas a component has.
const replicasEach = 2

const (
	facade      = "facade"
	controllers = "controllers"
	webhook     = "webhook"

	// processTimeout bounds how long a process may take to start or to stop.
	processTimeout = 5 * time.Minute
	// drainTimeout bounds how long a webhook may take to stop: until the API server has left its connections.
	drainTimeout = processTimeout + server.DefaultDrainTimeout
	// endpointsDelay is how long connections are sent to a replica that is to stop: the nodes of a
	// cluster take so long to notice.
	endpointsDelay = 2 * time.Second
)

// upgradeOrder is the order of docs/operations.md.
var upgradeOrder = []string{webhook, facade, controllers}

// installation is what runs of a release: two replicas of each component.
type installation struct {
	services map[string]*service
	replicas map[string][]*replica
	// folders has the folder of the certificate of each component with one.
	folders map[string]string
	// peers has the addresses of the ready replicas of the façade for each other, by their names. Those of a release
	// without shared lines have none, as their Pods have no such port.
	peers map[string]string
	// started counts the replicas, which gives them names.
	started int
}

// replica is a running process of a component.
type replica struct {
	of        *release
	component string
	name      string
	address   string
	session   *gexec.Session
}

// start starts a replica and waits until it is ready; connections are sent to it from then on.
func (i *installation) start(ctx context.Context, from *release, component string) *replica {
	GinkgoHelper()
	i.started++
	started := &replica{of: from, component: component, name: fmt.Sprintf("%s-%02d", component, i.started), address: fixture.FreeAddress(ctx)}
	peersAddress := ""
	probes := fixture.FreeAddress(ctx)
	flags := from.known("--health-probe-bind-address="+probes, "--metrics-bind-address=0", "--metrics-cert-dir=")
	switch component {
	case facade:
		if from.flags["peers-file"] {
			peersAddress = fixture.FreeAddress(ctx)
			flags = append(flags, i.peersFlags(ctx, started, peersAddress)...)
		}
		// The clients of the test call as fast as they are answered.
		flags = append(flags, from.known("--facade-max-rate-per-caller=0", "--facade-max-rate-per-namespace=0")...)
		flags = append(flags, "--facade-bind-address="+started.address,
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
	started.session, err = gexec.Start(exec.Command(from.program, arguments...), GinkgoWriter, GinkgoWriter)
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
	if peersAddress != "" {
		i.peers[started.name] = peersAddress
		i.tellPeers()
	}
	return started
}

// stop stops replicas at once, as nodes do: they get connections for a while.
func (i *installation) stop(stopped []*replica) {
	GinkgoHelper()
	for _, each := range stopped {
		each.session.Terminate()
		if i.peers[each.name] != "" {
			delete(i.peers, each.name)
			i.tellPeers()
		}
	}
	noticed := time.NewTimer(endpointsDelay)
	defer noticed.Stop()
	<-noticed.C
	for _, each := range stopped {
		if service := i.services[each.component]; service != nil {
			service.remove(each.address)
		}
	}
	for _, each := range stopped {
		if each.component != webhook { // A Deployment waits for none, but a webhook takes the longest.
			each.expectExit(processTimeout)
		}
	}
}

func (r *replica) expectExit(within time.Duration) {
	GinkgoHelper()
	Eventually(r.session).WithTimeout(within).Should(gexec.Exit(0), "%s of %s", r.name, r.of.name)
}

// roll replaces the first replica of all components at once, and then the second. Each new replica is ready before the
// old one stops.
func (i *installation) roll(ctx context.Context, to *release, components ...string) {
	GinkgoHelper()
	var stopped []*replica
	for index := range replicasEach {
		var former []*replica
		for _, component := range components {
			former = append(former, i.replicas[component][index])
			i.replicas[component][index] = i.start(ctx, to, component)
		}
		i.stop(former)
		stopped = append(stopped, former...)
	}
	for _, former := range stopped {
		former.expectExit(drainTimeout)
	}
}

// peersFlags let a replica share its lines at the address. There are no EndpointSlices, since there are no Pods.
func (i *installation) peersFlags(ctx context.Context, of *replica, address string) []string {
	GinkgoHelper()
	token := filepath.Join(i.folders[facade], "token")
	Expect(os.WriteFile(token, []byte(tokenOf(ctx, "forrst-system", "lock-operator-facade", peers.Audience)), 0o600)).To(Succeed())
	return []string{
		"--peers-bind-address=" + address, "--peers-replica=" + of.name, "--peers-file=" + i.membersFile(),
		"--peers-token-file=" + token, "--peers-authority-file=" + filepath.Join(i.folders[facade], "tls.crt"),
	}
}

func (i *installation) membersFile() string { return filepath.Join(i.folders[facade], "members") }

// tellPeers writes which replicas of the façade share their lines.
func (i *installation) tellPeers() {
	GinkgoHelper()
	members, err := yaml.Marshal(i.peers)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(i.membersFile()+".next", members, 0o600)).To(Succeed())
	Expect(os.Rename(i.membersFile()+".next", i.membersFile())).To(Succeed())
}

// expectSharedLines waits until both replicas of the façade are home to lines of each other.
func (i *installation) expectSharedLines(ctx context.Context) {
	GinkgoHelper()
	names := slices.Sorted(maps.Keys(i.peers))
	Expect(names).To(HaveLen(len(i.replicas[facade])))
	for _, at := range i.replicas[facade] {
		Eventually(at.session.Err).WithContext(ctx).WithTimeout(processTimeout).Should(
			gbytes.Say(`Sharing lines.*"homes":\["` + strings.Join(names, `","`) + `"\]`))
	}
}
