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

var _ = Describe("Argo CD's engine", func() {
	DescribeTable("waits for the pods of a Job under a lock, as a hook and in a wave,",
		func(ctx context.Context, isHeld bool, prepare func()) {
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
			for _, m := range all {
				node.End(m.runningPod(ctx).UID)
			}
			ended := outcomes()
			Expect(ended).To(HaveLen(len(all)))
			for name, outcome := range ended {
				Expect(outcome.Phase).To(Equal("Succeeded"), "%s: %+v", name, outcome)
			}
			for _, m := range all {
				Expect(m.isRolledOut(ctx)).To(BeTrue())
			}
		},
		Entry("with a free key", false, func() {}),
		Entry("with a held key", true, func() {}),
		Entry("with a free key and a slow Job controller", false, slowJobController),
		Entry("with a held key and a slow Job controller", true, slowJobController),
	)

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
