package gitops_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// hookAnnotations are those of the sample config/samples/jobs/argocd_migration.yaml.
const hookAnnotations = `    argocd.argoproj.io/hook: Sync
    argocd.argoproj.io/hook-delete-policy: BeforeHookCreation,HookSucceeded
`

// migration is an application with a Job under a lock and, in the next wave, a ConfigMap.
type migration struct{ folder, namespace, key string }

func (m *migration) name() string { return filepath.Base(m.folder) }

// migrations writes applications whose Jobs are hooks and, in turn, ordinary objects of the first wave.
func migrations(number int, more string) []*migration {
	GinkgoHelper()
	var made []*migration
	root := GinkgoT().TempDir()
	for index := range number {
		kind, annotations := "hook", hookAnnotations
		if index%2 == 1 {
			kind, annotations = "wave", ""
		}
		name := fmt.Sprintf("%s-%d-%d", kind, time.Now().UnixNano(), index)
		m := &migration{folder: filepath.Join(root, name), namespace: "default", key: "database:" + name}
		Expect(os.Mkdir(m.folder, 0o700)).To(Succeed())
		write(m.folder, "job.yaml", "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: "+name+"\n  namespace: default\n  labels:\n    forrst.dev/lock: \"true\"\n"+
			"  annotations:\n    argocd.argoproj.io/sync-wave: \"-1\"\n"+annotations+"    forrst.dev/lock-key: "+m.key+"\n"+more+
			"spec:\n  backoffLimit: 0\n  template:\n    metadata:\n      annotations:\n        test.forrst.dev/run-for: forever\n"+
			"    spec:\n      restartPolicy: Never\n      containers: [{name: migrate, image: busybox}]\n")
		write(m.folder, "rollout.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: "+name+"\n  namespace: default\n")
		DeferCleanup(func(ctx context.Context) {
			meta := client.ObjectKey{Namespace: m.namespace, Name: name}
			var job batchv1.Job
			if admin.Get(ctx, meta, &job) == nil {
				Expect(client.IgnoreNotFound(admin.Delete(ctx, &job, client.PropagationPolicy("Background")))).To(Succeed())
			}
		})
		made = append(made, m)
	}
	return made
}

// lockName is the name of the application's lock.
func (m *migration) lockName() string { return v1alpha1.FullKeyOf(m.key).ObjectName() }

// job returns the Job, or nil.
func (m *migration) job(ctx context.Context) *batchv1.Job {
	GinkgoHelper()
	var job batchv1.Job
	err := admin.Get(ctx, client.ObjectKey{Namespace: m.namespace, Name: m.name()}, &job)
	if apierrors.IsNotFound(err) {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	return &job
}

// isRolledOut reports whether the next wave was applied.
func (m *migration) isRolledOut(ctx context.Context) bool {
	GinkgoHelper()
	err := admin.Get(ctx, client.ObjectKey{Namespace: m.namespace, Name: m.name()}, &corev1.ConfigMap{})
	if !apierrors.IsNotFound(err) {
		Expect(err).NotTo(HaveOccurred())
	}
	return err == nil
}

// runningPod returns the pod of the Job that runs, or nil.
func (m *migration) runningPod(ctx context.Context) *corev1.Pod {
	GinkgoHelper()
	var pods corev1.PodList
	Expect(admin.List(ctx, &pods, client.InNamespace(m.namespace), client.MatchingLabels{batchv1.JobNameLabel: m.name()})).To(Succeed())
	for _, pod := range pods.Items {
		if pod.Status.Phase == corev1.PodRunning {
			return &pod
		}
	}
	return nil
}
