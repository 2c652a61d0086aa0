package gitops_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

// syncs returns how many syncs run at the same time, half of them with a hook and half with a wave. The variable
// GITOPS_SYNCS of the environment raises it.
func syncs() int {
	GinkgoHelper()
	text := os.Getenv("GITOPS_SYNCS")
	if text == "" {
		return 6
	}
	return must(strconv.Atoi(text))
}

// syncOutcome is a line of the program in test/gitops/argocd.
type syncOutcome struct {
	Folder   string            `json:"folder"`
	Phase    string            `json:"phase"`
	Phases   map[string]string `json:"phases"`
	Messages map[string]string `json:"messages"`
	Error    string            `json:"error"`
	// Differences are those of a comparison.
	Differences []struct {
		Options string          `json:"options"`
		Wanted  json.RawMessage `json:"wanted"`
		Live    json.RawMessage `json:"live"`
		Error   string          `json:"error"`
	} `json:"differences"`
}

// syncAll syncs the applications with Argo CD's engine. The outcomes come when all have ended.
func syncAll(ctx context.Context, all []*migration) (outcomes func() map[string]syncOutcome) {
	GinkgoHelper()
	var folders []string
	for _, m := range all {
		folders = append(folders, m.folder)
	}
	return startSync(ctx, folders...)
}

// syncOne syncs one folder of manifests, with the flags of the program in test/gitops/argocd, until that has ended.
func syncOne(ctx context.Context, folder string, flags ...string) syncOutcome {
	GinkgoHelper()
	return startSync(ctx, append(flags, folder)...)()[filepath.Base(folder)]
}

func startSync(ctx context.Context, flagsAndFolders ...string) (outcomes func() map[string]syncOutcome) {
	GinkgoHelper()
	program, err := testenv.BuildModule(ctx, "test/gitops/argocd")
	Expect(err).NotTo(HaveOccurred())
	arguments := append([]string{"-kubeconfig", environment.Admin.Kubectl.Kubeconfig()}, flagsAndFolders...)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	command := exec.CommandContext(ctx, program, arguments...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	Expect(command.Start()).To(Succeed())
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	DeferCleanup(cancel)
	return func() map[string]syncOutcome {
		GinkgoHelper()
		var failed error
		Eventually(ended).WithTimeout(timeout).Should(Receive(&failed))
		Expect(failed).NotTo(HaveOccurred(), stderr.String())
		found := map[string]syncOutcome{}
		for line := range strings.Lines(stdout.String()) {
			var outcome syncOutcome
			Expect(json.Unmarshal([]byte(line), &outcome)).To(Succeed())
			found[filepath.Base(outcome.Folder)] = outcome
		}
		Expect(found).NotTo(BeEmpty())
		return found
	}
}

// slowJobController stops the Job controller again and again until the spec ends.
func slowJobController() {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer GinkgoRecover()
		defer close(stopped)
		for {
			Expect(manager.Pause()).To(Succeed())
			select {
			case <-stop:
			case <-time.After(700 * time.Millisecond):
			}
			Expect(manager.Resume()).To(Succeed())
			select {
			case <-stop:
				return
			case <-time.After(300 * time.Millisecond):
			}
		}
	}()
	DeferCleanup(func() { close(stop); <-stopped })
}

