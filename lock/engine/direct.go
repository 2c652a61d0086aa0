package engine

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/apianswers"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/lock/servertime"
)

// NewDirect returns an engine for a program that accesses the locks of one namespace with the
// identity of config. That identity needs the verbs get, list, watch, create, update and delete on
// locks there. Admission stamps it as the holder.
//
// An acquire in another namespace fails with [lock.ErrInvalid], unless this one is empty.
//
// [Engine.Start] runs the engine with its informer, which watches the locks that are waited for, or
// held for longer than a second, up to 64 of them, each by a watch of its own. An acquire waits up to
// [lock.OperationTimeout] for Start to be called, and then fails with [lock.ErrUnavailable]. So does one for a lock of which the API server has told nothing
// for that long: its wait is for a holder.
func NewDirect(config *rest.Config, namespace string, logger logr.Logger) (*Engine, error) {
	now := servertime.New(clock.RealClock{})
	config = rest.CopyConfig(config)
	config.Wrap(apianswers.RoundTripper)
	config.Wrap(now.RoundTripper)
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("lock engine: %w", err)
	}
	objects, err := NewObjectClient(config, httpClient)
	if err != nil {
		return nil, err
	}
	stream := NewWatchStream(now, logger)
	informer := objects.KeyInformer(namespace, stream)
	engine, err := New(Options{
		Objects:            objects.Locks,
		Informer:           informer,
		Stream:             stream,
		IsAdmitted:         true,
		Limits:             rules.DefaultLimits(),
		ClockSkewAllowance: DefaultClockSkewAllowance,
		Clock:              now,
		Logger:             logger,
	})
	if err != nil {
		return nil, err
	}
	engine.runInformer = informer.Run
	engine.watchedNamespace = namespace
	engine.queues.maxUnanswered = engine.timeout
	return engine, nil
}

// errNotStarted means that Start was not called in time.
var errNotStarted = fmt.Errorf("the engine was not started: call Start, in a goroutine of its own: %w", lock.ErrUnavailable)

// awaitStart waits until an engine that runs its own informer was started, which programs do in a
// goroutine. Other engines do not wait: the operator starts them together with their callers.
func (e *Engine) awaitStart(ctx context.Context) error {
	if e.runInformer == nil {
		return nil
	}
	select {
	case <-e.started:
		return nil
	default:
	}
	overdue := e.clock.NewTimer(e.timeout)
	defer overdue.Stop()
	select {
	case <-e.started:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-overdue.C():
		return errNotStarted
	}
}

// checkNamespace refuses a namespace whose locks the engine does not watch: a caller that waits for one would not
// learn of its release.
func (e *Engine) checkNamespace(namespace string) error {
	if e.watchedNamespace == "" || namespace == e.watchedNamespace {
		return nil
	}
	return &lock.InvalidError{Problems: field.ErrorList{
		field.Invalid(field.NewPath("metadata", "namespace"), namespace, fmt.Sprintf("the engine was made for the namespace %s", e.watchedNamespace)),
	}}
}

// stampedLater is the placeholder for a holder that admission will stamp.
const stampedLater = "stamped-on-admission"

// clearStamps strips the stamps from the object to write, if the engine's writes are admitted:
// admission sets them, and an annotation says what an update asks for.
func (e *Engine) clearStamps(desired *v1alpha1.Lock, request string) {
	if !e.isAdmitted {
		return
	}
	if request != v1alpha1.RequestRenewal {
		desired.Spec.Holder, desired.Spec.HolderUID = "", ""
		desired.Spec.AcquireTime, desired.Spec.FencingToken = nil, nil
		// A new one, whatever the request says: it tells this write from all others.
		metav1.SetMetaDataAnnotation(&desired.ObjectMeta, v1alpha1.AcquisitionAnnotation, string(uuid.NewUUID()))
	} else {
		desired.Spec.FencingToken = nil
	}
	desired.Spec.RenewTime, desired.Spec.ExpireTime = nil, nil
	if request != "" {
		metav1.SetMetaDataAnnotation(&desired.ObjectMeta, v1alpha1.RequestAnnotation, request)
	}
}

// sentGrant returns the grant that the write of desired will make. If admission stamps it, it
// expires at the latest a ttl after the write can still happen.
func (e *Engine) sentGrant(desired *v1alpha1.Lock) grant {
	sent := grantOf(desired)
	if e.isAdmitted && desired.Spec.TTL != nil {
		sent.lock.Spec.ExpireTime = new(v1alpha1.NewTimestamp(e.clock.Now().Add(lateWriteWindow + desired.Spec.TTL.Duration)))
	}
	return sent
}
