package admission_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/text/unicode/norm"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	facadeclient "forrst.dev/lock-operator/facade/client"
	restdoor "forrst.dev/lock-operator/facade/rest"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
	"forrst.dev/lock-operator/test/support/testfacade"
)

const (
	keyPolicy      = "lock-operator-keys"
	durationPolicy = "lock-operator-durations"
)

// dryRun creates a lock without keeping it.
func dryRun(who fixture.Identity, namespace, key string, changes ...func(*v1alpha1.Lock)) func(context.Context) error {
	return func(ctx context.Context) error {
		return who.Client.Create(ctx, fixture.Manifest(namespace, key, changes...), client.DryRunAll)
	}
}

// way is one of those in which a lock is taken.
type way func(ctx context.Context, who fixture.Identity, namespace, key string, ttl time.Duration) error

func byKubectl(ctx context.Context, who fixture.Identity, namespace, key string, ttl time.Duration) error {
	_, err := run(ctx, who, namespace, yaml(namespace, key, "ttl: "+ttl.String()), "create", "-f", "-")
	return err
}

func bySDK(ctx context.Context, who fixture.Identity, namespace, key string, ttl time.Duration) error {
	GinkgoHelper()
	_, err := lock.NewClient(directBackend(ctx, who, namespace), namespace).TryAcquire(ctx, key, lock.WithTTL(ttl), lock.WithoutRenewal())
	return err
}

func byForrst(ctx context.Context, who fixture.Identity, namespace, key string, ttl time.Duration) error {
	GinkgoHelper()
	_, err := lock.NewClient(facadeBackend(ctx, who, namespace), namespace).TryAcquire(ctx, key, lock.WithTTL(ttl), lock.WithoutRenewal())
	return err
}

// byREST fails the spec if the refusal is not final.
func byREST(ctx context.Context, who fixture.Identity, namespace, key string, ttl time.Duration) error {
	GinkgoHelper()
	address := fmt.Sprintf("%s/v1/namespaces/%s/locks/%s", facadeFor(ctx, who), namespace, key)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(fmt.Appendf(nil, `{"ttl_seconds":%g}`, ttl.Seconds())))
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	if response.StatusCode == http.StatusCreated {
		return nil
	}
	Expect(response.StatusCode).To(Equal(http.StatusForbidden), "%s", body)
	var problem restdoor.Problem
	Expect(json.Unmarshal(body, &problem)).To(Succeed())
	return &lock.RefusedError{Reason: problem.Detail}
}

// facadeFor serves a façade that takes every caller for the user.
func facadeFor(ctx context.Context, who fixture.Identity) string {
	GinkgoHelper()
	return environment.StartFacade(ctx, "", func(settings *testfacade.Settings) { settings.Access = fixture.SingleUser(who.Name) })
}

func facadeBackend(ctx context.Context, who fixture.Identity, namespace string) lock.Backend {
	GinkgoHelper()
	backend, err := facadeclient.New(facadeFor(ctx, who), facadeclient.WithNamespace(namespace))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(backend.Close)
	return backend
}

func directBackend(ctx context.Context, who fixture.Identity, namespace string) lock.Backend {
	GinkgoHelper()
	made, err := engine.NewDirect(who.Config, namespace, logr.Discard())
	Expect(err).NotTo(HaveOccurred())
	startEngine(ctx, made)
	return made
}

var ways = map[string]way{"kubectl": byKubectl, "SDK": bySDK, "Forrst": byForrst, "REST": byREST}

// updating counts updates.
type updating struct {
	next   http.RoundTripper
	number *atomic.Int64
}

// RoundTrip implements [http.RoundTripper].
func (u updating) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method == http.MethodPut {
		u.number.Add(1)
	}
	return u.next.RoundTrip(request)
}

// expectRefused fails unless the caller is told finally, and by whom and why.
func expectRefused(means string, err error, policy, reason string) {
	GinkgoHelper()
	Expect(err).To(MatchError(And(ContainSubstring(policy+"' with binding '"), ContainSubstring(reason))), means)
	if means != "kubectl" {
		Expect(err).To(MatchError(lock.ErrRefused), means)
		Expect(err).NotTo(MatchError(lock.ErrUnavailable), means)
	}
}