var _ = Describe("Argo CD's engine", Label("nightly"), func() {
	DescribeTable("waits for the pods of a Job under a lock, as a hook and in a wave,",
		func(ctx context.Context, isHeld bool, prepare func(), isFailed bool) {
			all := migrations(syncs(), "")
			if isHeld {
				for _, m := range all {
					Expect(admin.Create(ctx, fixture.Manifest(m.namespace, m.key))).To(Succeed())
				}
			}
			prepare()
			outcomes := syncAll(ctx, all)
			if isHeld {
				for _, m := range all {
					Eventually(ctx, func(g Gomega) {
						job := m.job(ctx)
						g.Expect(job).NotTo(BeNil())
						g.Expect(job.Status.Conditions).To(ContainElement(HaveField("Type", batchv1.JobSuspended)))
					}).WithTimeout(timeout).Should(Succeed())
				}
				Consistently(func(g Gomega) {
					for _, m := range all {
						g.Expect(m.isRolledOut(ctx)).To(BeFalse(), "%s was applied while its Job waits", m.name())
					}
				}).WithTimeout(1500 * time.Millisecond).WithPolling(300 * time.Millisecond).Should(Succeed())
				for _, m := range all {
					Expect(testenv.RemoveLock(ctx, admin, m.namespace, m.lockName())).To(Succeed())
				}
			}
			for _, m := range all {
				Eventually(ctx, func() *corev1.Pod { return m.runningPod(ctx) }).WithTimeout(timeout).ShouldNot(BeNil())
			}
			Consistently(func(g Gomega) {
				for _, m := range all {
					g.Expect(m.isRolledOut(ctx)).To(BeFalse(), "%s was applied while its Job runs", m.name())
					job := m.job(ctx)
					g.Expect(job).NotTo(BeNil())
					g.Expect(job.DeletionTimestamp).To(BeNil(), "%s was deleted while it runs", m.name())
				}
			}).WithTimeout(3 * time.Second).WithPolling(300 * time.Millisecond).Should(Succeed())
			end, phase := node.End, "Succeeded"
			if isFailed {
				end, phase = node.Fail, "Failed"
			}
			for _, m := range all {
				end(m.runningPod(ctx).UID)
			}
			ended := outcomes()
			Expect(ended).To(HaveLen(len(all)))
			for name, outcome := range ended {
				Expect(outcome.Phase).To(Equal(phase), "%s: %+v", name, outcome)
			}
			for _, m := range all {
				Expect(m.isRolledOut(ctx)).To(Equal(!isFailed))
				lock := client.ObjectKey{Namespace: m.namespace, Name: m.lockName()}
				Eventually(ctx, func() error { return admin.Get(ctx, lock, &v1alpha1.Lock{}) }).WithTimeout(timeout).Should(Satisfy(apierrors.IsNotFound))
			}
		},
		Entry("with a free key", false, func() {}, false),
		Entry("with a held key", true, func() {}, false),
		Entry("with a free key and a slow Job controller", false, slowJobController, false),
		Entry("with a held key and a slow Job controller", true, slowJobController, false),
		Entry("with pods that fail", true, func() {}, true),
	)

	It("finds no difference in an acquired Lock, by each of its comparisons", func(ctx context.Context) {
		for title, rest := range manifests() {
			By(title)
			path, name := application("gitops:compared", rest)
			Expect(syncOne(ctx, path).Phase).To(Equal("Succeeded"))
			before := stored(ctx, name)
			compared := syncOne(ctx, path, "-diff")
			Expect(compared.Error).To(BeEmpty(), title)
			Expect(compared.Differences).To(BeEmpty(), "%s: %s", title, compared.Differences)
			Expect(stored(ctx, name)).To(Equal(before), title)
			must(environment.Admin.Kubectl.Run(ctx, "", "delete", "lock", name, "--namespace=default"))
		}

		By("with a change and with a field that there is not, which are differences")
		path, _ := application("gitops:compared", "  owner: repository\n  ttl: 1h\n")
		Expect(syncOne(ctx, path).Phase).To(Equal("Succeeded"))
		manifest := string(must(os.ReadFile(filepath.Join(path, "lock.yaml"))))
		write(path, "lock.yaml", manifest+"  reason: Monthly close\n")
		all := []any{HaveField("Options", ""), HaveField("Options", "ServerSideDiff=true"), HaveField("Options", "ServerSideDiff=true,IncludeMutationWebhook=true")}
		differences := syncOne(ctx, path, "-diff").Differences
		Expect(differences).To(ConsistOf(all...))
		Expect(differences).To(HaveEach(HaveField("Error", BeEmpty())))
		write(path, "lock.yaml", manifest+"  raeson: Monthly close\n")
		Expect(syncOne(ctx, path).Phase).To(Equal("Succeeded"))
		differences = syncOne(ctx, path, "-diff").Differences
		Expect(differences).To(ConsistOf(all...))
		for _, difference := range differences {
			if difference.Options == "" {
				Expect(difference.Error).To(BeEmpty())
			} else {
				Expect(difference.Error).To(ContainSubstring("raeson: field not declared in schema"))
			}
		}
	})

	DescribeTable("ends with a Job that is not run,",
		func(ctx context.Context, more, phase string, isRolledOut bool) {
			all := migrations(2, more)
			for _, m := range all {
				Expect(admin.Create(ctx, fixture.Manifest(m.namespace, m.key))).To(Succeed())
				DeferCleanup(testenv.RemoveLock, admin, m.namespace, m.lockName())
			}
			outcomes := syncAll(ctx, all)()
			for _, m := range all {
				Expect(outcomes[m.name()].Phase).To(Equal(phase), "%+v", outcomes[m.name()])
				Expect(m.isRolledOut(ctx)).To(Equal(isRolledOut))
				if phase == "Failed" {
					job := m.job(ctx)
					Expect(job).NotTo(BeNil())
					Expect(job.Status.Conditions).NotTo(BeEmpty())
					Expect(job.Status.Conditions[0].Type).To(Equal(batchv1.JobFailureTarget)) // Argo Workflows looks at the first.
					Expect(job.Status.Conditions).To(ContainElement(And(
						HaveField("Type", batchv1.JobFailed), HaveField("Message", ContainSubstring("admin")))))
				}
			}
		},
		Entry("which is skipped", "    forrst.dev/lock-policy: skip\n", "Succeeded", true),
		Entry("which fails", "    forrst.dev/lock-policy: fail\n", "Failed", false),
		Entry("which has waited for too long", "    forrst.dev/lock-wait-timeout: 1s\n", "Failed", false),
	)
})
