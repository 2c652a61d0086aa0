package lock_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
)

// options has each option of the package.
var options = map[string]lock.Option{
	"WithScope":          lock.WithScope(v1alpha1.ScopeGlobal),
	"WithFunction":       lock.WithFunction("billing"),
	"WithTTL":            lock.WithTTL(time.Minute),
	"WithWait":           lock.WithWait(0),
	"WithOwner":          lock.WithOwner("owner"),
	"WithReason":         lock.WithReason("Reports"),
	"WithHolderRef":      lock.WithHolderRef(nil),
	"WithReleaseDelay":   lock.WithReleaseDelay(0),
	"WithoutRenewal":     lock.WithoutRenewal(),
	"WithRetry":          lock.WithRetry(lock.RetryPolicy{}),
	"WithReleaseTimeout": lock.WithReleaseTimeout(time.Second),
	"WithRaw":            lock.WithRaw(),
	"WithKeys":           lock.WithKeys(),
	"WithClock":          lock.WithClock(nil),
	"WithPriority":       lock.WithPriority(1),
	"WithFencingToken":   lock.WithFencingToken(0),
	"WithOrderCheck":     lock.WithOrderCheck(),
	"WithoutHoldAndWait": lock.WithoutHoldAndWait(),
}

// method is a method of a client, for a lock that is held in the proof.
type method struct {
	call func(ctx context.Context, client *lock.Client, held lock.Proof, options ...lock.Option) error
	// concerned are the options that concern it.
	concerned []string
}

var (
	ofKey      = []string{"WithFunction", "WithScope"}
	ofResume   = slices.Concat(ofKey, []string{"WithTTL", "WithoutRenewal", "WithReleaseTimeout", "WithClock"})
	ofAcquire  = slices.Concat(ofResume, []string{"WithWait", "WithOwner", "WithReason", "WithHolderRef", "WithReleaseDelay", "WithRetry", "WithPriority", "WithOrderCheck"})
	ofTogether = append(slices.DeleteFunc(slices.Clone(ofAcquire), func(name string) bool { return name == "WithRetry" }), "WithoutHoldAndWait")
)

var methods = map[string]method{
	"Acquire": {concerned: ofAcquire, call: func(ctx context.Context, client *lock.Client, _ lock.Proof, options ...lock.Option) error {
		return released(ctx)(client.Acquire(ctx, "free", options...))
	}},
	"TryAcquire": {concerned: ofAcquire, call: func(ctx context.Context, client *lock.Client, _ lock.Proof, options ...lock.Option) error {
		return released(ctx)(client.TryAcquire(ctx, "free", options...))
	}},
	"AcquireAll": {concerned: ofTogether, call: func(ctx context.Context, client *lock.Client, _ lock.Proof, options ...lock.Option) error {
		held, err := client.AcquireAll(ctx, []string{"free", "too"}, options...)
		if err != nil {
			return err
		}
		return held.Release(ctx)
	}},
	"DoAll": {concerned: ofTogether, call: func(ctx context.Context, client *lock.Client, _ lock.Proof, options ...lock.Option) error {
		return client.DoAll(ctx, []string{"free"}, func(context.Context, *lock.HeldAll) error { return nil }, options...)
	}},
	"Do": {concerned: ofAcquire, call: func(ctx context.Context, client *lock.Client, _ lock.Proof, options ...lock.Option) error {
		return client.Do(ctx, "free", func(context.Context, *lock.Held) error { return nil }, options...)
	}},
	"Resume": {concerned: ofResume, call: func(ctx context.Context, client *lock.Client, held lock.Proof, options ...lock.Option) error {
		return released(ctx)(client.Resume(ctx, "billing:report", held, options...))
	}},
	"Release": {
		concerned: append(slices.Clone(ofKey), "WithReleaseTimeout"),
		call: func(ctx context.Context, client *lock.Client, held lock.Proof, options ...lock.Option) error {
			return client.Release(ctx, "billing:report", held, options...)
		},
	},
	"Get": {
		concerned: append(slices.Clone(ofKey), "WithKeys", "WithRaw"),
		call: func(ctx context.Context, client *lock.Client, _ lock.Proof, options ...lock.Option) error {
			_, err := client.Get(ctx, "billing:report", options...)
			return err
		},
	},
	"List": {
		concerned: []string{"WithOwner", "WithKeys", "WithRaw"},
		call: func(ctx context.Context, client *lock.Client, _ lock.Proof, options ...lock.Option) error {
			_, err := client.List(ctx, options...)
			return err
		},
	},
	"Owns": {concerned: ofKey, call: func(ctx context.Context, client *lock.Client, held lock.Proof, options ...lock.Option) error {
		_, err := client.Owns(ctx, "billing:report", held.Owner, options...)
		return err
	}},
	"ForceRelease": {concerned: append(slices.Clone(ofKey), "WithFencingToken"), call: func(ctx context.Context, client *lock.Client, _ lock.Proof, options ...lock.Option) error {
		return client.ForceRelease(ctx, "billing:report", "test", options...)
	}},
}

