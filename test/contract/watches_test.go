package contract_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/engine/keywatch"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

// requests counts the requests of a program, by verb.
type requests struct {
	mu    sync.Mutex
	made  map[string]int
	shown int
}

// transport returns one that counts.
func (r *requests) transport(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		verb := request.Method
		query := request.URL.Query()
		isWatch := query.Get("watch") != ""
		switch {
		case isWatch && query.Get("fieldSelector") != "":
			verb = "watch of one"
		case isWatch:
			verb = "watch of all"
		}
		r.mu.Lock()
		r.made[verb]++
		r.mu.Unlock()
		response, err := next.RoundTrip(request)
		if err == nil && isWatch {
			response.Body = &countedBody{ReadCloser: response.Body, requests: r}
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

type countedBody struct {
	io.ReadCloser

	requests *requests
}

func (b *countedBody) Read(into []byte) (int, error) {
	length, err := b.ReadCloser.Read(into)
	b.requests.mu.Lock()
	defer b.requests.mu.Unlock()
	b.requests.shown += length
	return length, err
}

// count returns how many requests of a verb were made.
func (r *requests) count(verb string) func() int {
	return func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.made[verb]
	}
}

// take returns and forgets the requests made so far.
func (r *requests) take() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	made := r.made
	r.made = map[string]int{}
	return made
}

// bytes returns how much the watches have shown.
func (r *requests) bytes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shown
}

// startProgram starts a direct engine that ends with the spec.
func startProgram(ctx context.Context, who fixture.Identity, namespace string) (*engine.Engine, *requests) {
	GinkgoHelper()
	counted := &requests{made: map[string]int{}}
	config := rest.CopyConfig(who.Config)
	config.Wrap(counted.transport)
	program, err := engine.NewDirect(config, namespace, logr.Discard())
	Expect(err).NotTo(HaveOccurred())
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- program.Start(running) }()
	DeferCleanup(func(ctx context.Context) {
		stop()
		Eventually(ended).WithContext(ctx).WithTimeout(answer).Should(Receive(BeNil()))
	})
	return program, counted
}

// answer bounds how long a program takes to react, also on a slow machine.
const answer = time.Minute

// proof is that of the program that holds the locks.
var proof = lock.Proof{Owner: "holder"}

