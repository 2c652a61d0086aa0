package runbooks_test

import (
	"context"
	"net/http"
	"os/exec"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

// stopTimeout bounds how long a process may take to stop.
const stopTimeout = 60 * time.Second

// component stands for the pods of a Deployment of config/manager: one process, which runs while the Deployment asks
// for replicas, and is replaced when its pod template changes.
type component struct {
	name       string
	flags      []string
	program    string
	kubeconfig string
	probes     string
	session    *gexec.Session
	restarted  string
}

// startFleet creates the Deployments of config/manager and runs what they ask for, until the suite ends. It plays
// the Deployment controller and the nodes.
func startFleet(ctx context.Context, program string, flags map[string][]string) {
	GinkgoHelper()
	manifests, err := environment.Kustomize(ctx, "manager")
	Expect(err).NotTo(HaveOccurred())
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	for _, manifest := range manifests {
		var deployment appsv1.Deployment
		if err := yaml.Unmarshal(manifest, &deployment); err != nil || deployment.Kind != "Deployment" {
			continue
		}
		deployment.Namespace = testenv.OperatorNamespace
		Expect(root.Client.Create(ctx, &deployment)).To(Succeed())
		started := &component{
			name: deployment.Name, flags: flags[deployment.Name], program: program,
			kubeconfig: environment.Operator().Kubectl.Kubeconfig(), probes: fixture.FreeAddress(ctx),
		}
		Expect(started.flags).NotTo(BeNil(), started.name)
		all.Go(func() {
			defer GinkgoRecover()
			defer started.stop()
			// An error is that of an API server that is away.
			_ = wait.PollUntilContextCancel(running, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
				_ = started.reconcile(ctx)
				return false, nil
			})
		})
	}
	DeferCleanup(func() {
		stop()
		all.Wait()
	})
	for name := range flags {
		Eventually(func(g Gomega) { g.Expect(available(ctx, name)).NotTo(BeZero()) }).WithContext(ctx).WithTimeout(patience).Should(Succeed())
	}
}

// available returns how many replicas of the Deployment are available.
func available(ctx context.Context, name string) int32 {
	var deployment appsv1.Deployment
	if err := root.Client.Get(ctx, client.ObjectKey{Namespace: testenv.OperatorNamespace, Name: name}, &deployment); err != nil {
		return 0
	}
	return deployment.Status.AvailableReplicas
}

// scale sets the replicas of the Deployment and waits until so many are available.
func scale(ctx context.Context, name string, replicas int32) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) error {
		var deployment appsv1.Deployment
		if err := root.Client.Get(ctx, client.ObjectKey{Namespace: testenv.OperatorNamespace, Name: name}, &deployment); err != nil {
			return err
		}
		deployment.Spec.Replicas = &replicas
		return root.Client.Update(ctx, &deployment)
	}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
	Eventually(available).WithContext(ctx).WithArguments(name).WithTimeout(patience).Should(Equal(replicas))
}

// takeAway scales the Deployment to no replica until the spec ends.
func takeAway(ctx context.Context, name string) {
	GinkgoHelper()
	scale(ctx, name, 0)
	DeferCleanup(scale, name, int32(2))
}

func (c *component) reconcile(ctx context.Context) error {
	var deployment appsv1.Deployment
	if err := root.Client.Get(ctx, client.ObjectKey{Namespace: testenv.OperatorNamespace, Name: c.name}, &deployment); err != nil {
		return err
	}
	wanted := *deployment.Spec.Replicas
	restarted := deployment.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"]
	if wanted == 0 || restarted != c.restarted {
		c.stop()
	}
	c.restarted = restarted
	ready := int32(0)
	if wanted > 0 && c.isReady(ctx) {
		ready = wanted
	}
	status := appsv1.DeploymentStatus{
		ObservedGeneration: deployment.Generation,
		Replicas:           wanted, UpdatedReplicas: wanted, ReadyReplicas: ready, AvailableReplicas: ready, UnavailableReplicas: wanted - ready,
	}
	condition := appsv1.DeploymentCondition{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionFalse, Reason: "Fleet"}
	if ready > 0 {
		condition.Status = corev1.ConditionTrue
	}
	status.Conditions = []appsv1.DeploymentCondition{condition}
	if apiequality.Semantic.DeepEqual(status, deployment.Status) {
		return nil
	}
	deployment.Status = status
	return root.Client.Status().Update(ctx, &deployment)
}

// isReady starts the process unless it runs, and reports whether it is ready.
func (c *component) isReady(ctx context.Context) bool {
	if c.session == nil || c.session.ExitCode() >= 0 {
		command := exec.Command(c.program, slices.Concat(c.flags, []string{
			"--kubeconfig=" + c.kubeconfig, "--health-probe-bind-address=" + c.probes, "--audit-log=",
		})...)
		session, err := gexec.Start(command, GinkgoWriter, GinkgoWriter)
		Expect(err).NotTo(HaveOccurred())
		c.session = session
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.probes+"/readyz", http.NoBody)
	Expect(err).NotTo(HaveOccurred())
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// stop ends the process, if there is one.
func (c *component) stop() {
	if c.session == nil {
		return
	}
	c.session.Terminate().Wait(stopTimeout)
	c.session = nil
}
