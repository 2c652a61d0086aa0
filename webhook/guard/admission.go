package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/refusal"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
	"forrst.dev/lock-operator/tracing"
	"forrst.dev/lock-operator/webhook/sender"
	"forrst.dev/lock-operator/webhook/traced"
)

const (
	// Path is where the webhook server serves [Admission].
	Path = "/guard"
	// WebhookName is the name of its webhook in config/guards/webhook.yaml, which overlays keep.
	WebhookName = "guard.forrst.dev"
)

// readTimeout is below the API server's timeout for the webhook: the user must get the reason of a
// refusal rather than a timeout.
const readTimeout = 3 * time.Second

// Admission admits the creation, change and deletion of objects that locks may guard. All fields but
// Audit and Tracer are required. Safe for concurrent use.
type Admission struct {
	// Locks lists locks from a cache with the index of [AddIndex].
	Locks client.Reader
	// LiveReader reads from the API server: locks, the Pods of holders, and the metadata of objects
	// whose scale is changed.
	LiveReader client.Reader
	// Mapper knows the kinds of the cluster.
	Mapper apimeta.RESTMapper
	// Clock says which locks have expired.
	Clock clock.PassiveClock
	// ClockSkewAllowance is how long after its expireTime a lock still guards: the clock that stamped it may have been behind.
	// Zero is for clocks that agree.
	ClockSkewAllowance *time.Duration
	// OperatorUser is the user name of the operator, which starts and suspends the Jobs that run under
	// locks: guards do not concern it. Other exempt users do not get here: the match conditions of
	// config/guards/webhook.yaml list them, so that none of them waits for a webhook that is away.
	OperatorUser string
	// Audit takes a record of each admitted and each refused change of a guarded object. Nil means no
	// records.
	Audit audit.Sink
	// Tracer makes the spans of reviews. Nil makes none.
	Tracer *tracing.Tracer
}

// SetupWithManager registers the admission with the manager's webhook server.
func (a *Admission) SetupWithManager(manager ctrl.Manager) error {
	if a.ClockSkewAllowance == nil {
		return errors.New("guards: ClockSkewAllowance is required")
	}
	limited := *a
	limited.LiveReader = sender.LimitReader(a.LiveReader)
	manager.GetWebhookServer().Register(Path, traced.Webhook(a.Tracer, &limited))
	return nil
}

// Handle implements [admission.Handler].
func (a *Admission) Handle(ctx context.Context, request admission.Request) admission.Response {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	verdict := a.judge(ctx, request)
	a.record(request, &verdict)
	if verdict.err != nil {
		return refuse(ctx, request, &verdict)
	}
	return admission.Allowed("")
}

// verdict is the outcome of one request.
type verdict struct {
	target rules.Target
	// held are the locks under which the user writes the object.
	held []*v1alpha1.Lock
	// refusing is the lock because of which the request was refused: of one that could not be read, only
	// namespace and name. Nil if no lock is known.
	refusing *v1alpha1.Lock
	// err is a [*rules.GuardedError], or says why the request could not be judged.
	err error
}

func (a *Admission) judge(ctx context.Context, request admission.Request) (v verdict) {
	v.target = rules.Target{Resource: resourceOf(request), Name: request.Name}
	if request.UserInfo.Username == a.OperatorUser {
		return v
	}
	locks, err := a.guarding(ctx, request.Namespace, v.target.Resource)
	if err != nil {
		v.err = err
		return v
	}
	if len(locks) == 0 && !mayBeFenced(request) {
		return v
	}
	target, fences, err := targetOf(request)
	if err == nil {
		err = a.readLabels(ctx, request, &target, locks)
	}
	if v.target, v.err = target, err; err != nil {
		return v
	}
	var unsure []string
	v.held, unsure = a.byCache(userOf(request), target, fences, locks)
	for _, name := range unsure {
		a.judgeLock(ctx, request, name, &v)
		if v.err != nil {
			return v
		}
	}
	return v
}

// byCache returns the locks under which the user writes the object by the cache alone, and the names of
// those that have to be read: which by the cache guard the object against the user, or have expired, and
// by which the object is fenced, whatever the cache says. A write of a former holder that the cache lets
// pass meets the fence.
func (a *Admission) byCache(user rules.User, target rules.Target, fences []string, locks []v1alpha1.Lock) (held []*v1alpha1.Lock, unsure []string) {
	for _, key := range fences {
		unsure = append(unsure, v1alpha1.FullKeyOf(key).ObjectName())
	}
	for index := range locks {
		lock := &locks[index]
		switch {
		case !rules.IsGuarded(lock, target), slices.Contains(unsure, lock.Name):
		case user.Holds(lock) && rules.UntilReclaimable(lock, a.Clock.Now(), servertime.MaxAhead(a.Clock)) > 0:
			held = append(held, lock)
		default:
			unsure = append(unsure, lock.Name)
		}
	}
	return held, unsure
}

func userOf(request admission.Request) rules.User {
	return rules.User{Name: request.UserInfo.Username, UID: request.UserInfo.UID}
}

// judgeLock reads the lock. If it guards the object, it adds it to the verdict.
func (a *Admission) judgeLock(ctx context.Context, request admission.Request, name string, v *verdict) {
	var lock v1alpha1.Lock
	err := a.LiveReader.Get(ctx, client.ObjectKey{Namespace: request.Namespace, Name: name}, &lock)
	switch {
	case refusal.IsNotFound(err):
		return
	case err != nil:
		v.refusing = &v1alpha1.Lock{ObjectMeta: metav1.ObjectMeta{Namespace: request.Namespace, Name: name}}
		v.err = fmt.Errorf("read the lock %q, which may guard the object: %w", name, err)
		return
	case !rules.IsGuarded(&lock, v.target), a.hasExpired(&lock):
		return
	}
	isHolder, err := a.isHolder(ctx, request, &lock)
	switch {
	case err != nil:
		v.refusing, v.err = &lock, err
	case isHolder:
		v.held = append(v.held, &lock)
	default:
		v.refusing, v.err = &lock, &rules.GuardedError{Lock: &lock}
	}
}

// hasExpired reports whether the lock guards nothing any more, from when on others may take it over. A clock that may be ahead
// counts as ahead: the holder relies on its lock until expireTime.
func (a *Admission) hasExpired(lock *v1alpha1.Lock) bool {
	return rules.Reclaim(lock, a.Clock.Now(), *a.ClockSkewAllowance+servertime.MaxAhead(a.Clock)) == nil
}

// isHolder reports whether the user is the holder of the lock, or the service account of the Pod on
// whose behalf it is held.
func (a *Admission) isHolder(ctx context.Context, request admission.Request, lock *v1alpha1.Lock) (bool, error) {
	user, ref := request.UserInfo.Username, lock.Spec.HolderRef
	switch {
	case userOf(request).Holds(lock):
		return true, nil
	case !rules.IsPod(ref), !strings.HasPrefix(user, serviceaccount.ServiceAccountUsernamePrefix+lock.Namespace+":"):
		return false, nil
	}
	var pod corev1.Pod
	err := a.LiveReader.Get(ctx, client.ObjectKey{Namespace: lock.Namespace, Name: ref.Name}, &pod)
	switch {
	case refusal.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read the Pod for which the lock %q is held: %w", lock.Name, err)
	}
	return pod.UID == ref.UID && serviceaccount.MatchesUsername(lock.Namespace, pod.Spec.ServiceAccountName, user), nil
}
