package upgrade_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	facadeclient "forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/fixture"
)

// grantsBetween is how many grants the clients have to get between two steps.
const grantsBetween = 50

var _ = Describe("An installation", func() {
	It("is upgraded and rolled back while clients use it", func(ctx context.Context) {
		installed := &installation{
			services: map[string]*service{facade: newService(ctx), webhook: newService(ctx)},
			replicas: map[string][]*replica{},
			folders:  map[string]string{facade: GinkgoT().TempDir(), webhook: GinkgoT().TempDir()},
			peers:    map[string]string{},
		}
		certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, []string{"lock-operator-facade.forrst-system.svc"})
		Expect(err).NotTo(HaveOccurred())
		for _, folder := range installed.folders {
			Expect(os.WriteFile(filepath.Join(folder, "tls.crt"), certificate, 0o600)).To(Succeed())
			Expect(os.WriteFile(filepath.Join(folder, "tls.key"), key, 0o600)).To(Succeed())
		}
		apply := func(of *release) { of.apply(ctx, installed.services[webhook].address, certificate) }

		By("installing " + earlier.name)
		apply(earlier)
		for _, component := range upgradeOrder {
			for range replicasEach {
				installed.replicas[component] = append(installed.replicas[component], installed.start(ctx, earlier, component))
			}
		}
		namespace := environment.Namespace(ctx, "upgraded-")
		storedIn := storeSamples(ctx, earlier)
		token := workerToken(ctx, namespace)

		By("letting clients use it")
		roots := x509.NewCertPool()
		Expect(roots.AppendCertsFromPEM(certificate)).To(BeTrue())
		transport := func() *http.Transport {
			return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
		}
		url := "https://" + installed.services[facade].address
		newClient := func() *lock.Client {
			backend, err := facadeclient.New(url, facadeclient.WithHTTPClient(&http.Client{Transport: transport()}),
				facadeclient.WithBearerToken(func(context.Context) (string, error) { return token, nil }))
			Expect(err).NotTo(HaveOccurred())
			return lock.NewClient(backend, namespace)
		}
		kept := make([]*lock.Held, 3)
		tokens := make([]int64, len(kept))
		for index := range kept {
			kept[index], err = newClient().Acquire(ctx, "kept-"+strconv.Itoa(index), lock.WithTTL(30*time.Second))
			Expect(err).NotTo(HaveOccurred())
			tokens[index] = kept[index].FencingToken()
		}
		user := environment.Identity("alice", "system:masters")
		declared := fixture.Manifest(namespace, "declared")
		Expect(user.Client.Create(ctx, declared)).To(Succeed())
		job := lockedJob(namespace)
		Expect(user.Client.Create(ctx, job)).To(Succeed())
		Eventually(func(g Gomega, ctx context.Context) {
			g.Expect(user.Client.Get(ctx, client.ObjectKeyFromObject(job), job)).To(Succeed())
			g.Expect(job.Spec.Suspend).To(HaveValue(BeFalse()))
		}).WithContext(ctx).WithTimeout(processTimeout).Should(Succeed())

		seen := newRecord()
		working, stop := context.WithCancel(ctx)
		var clients sync.WaitGroup
		defer clients.Wait()
		defer stop()
		for contended := range 2 {
			var isHeld atomic.Bool
			for range 3 {
				locks := newClient()
				clients.Go(func() { seen.queue(working, locks, "contended-"+strconv.Itoa(contended), &isHeld) })
			}
		}
		plain := transport()
		plain.DisableKeepAlives = true
		clients.Go(func() {
			seen.call(working, &http.Client{Transport: plain}, url+"/v1/namespaces/"+namespace+"/locks/called", token)
		})
		clients.Go(func() { seen.write(working, user, namespace) })
		check := func() {
			GinkgoHelper()
			before := seen.count()
			Eventually(seen.count).WithTimeout(processTimeout).Should(BeNumerically(">", before+grantsBetween))
			Expect(seen.seen()).To(BeEmpty())
			for index, held := range kept {
				Expect(held.Err()).To(Succeed())
				Expect(held.FencingToken()).To(Equal(tokens[index]))
			}
			current := &v1alpha1.Lock{}
			Expect(user.Client.Get(ctx, client.ObjectKeyFromObject(declared), current)).To(Succeed())
			Expect(current.Spec).To(Equal(declared.Spec))
			now := &batchv1.Job{}
			Expect(user.Client.Get(ctx, client.ObjectKeyFromObject(job), now)).To(Succeed())
			Expect(now.Spec).To(Equal(job.Spec), "the Job runs on, with its token")
		}
		check()

		By("restarting it, which is what the others are compared with")
		seen.stopping(true)
		for _, component := range upgradeOrder {
			installed.roll(ctx, earlier, component)
		}
		seen.stopping(false)
		check()
		By("upgrading it to " + current.name + ", one component after the other")
		apply(current)
		check()
		seen.stopping(true)
		installed.roll(ctx, current, webhook)
		seen.stopping(false)
		// Until the last replica is replaced, one that shares no lines serves the same keys as one that does.
		installed.roll(ctx, current, facade)
		// The controllers of the earlier release do not know what it asks for.
		renewed := createRenewed(ctx, namespace)
		installed.roll(ctx, current, controllers)
		installed.expectSharedLines(ctx)
		check()
		admitSamples(ctx, earlier)
		changeSamples(ctx, storedIn, "after the upgrade")
		expectRenewal(ctx, renewed)
		By("rolling it back, all components at once")
		apply(earlier)
		expectNoPolicy(ctx, renewed)
		check()
		installed.roll(ctx, earlier, upgradeOrder...)
		check()
		changeSamples(ctx, storedIn, "after the rollback")
		expectEnd(ctx, renewed)
		By("upgrading it again, all components at once")
		apply(current)
		check()
		seen.stopping(true)
		installed.roll(ctx, current, upgradeOrder...)
		seen.stopping(false)
		installed.expectSharedLines(ctx)
		check()
		GinkgoWriter.Println("grants:", seen.count(), "refused by webhooks of the earlier release that stopped:", seen.excused)

		stop()
		clients.Wait()
		Expect(seen.seen()).To(BeEmpty())
		Expect(seen.excused).To(BeNumerically("<=", 3*replicasEach), "one writer meets each of the webhooks that stop once at most")
		for _, held := range kept {
			Expect(held.Release(ctx)).To(Succeed())
		}
	})
})

// workerToken returns a token of a service account that may use the locks of the namespace through the
// façade.
func workerToken(ctx context.Context, namespace string) string {
	GinkgoHelper()
	admin := environment.Admin.Client
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fixture.Worker}}
	Expect(admin.Create(ctx, account)).To(Succeed())
	Expect(admin.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fixture.Worker},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "lock-operator-edit"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: fixture.Worker}},
	})).To(Succeed())
	return tokenOf(ctx, namespace, fixture.Worker, "lock-operator.forrst.dev")
}

// tokenOf returns a token of a service account for the audience.
func tokenOf(ctx context.Context, namespace, name, audience string) string {
	GinkgoHelper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
	Expect(environment.Admin.Client.SubResource("token").Create(ctx, account, request)).To(Succeed())
	return request.Status.Token
}

// lockedJob is a Job that holds a lock and never ends: nothing runs its pods.
func lockedJob(namespace string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "running", Labels: map[string]string{v1alpha1.LockLabel: "true"},
			Annotations: map[string]string{v1alpha1.LockKeyAnnotation: "job"},
		},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "work", Image: "busybox"}},
		}}},
	}
}