var _ = Describe("A policy of keys", func() {
	var namespace string
	const holders = `
		# Who may hold what.
		billing:  user:system:serviceaccount:payments:worker
		billing:  jobs
		team      group:system:serviceaccounts:payments
		admin:    group:lock-administrators
		scratch:  *
		Key:      user:administrator`
	bind := func(ctx context.Context, more map[string]string) {
		GinkgoHelper()
		entries := map[string]string{"holders": holders}
		maps.Copy(entries, more)
		fixture.BindPolicy(ctx, root.Client, keyPolicy, namespace, entries, dryRun(stranger, namespace, "billing:probe"))
	}
	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx) })

	DescribeTable("lets listed holders alone take a key, by every door,",
		func(ctx context.Context, user, key, reason string) {
			bind(ctx, nil)
			who := worker
			if user == stranger.Name {
				who = stranger
			}
			for name, take := range ways {
				err := take(ctx, who, namespace, key+"-by-"+name, time.Minute)
				if reason == "" {
					Expect(err).NotTo(HaveOccurred(), name)
				} else {
					expectRefused(name, err, keyPolicy, reason)
				}
			}
		},
		Entry("by the name of a user", "worker", "billing:report", ""),
		Entry("by the group of a namespace's service accounts", "worker", "team-report", ""),
		Entry("or every holder", "stranger", "scratch:a", ""),
		Entry("and no other holder", "stranger", "billing:report", `may not hold the key "billing:report-`),
		Entry("and says which prefix is for others", "stranger", "team-report", `since keys that begin with "team" are for other holders; use another key, or ask`),
		Entry("and no key that is not listed", "worker", "other", `since it begins with no prefix that is listed; use another key, or ask`),
	)

	It("counts the groups of a user for direct writes, and not for the façade, which does not pass them on", func(ctx context.Context) {
		bind(ctx, nil)
		Expect(byKubectl(ctx, administrator, namespace, "admin:a", time.Minute)).To(Succeed())
		Expect(bySDK(ctx, administrator, namespace, "admin:b", time.Minute)).To(Succeed())
		expectRefused("Forrst", byForrst(ctx, administrator, namespace, "admin:c", time.Minute), keyPolicy, `"administrator" may not hold`)
	})

	It("lets every holder take keys that are not listed, where it says so", func(ctx context.Context) {
		bind(ctx, map[string]string{"otherKeys": "allowed"})
		for name, take := range ways {
			Expect(take(ctx, stranger, namespace, "other-by-"+name, time.Minute)).To(Succeed(), name)
			expectRefused(name, take(ctx, stranger, namespace, "billing:report", time.Minute), keyPolicy, "are for other holders")
		}
	})

	It("is not evaded by another spelling of the key, or by a function", func(ctx context.Context) {
		bind(ctx, map[string]string{"otherKeys": "allowed"})
		const kelvin = "\u212Aey:1" // The same key as "Key:1".
		Expect(v1alpha1.FullKeyOf(kelvin)).To(Equal(v1alpha1.FullKeyOf("Key:1")))
		Expect(dryRun(stranger, namespace, kelvin)(ctx)).To(MatchError(ContainSubstring("must consist of Latin letters")))
		expectRefused("Forrst", byForrst(ctx, stranger, namespace, kelvin, time.Minute), keyPolicy, "are for other holders")
		Expect(dryRun(stranger, namespace, "report", func(lock *v1alpha1.Lock) {
			lock.Name, lock.Spec.Scope, lock.Spec.Function = v1alpha1.FullKeyOf("billing:report").ObjectName(), v1alpha1.ScopeFunction, "billing"
		})(ctx)).To(MatchError(ContainSubstring(`may not hold the key "billing:report"`)))
	})

	It("judges take-overs and hand-offs", func(ctx context.Context) {
		over := expired(ctx, namespace, "billing:over")
		next := held(ctx, namespace, "billing:next")
		bind(ctx, nil)
		taken := over.DeepCopy()
		taken.Spec.Owner, taken.Spec.TTL.Duration = "token-b", time.Minute
		Eventually(func(ctx context.Context) error { return stranger.Client.Update(ctx, taken) }).WithContext(ctx).WithTimeout(systemTimeout).
			Should(MatchError(ContainSubstring("are for other holders")))
		Expect(worker.Client.Update(ctx, taken)).To(Succeed())
		handOff := []string{"patch", "lock", next.Name, "--type=merge", "-p", `{"metadata":{"annotations":{"` + v1alpha1.RequestAnnotation + `":"hand-off"}},"spec":{"owner":"token-b"}}`}
		_, err := run(ctx, worker, namespace, "", handOff...)
		Expect(err).NotTo(HaveOccurred())
	})

	It("lets a holder release a lock for which a caller waits that may not have it, and tells the caller", func(ctx context.Context) {
		var updates atomic.Int64
		config := rest.CopyConfig(operator.Config)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return updating{next, &updates} })
		httpClient, err := rest.HTTPClientFor(config)
		Expect(err).NotTo(HaveOccurred())
		objects, err := engine.NewObjectClient(config, httpClient)
		Expect(err).NotTo(HaveOccurred())
		door, err := engine.New(engine.Options{Objects: objects.Locks, Limits: rules.DefaultLimits(), IsValidated: true})
		Expect(err).NotTo(HaveOccurred())
		startEngine(ctx, door)
		request := func(owner string, wait time.Duration) lock.Request {
			return lock.Request{Wait: wait, Acquisition: rules.Acquisition{Key: "billing:queue", Owner: owner, Holder: "stranger"}}
		}
		live, err := door.Acquire(ctx, namespace, request("token-a", 0))
		Expect(err).NotTo(HaveOccurred())
		told := make(chan error, 1)
		waiting, stop := context.WithCancel(ctx)
		defer stop()
		go func() {
			_, err := door.Acquire(waiting, namespace, request("token-b", time.Hour))
			told <- err
		}()
		bind(ctx, nil)
		proof := lock.Proof{Owner: live.Spec.Owner, Holder: "stranger"}
		Eventually(func() []lock.Waiter {
			waiters, _, err := door.Waiters(ctx, namespace, live.Spec.FullKey(), 1)
			Expect(err).NotTo(HaveOccurred())
			return waiters
		}).Should(HaveLen(1))
		Expect(door.Release(ctx, namespace, live.Spec.FullKey(), proof)).To(Succeed())
		Expect(updates.Load()).To(Equal(int64(1)), "hand-offs that were tried")
		expectGone(ctx, live)
		var refused error
		Eventually(told).Should(Receive(&refused))
		expectRefused("a waiter", refused, keyPolicy, "are for other holders")
	})

	It("has no effect without its ConfigMap", func(ctx context.Context) {
		bind(ctx, nil)
		Expect(root.Client.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: testenv.OperatorNamespace, Name: namespace + "-" + keyPolicy}})).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(root.Client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: testenv.OperatorNamespace, Name: namespace + "-" + keyPolicy}})).To(Succeed())
		})
		Eventually(dryRun(stranger, namespace, "billing:probe")).WithContext(ctx).WithTimeout(systemTimeout).Should(Succeed())
	})

	DescribeTable("refuses every grant if it is malformed, with what is wrong, and no release:", func(ctx context.Context, name, value, wrong string) {
		live := held(ctx, namespace, "scratch:live")
		fixture.BindPolicy(ctx, root.Client, keyPolicy, namespace, map[string]string{name: value}, dryRun(worker, namespace, "scratch:a"))
		Expect(dryRun(worker, namespace, "scratch:a")(ctx)).To(MatchError(And(
			ContainSubstring("the policy of keys is malformed; an administrator of the cluster must correct ConfigMap "+testenv.OperatorNamespace+"/"), ContainSubstring(wrong))))
		expectEndable(ctx, live)
	},
		Entry("another entry", "Holders", "scratch: *", "must have no entries but holders"),
		Entry("another word for other keys", "otherKeys", "yes", "must have no entries but holders"),
		Entry("a line without a holder", "holders", "scratch: *\nbilling:", `line "billing:"`),
		Entry("an unknown kind of holder", "holders", "scratch: serviceaccount:a", `line "scratch: serviceaccount:a"`),
		Entry("a holder without a name", "holders", "scratch: user:", `line "scratch: user:"`),
		Entry("more after jobs", "holders", "scratch: jobs *", `line "scratch: jobs *"`),
	)

	It("judges characters that have one spelling alone", func() {
		for character := rune(0x20); character < 0x300; character++ {
			properties := norm.NFC.PropertiesString(string(character))
			Expect(norm.NFC.IsNormalString(string(character))).To(BeTrue(), "%U", character)
			Expect(properties.BoundaryBefore()).To(BeTrue(), "%U", character)
		}
	})
})