func released(ctx context.Context) func(*lock.Held, error) error {
	return func(held *lock.Held, err error) error {
		if err != nil {
			return err
		}
		return held.Release(ctx)
	}
}

func TestAnOptionThatDoesNotConcernTheMethodIsRefused(t *testing.T) {
	for name, method := range methods {
		for option, with := range options {
			t.Run(name+" "+option, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					service := newBackend()
					client := lock.NewClient(service, "default")
					proof := detached(t, client)
					requests(service)
					err := method.call(t.Context(), client, proof, with)
					if slices.Contains(method.concerned, option) {
						// With WithFunction, billing:report is another lock.
						if err != nil && (option != "WithFunction" || !errors.Is(err, lock.ErrNotHeld)) {
							t.Errorf("refused: %v", err)
						}
						return
					}
					if want := option + " does not concern " + name; !errors.Is(err, lock.ErrInvalid) || !strings.Contains(fmt.Sprint(err), want) {
						t.Errorf("got %v, want ErrInvalid: %s", err, want)
					}
					if made := requests(service); len(made) > 0 {
						t.Errorf("requests %v, want none", made)
					}
				})
			})
		}
	}
}

func TestAllOptionsThatDoNotConcernTheMethodAreNamed(t *testing.T) {
	client := lock.NewClient(newBackend(), "default")
	_, err := client.Get(t.Context(), "billing:report", lock.WithTTL(time.Minute), lock.WithKeys(), lock.WithReason("Reports"))
	invalid, ok := errors.AsType[*lock.InvalidError](err)
	if !ok || len(invalid.Problems) != 2 {
		t.Errorf("got %v, want an InvalidError that names two options", err)
	}
}

func TestDefaultsOfTheClientMayConcernOtherMethods(t *testing.T) {
	var all []lock.Option
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(options))) {
		all = append(all, options[name]) // WithScope before WithFunction, which implies another scope.
	}
	for name, method := range methods {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				service := newBackend()
				for _, client := range []*lock.Client{lock.NewClient(service, "default", all...), lock.NewClient(service, "default").With(all...)} {
					proof := detached(t, client)
					if err := method.call(t.Context(), client, proof); err != nil {
						t.Error(err)
					}
					_ = client.Release(t.Context(), "billing:report", proof) // Most have left it.
				}
			})
		})
	}
}

func TestWithChangesTheDefaultsOfTheNewClientOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := newBackend()
		client := lock.NewClient(service, "default", lock.WithReason("first"), lock.WithTTL(time.Minute))
		changed := client.With(lock.WithReason("second"))
		mustRelease(t, mustHold(t, changed))
		mustRelease(t, mustHold(t, client))
		sent := acquisitions(service)
		if len(sent) != 2 || sent[0].Reason != "second" || sent[0].TTL != time.Minute || sent[1].Reason != "first" {
			t.Errorf("requests %+v", sent)
		}
	})
}

// detached returns the proof of billing:report, which is held by nothing in this process.
func detached(t *testing.T, client *lock.Client) lock.Proof {
	t.Helper()
	held := mustHold(t, client)
	if err := held.Detach(); err != nil {
		t.Fatal(err)
	}
	return lock.Proof{Owner: held.Owner(), FencingToken: held.FencingToken()}
}