var _ = Describe("The watches of a program", func() {
	var (
		namespace     string
		who           fixture.Identity
		holder        *engine.Engine
		waiting       *engine.Engine
		byWaiting     *requests
		key           = func(number int) string { return fmt.Sprintf("reports:%d", number) }
		acquired      chan string
		acquisitionOf = func(key, owner string) rules.Acquisition {
			return rules.Acquisition{Key: key, Owner: owner, TTL: 10 * time.Minute}
		}
	)
	hold := func(ctx context.Context, key string) {
		GinkgoHelper()
		_, err := holder.Acquire(ctx, namespace, lock.Request{Acquisition: acquisitionOf(key, proof.Owner)})
		Expect(err).NotTo(HaveOccurred())
	}
	wait := func(ctx context.Context, key string) {
		go func() {
			defer GinkgoRecover()
			_, err := waiting.Acquire(ctx, namespace, lock.Request{Acquisition: acquisitionOf(key, "waiter"), Wait: time.Hour})
			if ctx.Err() == nil {
				Expect(err).NotTo(HaveOccurred())
				acquired <- key
			}
		}()
	}
	BeforeEach(func(ctx context.Context) {
		namespace = newNamespace(ctx)
		who = environment.Identity("bob", testenv.TestersGroup)
		holder, _ = startProgram(ctx, who, namespace)
		waiting, byWaiting = startProgram(ctx, who, namespace)
		acquired = make(chan string, 1000)
	})

	DescribeTable("are as many as the documentation says", func(ctx context.Context, keys, watched int) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		began := time.Now()
		for number := range keys {
			hold(ctx, key(number))
			wait(ctx, key(number))
		}
		Eventually(byWaiting.count("watch of one")).WithContext(ctx).WithTimeout(answer).Should(Equal(watched))
		Eventually(byWaiting.count("GET")).WithContext(ctx).WithTimeout(answer).Should(BeNumerically(">=", keys))
		for number := range keys {
			Expect(holder.Release(ctx, namespace, v1alpha1.FullKeyOf(key(number)), proof)).To(Succeed())
			Eventually(acquired).WithContext(ctx).WithTimeout(answer).Should(Receive(Equal(key(number))))
		}
		total := byWaiting.take()
		AddReportEntry("requests", fmt.Sprint(total))
		Expect(total["watch of one"]).To(BeNumerically(">=", watched), "a lock that is used no longer makes room for another")
		Expect(total["watch of one"]).To(BeNumerically("<=", keys))
		looks := 1 + int(time.Since(began)/(3750*time.Millisecond))
		looksUnwatched := 1 + int(time.Since(began)/(375*time.Millisecond))
		Expect(total["GET"]).To(BeNumerically("<=", watched*looks+(keys-watched)*looksUnwatched),
			"a queue reads its lock once, and again every 3.75 s at most, or every 0.375 s if it is not watched")
		Expect(total["POST"]).To(BeNumerically("<=", 2*keys), "a waiter tries at first, and when the lock is free")
		Expect(total).To(HaveLen(3))
	},
		Entry("for one lock", 1, 1),
		Entry("for as many locks as are watched", keywatch.MaxNames, keywatch.MaxNames),
		Entry("for more locks", 100, keywatch.MaxNames),
	)

	It("are none for a lock that is free, taken and released", func(ctx context.Context) {
		locks := lock.NewClient(waiting, namespace)
		for range 10 {
			Expect(locks.Do(ctx, key(0), func(context.Context, *lock.Held) error { return nil })).To(Succeed())
		}
		Expect(byWaiting.take()).To(Equal(map[string]int{"POST": 10, "DELETE": 10}))
	})

	It("show no other locks", func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		hold(ctx, key(0))
		wait(ctx, key(0))
		Eventually(byWaiting.bytes).WithContext(ctx).WithTimeout(answer).Should(BeNumerically(">", 0))
		for number := range 50 {
			hold(ctx, key(number+1))
		}
		Consistently(byWaiting.bytes).WithTimeout(time.Second).Should(BeNumerically("<", 10_000), "a lock of about 1,000 bytes, and bookmarks")
		Expect(holder.Release(ctx, namespace, v1alpha1.FullKeyOf(key(0)), proof)).To(Succeed())
		Eventually(acquired).WithContext(ctx).WithTimeout(answer).Should(Receive())
	})

	It("show a lock that another client deletes", func(ctx context.Context) {
		hold(ctx, key(0))
		wait(ctx, key(0))
		Eventually(byWaiting.bytes).WithContext(ctx).WithTimeout(answer).Should(BeNumerically(">", 0))
		byWaiting.take()
		var held v1alpha1.Lock
		name := client.ObjectKey{Namespace: namespace, Name: v1alpha1.FullKeyOf(key(0)).ObjectName()}
		Expect(admin.Get(ctx, name, &held)).To(Succeed())
		holders, err := client.New(who.Config, client.Options{Scheme: environment.Scheme})
		Expect(err).NotTo(HaveOccurred())
		Expect(holders.Delete(ctx, &held)).To(Succeed())
		Eventually(acquired).WithContext(ctx).WithTimeout(answer).Should(Receive())
		Expect(byWaiting.take()).NotTo(HaveKey("GET"))
	})

	It("tell a holder of a forced release in its first second", func(ctx context.Context) {
		held, err := lock.NewClient(waiting, namespace).Acquire(ctx, key(0), lock.WithTTL(10*time.Minute))
		Expect(err).NotTo(HaveOccurred())
		Expect(held.Err()).To(Succeed())
		Expect(holder.ForceRelease(ctx, namespace, v1alpha1.FullKeyOf(key(0)), "test")).To(Succeed())
		Eventually(held.Done()).WithContext(ctx).WithTimeout(answer).Should(BeClosed())
		Expect(held.Err()).To(MatchError(lock.ErrForceReleased))
		Expect(byWaiting.take()).To(Equal(map[string]int{"POST": 1, "watch of one": 1}))
	})

	It("need no right on other locks", func(ctx context.Context) {
		meta := metav1.ObjectMeta{Namespace: namespace, Name: "one-lock"}
		name := v1alpha1.FullKeyOf(key(0)).ObjectName()
		Expect(admin.Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"locks"}, Verbs: []string{"create"}},
			{
				APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"locks"}, ResourceNames: []string{name},
				Verbs: []string{"get", "list", "watch", "update", "delete"},
			},
		}})).To(Succeed())
		Expect(admin.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "carol"}},
		})).To(Succeed())
		waiting, byWaiting = startProgram(ctx, environment.Identity("carol"), namespace)
		hold(ctx, key(0))
		Eventually(func(ctx context.Context) error { // RBAC learns of the role by a watch.
			_, err := waiting.Get(ctx, namespace, v1alpha1.FullKeyOf(key(0)))
			return err
		}).WithContext(ctx).WithTimeout(answer).Should(Succeed())
		byWaiting.take()
		wait(ctx, key(0))
		Eventually(byWaiting.bytes).WithContext(ctx).WithTimeout(answer).Should(BeNumerically(">", 0))
		Expect(byWaiting.take()).To(Equal(map[string]int{"POST": 1, "GET": 1, "watch of one": 1}))
		Expect(holder.Release(ctx, namespace, v1alpha1.FullKeyOf(key(0)), proof)).To(Succeed())
		Eventually(acquired).WithContext(ctx).WithTimeout(answer).Should(Receive())
		_, err := waiting.List(ctx, namespace, lock.Filter{})
		Expect(err).To(MatchError(lock.ErrForbidden))
	})
})