var _ = Describe("A policy of durations", func() {
	var namespace string
	bind := func(ctx context.Context, entries map[string]string) {
		GinkgoHelper()
		fixture.BindPolicy(ctx, root.Client, durationPolicy, namespace, entries, func(ctx context.Context) error {
			year := v1alpha1.NewTimestamp(time.Now().Add(365 * 24 * time.Hour))
			return dryRun(worker, namespace, "probe", func(lock *v1alpha1.Lock) { lock.Spec.TTL, lock.Spec.ExpireTime = nil, &year })(ctx)
		})
	}
	fixed := func(ahead time.Duration) func(*v1alpha1.Lock) {
		end := v1alpha1.NewTimestamp(time.Now().Add(ahead))
		return func(lock *v1alpha1.Lock) { lock.Spec.TTL, lock.Spec.ExpireTime = nil, &end }
	}
	BeforeEach(func(ctx context.Context) { namespace = newNamespace(ctx) })

	It("bounds the ttl, by every door", func(ctx context.Context) {
		bind(ctx, map[string]string{"maxTTL": "10m"})
		for name, take := range ways {
			key := "report-by-" + name
			expectRefused(name, take(ctx, worker, namespace, key, 11*time.Minute), durationPolicy, "spec.ttl: 11m0s is more than the 10m that ConfigMap "+testenv.OperatorNamespace+"/")
			Expect(take(ctx, worker, namespace, key, 10*time.Minute)).To(Succeed(), name)
		}
	})

	DescribeTable("bounds a fixed expireTime", func(ctx context.Context, entries map[string]string, ahead time.Duration, reason string) {
		bind(ctx, entries)
		err := worker.Client.Create(ctx, fixture.Manifest(namespace, "freeze", fixed(ahead)))
		if reason == "" {
			Expect(err).NotTo(HaveOccurred())
		} else {
			Expect(err).To(MatchError(ContainSubstring(reason)))
		}
	},
		Entry("that is near enough", map[string]string{"maxExpireAhead": "48h"}, 47*time.Hour, ""),
		Entry("that is too far", map[string]string{"maxExpireAhead": "48h"}, 49*time.Hour, "spec.expireTime: may be at most 48h ahead in this namespace"),
		Entry("where none is allowed", map[string]string{"maxExpireAhead": "0s"}, time.Minute, "spec.expireTime: a fixed time is not allowed in this namespace"),
		Entry("by the longest ttl if it has no bound of its own", map[string]string{"maxTTL": "10m"}, 11*time.Minute, "spec.expireTime: may be at most 10m ahead"),
		Entry("apart from the longest ttl if it has one", map[string]string{"maxTTL": "10m", "maxExpireAhead": "48h"}, 47*time.Hour, ""),
	)

	It("lets the holder of an earlier lock renew it with its ttl or a shorter one, and no longer one", func(ctx context.Context) {
		for _, open := range []func(context.Context, fixture.Identity, string) lock.Backend{directBackend, facadeBackend} {
			backend := open(ctx, worker, namespace)
			live, err := backend.Acquire(ctx, namespace, lock.Request{Acquisition: rules.Acquisition{Key: "report", Owner: fixture.Owner, TTL: time.Hour, Holder: workerName}})
			Expect(err).NotTo(HaveOccurred())
			bind(ctx, map[string]string{"maxTTL": "10m"})
			renew := func(ttl time.Duration) error {
				_, err := backend.Renew(ctx, namespace, live.Spec.FullKey(), lock.Proof{Owner: fixture.Owner, Holder: workerName}, ttl)
				return err
			}
			Expect(renew(0)).To(Succeed())
			Expect(renew(30 * time.Minute)).To(Succeed())
			expectRefused("a program", renew(31*time.Minute), durationPolicy, "spec.ttl: 31m0s is more than the 10m")
			Expect(stored(ctx, live).Spec.TTL.Duration).To(Equal(30 * time.Minute))
			Expect(renew(time.Minute)).To(Succeed())
			Expect(renew(10 * time.Minute)).To(Succeed())
			Expect(backend.Release(ctx, namespace, live.Spec.FullKey(), lock.Proof{Owner: fixture.Owner, Holder: workerName})).To(Succeed())
			namespace = newNamespace(ctx)
		}
	})

	It("lets the holder of an earlier freeze end it sooner, and not later", func(ctx context.Context) {
		freeze := held(ctx, namespace, "freeze", fixed(100*time.Hour))
		bind(ctx, map[string]string{"maxExpireAhead": "0s"})
		move := func(ctx context.Context, ahead time.Duration) error {
			_, err := run(ctx, worker, namespace, "", "patch", "lock", freeze.Name, "--type=merge", "-p",
				`{"spec":{"expireTime":"`+time.Now().Add(ahead).UTC().Format(time.RFC3339)+`"}}`)
			return err
		}
		Expect(move(ctx, 101*time.Hour)).To(MatchError(ContainSubstring("a fixed time is not allowed")))
		Expect(move(ctx, time.Hour)).To(Succeed())
		Expect(move(ctx, 2*time.Hour)).To(MatchError(ContainSubstring("a fixed time is not allowed")))
		_, err := run(ctx, worker, namespace, "", "label", "lock", freeze.Name, "team=finance")
		Expect(err).NotTo(HaveOccurred())
	})

	It("lets no holder of a fixed time change to a ttl that is too long", func(ctx context.Context) {
		bind(ctx, map[string]string{"maxTTL": "10m", "maxExpireAhead": "48h"})
		freeze := held(ctx, namespace, "freeze", fixed(47*time.Hour))
		change := func(ttl string) error {
			_, err := run(ctx, worker, namespace, "", "patch", "lock", freeze.Name, "--type=merge", "-p", `{"spec":{"ttl":"`+ttl+`","expireTime":null}}`)
			return err
		}
		Expect(change("24h")).To(MatchError(ContainSubstring("spec.ttl: 24h")))
		Expect(change("10m")).To(Succeed())
	})

	DescribeTable("refuses every grant if it is malformed, and no release:", func(ctx context.Context, name, value string) {
		live := held(ctx, namespace, "live")
		bind(ctx, map[string]string{name: value})
		Expect(dryRun(worker, namespace, "a")(ctx)).To(MatchError(ContainSubstring("the policy of durations is malformed; an administrator of the cluster must correct ConfigMap")))
		expectEndable(ctx, live)
	},
		Entry("another entry", "maxTtl", "10m"),
		Entry("a duration without a unit", "maxTTL", "10"),
		Entry("a unit that there is none", "maxExpireAhead", "2d"),
		Entry("no duration", "maxTTL", ""),
	)
})

