package runbooks_test

import (
	"context"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"forrst.dev/lock-operator/test/support/fixture"
)

// smallQuota is reached by some thirty writes of [filling] bytes. usualQuota is etcd's default.
const (
	smallQuota = 32 << 20
	usualQuota = 2 << 30
	filling    = 900 << 10
)

// restartEtcd kills etcd and starts it with the quota.
func restartEtcd(quota int) {
	GinkgoHelper()
	Expect(environment.KillEtcd()).To(Succeed())
	environment.SetEtcdFlag("quota-backend-bytes", strconv.Itoa(quota))
	Expect(environment.StartEtcd()).To(Succeed())
}

// awaitService returns when the API server answers again after etcd was away.
func awaitService(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(ctx context.Context) error {
		return root.Client.Get(ctx, types.NamespacedName{Name: metav1.NamespaceDefault}, &corev1.Namespace{})
	}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
}

var _ = Describe("The runbook for an etcd that is out of space", func() {
	It("gets it back to work, with larger fencing tokens", SpecTimeout(specTimeout), func(ctx context.Context) {
		namespace := environment.Namespace(ctx, "full-")
		restartEtcd(smallQuota)
		DeferCleanup(func(ctx context.Context) {
			restartEtcd(usualQuota)
			awaitService(ctx)
		})
		awaitService(ctx)
		released := acquire(ctx, deployer, namespace, "released")
		renewed := acquire(ctx, deployer, namespace, "renewed")
		before := tokenOf(ctx, renewed)
		fill(ctx, namespace)

		book := openRunbook("etcd is out of space", "payments", namespace)
		Expect(book.run(ctx, root, "alarm list")).To(ContainSubstring("NOSPACE"))
		Expect(deployer.Client.Delete(ctx, released)).To(Succeed(), "a release is a delete")
		Expect(exists(ctx, renewed)).To(BeTrue())
		renewed.Spec.TTL.Duration *= 2
		Expect(deployer.Client.Update(ctx, renewed)).To(MatchError(ContainSubstring("database space exceeded")))
		Expect(deployer.Client.Create(ctx, fixture.Manifest(namespace, "released"))).To(MatchError(ContainSubstring("database space exceeded")))
		Expect(acquireByFacade(ctx)).To(Equal(http.StatusServiceUnavailable))

		Expect(book.run(ctx, root, "uniq -c")).To(MatchRegexp(`\d+ forrst\.dev/locks`))
		book.run(ctx, root, "kubectl delete")
		book.run(ctx, root, "etcdctl defrag")
		Expect(book.run(ctx, root, "alarm list")).To(And(Not(ContainSubstring("NOSPACE")), ContainSubstring("created (server dry run)")))
		Expect(tokenOf(ctx, acquire(ctx, deployer, namespace, "released"))).To(BeNumerically(">", before))
		Eventually(acquireByFacade).WithContext(ctx).WithTimeout(patience).Should(Equal(http.StatusCreated))
		// There is room again: as much as it took to fill it is written without an alarm.
		settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "settings"}, Data: map[string]string{"a": strings.Repeat("a", filling)}}
		Expect(root.Client.Create(ctx, settings)).To(Succeed())
	})
})

// fill writes one ConfigMap, whose history takes all the space that etcd may have.
func fill(ctx context.Context, namespace string) {
	GinkgoHelper()
	leftover := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "leftover"}}
	Expect(root.Client.Create(ctx, leftover)).To(Succeed())
	for round := 0; ; round++ {
		leftover.Data = map[string]string{"filling": strings.Repeat(strconv.Itoa(round%10), filling)}
		if err := root.Client.Update(ctx, leftover); err != nil {
			Expect(err).To(MatchError(ContainSubstring("database space exceeded")))
			return
		}
		Expect(round).To(BeNumerically("<", 2*smallQuota/filling))
	}
}

// acquireByFacade acquires a lock of the namespace "default" for a second, and returns the answer's status.
func acquireByFacade(ctx context.Context) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, facade+"/v1/namespaces/default/locks/runbook",
		strings.NewReader(`{"ttl_seconds":1}`))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

var _ = Describe("The runbook for a restore from a backup", func() {
	It("gives no fencing token twice, and no lock to a second holder", SpecTimeout(specTimeout), func(ctx context.Context) {
		namespace := environment.Namespace(ctx, "restored-")
		backups := GinkgoT().TempDir()
		book := openRunbook("Restore etcd from a backup", "payments", namespace,
			"/var/backups/etcd", backups, "/var/lib/etcd.before", filepath.Join(backups, "before"), "/var/lib/etcd", environment.EtcdData())
		kept := acquire(ctx, deployer, namespace, "kept")
		keptToken := tokenOf(ctx, kept)
		ended := acquire(ctx, deployer, namespace, key)
		job := createJob(ctx, namespace, "nightly", "1s") // Waits for that lock.
		book.run(ctx, root, "snapshot save")

		// What the restore forgets: a release, the Job that ran then, and grants.
		Expect(deployer.Client.Delete(ctx, ended)).To(Succeed())
		Eventually(hasEnded).WithContext(ctx).WithTimeout(patience).WithArguments(job).Should(BeTrue())
		forgotten := acquire(ctx, deployer, namespace, "forgotten")
		last := tokenOf(ctx, forgotten)
		Expect(environment.APIServer().Kill()).To(Succeed())
		Expect(environment.KillEtcd()).To(Succeed())
		book.run(ctx, root, "--bump-revision")
		Expect(environment.StartEtcd()).To(Succeed())
		Expect(environment.APIServer().Start()).To(Succeed())
		book.run(ctx, root, "closed.yaml")
		book.run(ctx, root, "rollout restart")

		Expect(exists(ctx, forgotten)).To(BeFalse())
		Expect(exists(ctx, ended)).To(BeTrue())
		Expect(tokenOf(ctx, kept)).To(Equal(keptToken), "the same grant has the same token")
		// The cluster is closed to grants, and not to holders.
		closed := MatchError(ContainSubstring("grants no locks yet"))
		Expect(stranger.Client.Create(ctx, fixture.Manifest(namespace, "forgotten"))).To(closed)
		Expect(acquireByFacade(ctx)).To(Equal(http.StatusForbidden))
		kept.Spec.TTL.Duration *= 2
		Expect(deployer.Client.Update(ctx, kept)).To(Succeed())
		Expect(tokenOf(ctx, kept)).To(Equal(keptToken))
		Expect(book.run(ctx, root, "get locks")).To(And(MatchRegexp(namespace+` +kept +deployer`), MatchRegexp(namespace+` +billing--report +deployer`)))
		book.run(ctx, root, "force-release-reason")
		Expect(exists(ctx, ended)).To(BeFalse())
		Consistently(func() []string { return startsOf(namespace) }).WithTimeout(2*time.Second).Should(Equal([]string{"nightly"}), "the Job that waited when the snapshot was taken")

		book.run(ctx, root, "kubectl delete -f")
		Eventually(func(ctx context.Context) error {
			return stranger.Client.Create(ctx, fixture.Manifest(namespace, "forgotten"))
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
		Expect(tokenOf(ctx, forgotten)).To(BeNumerically(">", last))
		output := book.run(ctx, root, "config/samples/lock.yaml")
		printed := regexp.MustCompile(`(?m)^\d+$`).FindString(output)
		number, err := strconv.ParseInt(printed, 10, 64)
		Expect(err).NotTo(HaveOccurred())
		Expect(number).To(BeNumerically(">", last))
		Eventually(hasEnded).WithContext(ctx).WithTimeout(patience).WithArguments(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nightly"}}).Should(BeTrue())
	})
})
