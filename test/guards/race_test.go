package guards_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/fixture"
)

const raceRounds = 100

var _ = Describe("A late write of an earlier holder", func() {
	// In each round the stranger has held the lock before, and goes on writing with its token, as fast
	// as it can and without a condition, while the deployer acquires the lock and writes.
	round := func(ctx context.Context, object *corev1.ConfigMap, round int, guards []v1alpha1.Guard) {
		GinkgoHelper()
		former := acquireRaced(ctx, stranger, object.Namespace)
		Expect(stranger.Client.Delete(ctx, former)).To(Succeed())
		oldToken := tokenOf(former)
		begun, stop, stopped := make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			begin := sync.OnceFunc(func() { close(begun) })
			for attempt := 0; ; attempt++ {
				select {
				case <-stop:
					return
				default:
					// Refused once the deployer has written, or holds a lock that guards the object.
					if presentToken(ctx, stranger, object, oldToken, fmt.Sprintf("stranger %d, %d", round, attempt)) == nil {
						begin()
					}
				}
			}
		}()
		defer func() {
			close(stop)
			<-stopped
		}()
		Eventually(begun).WithTimeout(timeout).Should(BeClosed(), "the stranger writes")
		grant := acquireRaced(ctx, deployer, object.Namespace, guards...)
		if len(guards) > 0 {
			// The lock fences the object, so it is read: no cache has to catch up.
			Expect(presentToken(ctx, stranger, object, tokenOf(grant), "never")).To(beGuarded(), "a stranger with the new token")
		}
		// Twice: the second write must find nothing of the stranger in between.
		for attempt := range 2 {
			Expect(presentToken(ctx, deployer, object, tokenOf(grant), fmt.Sprintf("deployer %d, %d", round, attempt))).To(Succeed())
		}
		Expect(presentToken(ctx, stranger, object, oldToken, "never")).NotTo(Succeed())
		Expect(deployer.Client.Delete(ctx, grant)).To(Succeed())
	}
	race := func(ctx context.Context, guards ...v1alpha1.Guard) {
		GinkgoHelper()
		object := configMap(newNamespace(ctx, v1alpha1.GuardsEnabled), "raced")
		object.Annotations = fence("deploy:raced", "")
		Expect(root.Client.Create(ctx, object)).To(Succeed())
		history := watchTokens(ctx, object)
		for number := range raceRounds {
			round(ctx, object, number, guards)
		}
		Expect(presentToken(ctx, root, object, 999_999_999_999_999_999, "end")).To(Succeed())
		writes := history()
		for i := 1; i < len(writes); i++ {
			Expect(writes[i].token).To(BeNumerically(">=", writes[i-1].token), "%v came after %v", writes[i], writes[i-1])
		}
		by := func(who string) (count int) {
			for _, each := range writes {
				if strings.HasPrefix(each.by, who) {
					count++
				}
			}
			return count
		}
		Expect(by("deployer")).To(Equal(2 * raceRounds))
		Expect(by("stranger")).To(BeNumerically(">=", raceRounds))
		Expect(by("never")).To(BeZero())
		AddReportEntry(fmt.Sprintf("%d rounds, %d writes by the stranger", raceRounds, by("stranger")))
	}

	It("never follows a write with a newer token, where the lock guards the object", func(ctx context.Context) {
		race(ctx, v1alpha1.Guard{Resource: "configmaps", Name: "raced"})
	})

	It("never follows a write with a newer token, by the fence alone", func(ctx context.Context) { race(ctx) })
})

func acquireRaced(ctx context.Context, who fixture.Identity, namespace string, list ...v1alpha1.Guard) *v1alpha1.Lock {
	GinkgoHelper()
	lock := fixture.Manifest(namespace, "deploy:raced", guards(list...))
	Expect(who.Client.Create(ctx, lock)).To(Succeed())
	return lock
}

// presentToken changes the object's data with a token, whatever is stored.
func presentToken(ctx context.Context, who fixture.Identity, object *corev1.ConfigMap, token int64, by string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"%d"}},"data":{"by":%q}}`, v1alpha1.FencingTokenAnnotation, token, by)
	return who.Client.Patch(ctx, object.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
}

// written is one stored change of an object.
type written struct {
	token int64
	by    string
}

// watchTokens collects every version of the object from now on. The result returns them up to the
// one whose data says "end".
func watchTokens(ctx context.Context, object *corev1.ConfigMap) func() []written {
	GinkgoHelper()
	changes := fixture.Watch(ctx, root.Client, &corev1.ConfigMapList{}, client.InNamespace(object.Namespace),
		client.MatchingFields{"metadata.name": object.Name})
	collected := make(chan []written, 1)
	go func() {
		defer GinkgoRecover()
		var writes []written
		for change := range changes {
			version, ok := change.Object.(*corev1.ConfigMap)
			Expect(ok).To(BeTrue())
			token, _ := strconv.ParseInt(version.Annotations[v1alpha1.FencingTokenAnnotation], 10, 64) // None is 0.
			writes = append(writes, written{token, version.Data["by"]})
			if version.Data["by"] == "end" {
				collected <- writes
				return
			}
		}
	}()
	return func() []written {
		GinkgoHelper()
		var writes []written
		Eventually(collected).Should(Receive(&writes))
		return writes
	}
}