// expectEndable fails unless a live lock of the worker can be renewed, forced, deleted in the foreground
// and released.
func expectEndable(ctx context.Context, live *v1alpha1.Lock) {
	GinkgoHelper()
	_, err := run(ctx, worker, live.Namespace, "", "annotate", "lock", live.Name, v1alpha1.RequestAnnotation+"="+v1alpha1.RequestRenewal)
	Expect(err).NotTo(HaveOccurred())
	_, err = run(ctx, administrator, live.Namespace, "", "annotate", "lock", live.Name, reasonAnnotation+"=the node burnt down")
	Expect(err).NotTo(HaveOccurred())
	_, err = run(ctx, administrator, live.Namespace, "", "delete", "lock", live.Name, "--cascade=foreground")
	Expect(err).NotTo(HaveOccurred())
	expectGone(ctx, live)
}

// Without the binding lock-operator-parameters the API server would no longer follow ConfigMaps by then.
var _ = Describe("A policy that is bound when none with parameters was bound", func() {
	It("is in force", func(ctx context.Context) {
		for range 2 {
			namespace := newNamespace(ctx)
			probe := dryRun(worker, namespace, "probe")
			fixture.BindPolicy(ctx, root.Client, durationPolicy, namespace, map[string]string{"maxTTL": "1ms"}, probe)
			binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + durationPolicy}}
			Expect(root.Client.Delete(ctx, binding)).To(Succeed())
			Eventually(probe).WithContext(ctx).WithTimeout(fixture.PolicyTimeout).Should(Succeed())
		}
	})
})

