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
	It("is upgraded while clients use it", func(ctx context.Context) {
		used := install(ctx)
		used.upgradeOneByOne(ctx)
		used.end(ctx)
	})
})

// used is an installation of the earlier release with clients that use it.
type used struct {
	*installation
	authority []byte
	// user declares Locks and Jobs.
	user     fixture.Identity
	declared *v1alpha1.Lock
	job      *batchv1.Job
	// kept are locks that are held all the time, with these tokens.
	kept   []*lock.Held
	tokens []int64
	// storedIn is the namespace of sample Locks that the earlier release has stored.
	storedIn, namespace string
	// renewed is a lock that the operator renews, once it is upgraded.
	renewed *v1alpha1.Lock
	seen    *record
	// stop ends the clients, and waits for that.
	stop func()
	// stopped counts the webhooks of the earlier release that have stopped.
	stopped int
}

// install installs the earlier release, and has clients use it until [used.end].
func install(ctx context.Context) *used {
	GinkgoHelper()
	u := &used{
		installation: &installation{
			services: map[string]*service{facade: newService(ctx), webhook: newService(ctx)},
			replicas: map[string][]*replica{},
			folders:  map[string]string{facade: GinkgoT().TempDir(), webhook: GinkgoT().TempDir()},
			peers:    map[string]string{},
		},
		user: environment.Identity("alice", "system:masters"),
		seen: newRecord(),
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, []string{"lock-operator-facade.forrst-system.svc"})
	Expect(err).NotTo(HaveOccurred())
	u.authority = certificate
	for _, folder := range u.folders {
		Expect(os.WriteFile(filepath.Join(folder, "tls.crt"), certificate, 0o600)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(folder, "tls.key"), key, 0o600)).To(Succeed())
	}

	By("installing " + earlier.name)
	u.apply(ctx, earlier)
	for _, component := range upgradeOrder {
		for range replicasEach {
			u.replicas[component] = append(u.replicas[component], u.start(ctx, earlier, component))
		}
	}
	u.namespace = environment.Namespace(ctx, "upgraded-")
	u.storedIn = storeSamples(ctx, earlier)

	By("letting clients use it")
	u.hold(ctx)
	u.check(ctx)
	return u
}

func (u *used) apply(ctx context.Context, of *release) {
	GinkgoHelper()
	of.apply(ctx, u.services[webhook].address, u.authority)
}

// hold begins what the clients do.
func (u *used) hold(ctx context.Context) {
	GinkgoHelper()
	roots := x509.NewCertPool()
	Expect(roots.AppendCertsFromPEM(u.authority)).To(BeTrue())
	transport := func() *http.Transport {
		return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	}
	url, token := "https://"+u.services[facade].address, workerToken(ctx, u.namespace)
	newClient := func() *lock.Client {
		GinkgoHelper()
		backend, err := facadeclient.New(url, facadeclient.WithHTTPClient(&http.Client{Transport: transport()}),
			facadeclient.WithBearerToken(func(context.Context) (string, error) { return token, nil }))
		Expect(err).NotTo(HaveOccurred())
		return lock.NewClient(backend, u.namespace)
	}
	for index := range 3 {
		held, err := newClient().Acquire(ctx, "kept-"+strconv.Itoa(index), lock.WithTTL(30*time.Second))
		Expect(err).NotTo(HaveOccurred())
		u.kept, u.tokens = append(u.kept, held), append(u.tokens, held.FencingToken())
	}
	u.declared = fixture.Manifest(u.namespace, "declared")
	Expect(u.user.Client.Create(ctx, u.declared)).To(Succeed())
	u.job = lockedJob(u.namespace)
	Expect(u.user.Client.Create(ctx, u.job)).To(Succeed())
	Eventually(func(g Gomega, ctx context.Context) {
		g.Expect(u.user.Client.Get(ctx, client.ObjectKeyFromObject(u.job), u.job)).To(Succeed())
		g.Expect(u.job.Spec.Suspend).To(HaveValue(BeFalse()))
	}).WithContext(ctx).WithTimeout(processTimeout).Should(Succeed())

	working, stop := context.WithCancel(ctx)
	var clients sync.WaitGroup
	u.stop = func() { stop(); clients.Wait() }
	DeferCleanup(u.stop)
	for contended := range 2 {
		var isHeld atomic.Bool
		for range 3 {
			locks := newClient()
			clients.Go(func() { u.seen.queue(working, locks, "contended-"+strconv.Itoa(contended), &isHeld) })
		}
	}
	plain := transport()
	plain.DisableKeepAlives = true
	clients.Go(func() {
		u.seen.call(working, &http.Client{Transport: plain}, url+"/v1/namespaces/"+u.namespace+"/locks/called", token)
	})
	clients.Go(func() { u.seen.write(working, u.user, u.namespace) })
}

// check fails if a client has seen a failure, gets no more locks, or has lost what it has.
func (u *used) check(ctx context.Context) {
	GinkgoHelper()
	before := u.seen.count()
	Eventually(u.seen.count).WithTimeout(processTimeout).Should(BeNumerically(">", before+grantsBetween))
	Expect(u.seen.seen()).To(BeEmpty())
	for index, held := range u.kept {
		Expect(held.Err()).To(Succeed())
		Expect(held.FencingToken()).To(Equal(u.tokens[index]))
	}
	current := &v1alpha1.Lock{}
	Expect(u.user.Client.Get(ctx, client.ObjectKeyFromObject(u.declared), current)).To(Succeed())
	Expect(current.Spec).To(Equal(u.declared.Spec))
	now := &batchv1.Job{}
	Expect(u.user.Client.Get(ctx, client.ObjectKeyFromObject(u.job), now)).To(Succeed())
	Expect(now.Spec).To(Equal(u.job.Spec), "the Job runs on, with its token")
}

// rollEarlierWebhook replaces components with the webhook, which is of the earlier release.
func (u *used) rollEarlierWebhook(ctx context.Context, to *release, components ...string) {
	GinkgoHelper()
	u.seen.stopping(true)
	u.roll(ctx, to, components...)
	u.seen.stopping(false)
	u.stopped += replicasEach
}

// upgradeOneByOne upgrades one component after the other.
func (u *used) upgradeOneByOne(ctx context.Context) {
	GinkgoHelper()
	By("upgrading it to " + current.name + ", one component after the other")
	u.apply(ctx, current)
	u.check(ctx)
	u.rollEarlierWebhook(ctx, current, webhook)
	// Until the last replica is replaced, one that shares no lines serves the same keys as one that does.
	u.roll(ctx, current, facade)
	// The controllers of the earlier release do not know what it asks for.
	u.renewed = createRenewed(ctx, u.namespace)
	u.roll(ctx, current, controllers)
	u.expectSharedLines(ctx)
	u.check(ctx)
	admitSamples(ctx, earlier)
	changeSamples(ctx, u.storedIn, "after the upgrade")
	expectRenewal(ctx, u.renewed)
}

// end ends the clients, and fails if one has seen a failure.
func (u *used) end(ctx context.Context) {
	GinkgoHelper()
	GinkgoWriter.Println("grants:", u.seen.count(), "refused by webhooks of the earlier release that stopped:", u.seen.excused)
	u.stop()
	Expect(u.seen.seen()).To(BeEmpty())
	Expect(u.seen.excused).To(BeNumerically("<=", u.stopped), "one writer meets each of the webhooks that stop once at most")
	for _, held := range u.kept {
		Expect(held.Release(ctx)).To(Succeed())
	}
}

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