var _ = Describe("A lock that was taken before a policy forbids it", func() {
	var namespace string
	var live, over, stuck *v1alpha1.Lock
	BeforeEach(func(ctx context.Context) {
		namespace = newNamespace(ctx)
		live, over = held(ctx, namespace, "billing:live"), held(ctx, namespace, "billing:over", fixture.TTL(time.Second))
		stuck = held(ctx, namespace, "billing:stuck")
		fixture.BindPolicy(ctx, root.Client, durationPolicy, namespace, map[string]string{"maxTTL": "1ms"}, dryRun(worker, namespace, "billing:probe"))
		fixture.BindPolicy(ctx, root.Client, keyPolicy, namespace, map[string]string{"holders": "billing: user:another"}, dryRun(worker, namespace, "billing:probe", fixture.TTL(time.Millisecond)))
	})

	It("is renewed, forced and deleted in the foreground", func(ctx context.Context) {
		expectEndable(ctx, live)
	})

	It("is released by its holder with kubectl", func(ctx context.Context) {
		_, err := run(ctx, worker, namespace, "", "delete", "lock", live.Name)
		Expect(err).NotTo(HaveOccurred())
		expectGone(ctx, live)
	})

	It("is released by the SDK", func(ctx context.Context) {
		Expect(directBackend(ctx, worker, namespace).Release(ctx, namespace, live.Spec.FullKey(), lock.Proof{Owner: fixture.Owner})).To(Succeed())
		expectGone(ctx, live)
	})

	It("is released by the façade, and forced there", func(ctx context.Context) {
		Expect(facadeBackend(ctx, worker, namespace).Release(ctx, namespace, live.Spec.FullKey(), lock.Proof{Owner: fixture.Owner})).To(Succeed())
		expectGone(ctx, live)
		Expect(startFacade(ctx, namespace).ForceRelease(ctx, namespace, stuck.Spec.FullKey(), "the node burnt down")).To(Succeed())
		expectGone(ctx, stuck)
	})

	It("is reaped when it has expired", func(ctx context.Context) {
		startFacade(ctx, namespace)
		Eventually(stored).WithContext(ctx).WithTimeout(systemTimeout).WithArguments(over).Should(BeNil())
	})

	It("changes in labels, and without a finalizer", func(ctx context.Context) {
		_, err := run(ctx, worker, namespace, "", "label", "lock", live.Name, "team=finance")
		Expect(err).NotTo(HaveOccurred())
		current := stored(ctx, live)
		current.Finalizers = []string{"example.com/keep"}
		Expect(operator.Client.Update(ctx, current)).To(Succeed())
		_, err = run(ctx, worker, namespace, "", "delete", "lock", live.Name, "--wait=false")
		Expect(err).NotTo(HaveOccurred())
		ending := stored(ctx, live)
		ending.Finalizers = nil
		Expect(operator.Client.Update(ctx, ending)).To(Succeed())
		expectGone(ctx, live)
	})
})
