package access_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/lock"
)

// roles allow what they name, as "verb resource" or "verb resource/name", and record the questions.
type roles struct {
	allowed map[string]bool
	failing error
	asked   []string
}

// Authenticate implements [access.Access].
func (*roles) Authenticate(*http.Request) (user.Info, error) {
	return &user.DefaultInfo{Name: "alice"}, nil
}

// Authorize implements [access.Access].
func (r *roles) Authorize(_ context.Context, _ user.Info, right authorizationv1.ResourceAttributes) error {
	asked := right.Verb + " " + right.Resource
	if right.Name != "" {
		asked += "/" + right.Name
	}
	r.asked = append(r.asked, asked)
	switch {
	case r.allowed[asked]:
		return nil
	case right.Name != "" && r.failing != nil:
		return r.failing
	}
	return fmt.Errorf("%w: %s", lock.ErrForbidden, asked)
}

func authorize(t *testing.T, granted *roles, ask func(*access.Control, *access.Caller) error) error {
	t.Helper()
	control, err := access.New(access.Options{Access: granted})
	if err != nil {
		t.Fatal(err)
	}
	return ask(control, &access.Caller{User: &user.DefaultInfo{Name: "alice"}, Namespace: "payments", IsAuthenticated: true})
}

func TestARightIsAskedForByNameOnlyWithoutTheRightToAllLocks(t *testing.T) {
	const all, report = "create locks", "create locks/billing--report"
	for name, test := range map[string]struct {
		allowed string
		single  func() v1alpha1.FullKey
		want    []string
		refused string
	}{
		"a right to all locks":         {allowed: all, single: key("billing:report"), want: []string{all}},
		"a right to this lock":         {allowed: report, single: key("billing:report"), want: []string{all, report}},
		"a right to another lock":      {allowed: report, single: key("billing:other"), want: []string{all, "create locks/billing--other"}, refused: all},
		"a call about several locks":   {allowed: report, want: []string{all}, refused: all},
		"a call that names no key":     {allowed: report, single: key(""), want: []string{all}, refused: all},
		"no right at all, a named key": {single: key("billing:report"), want: []string{all, report}, refused: all},
	} {
		t.Run(name, func(t *testing.T) {
			granted := &roles{allowed: map[string]bool{test.allowed: true}}
			err := authorize(t, granted, func(control *access.Control, caller *access.Caller) error {
				return control.Authorize(t.Context(), caller, access.VerbCreate, test.single)
			})
			if diff := cmp.Diff(test.want, granted.asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			if test.refused == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			forbidden, ok := errors.AsType[*access.ForbiddenError](err)
			if !ok || !errors.Is(err, lock.ErrForbidden) {
				t.Fatalf("got %v", err)
			}
			want := access.ForbiddenError{Verb: "create", Resource: "locks.forrst.dev", Namespace: "payments", Err: forbidden.Err}
			if *forbidden != want || forbidden.Error() != fmt.Sprintf("%v: %s", lock.ErrForbidden, test.refused) {
				t.Errorf("got %+v", *forbidden)
			}
		})
	}
}

func TestARightToOneLockThatIsNotKnownIsNoRefusal(t *testing.T) {
	granted := &roles{failing: errors.New("no answer")}
	err := authorize(t, granted, func(control *access.Control, caller *access.Caller) error {
		return control.Authorize(t.Context(), caller, access.VerbGet, key("billing:report"))
	})
	if !errors.Is(err, lock.ErrUnavailable) || !errors.Is(err, lock.ErrNothingDone) || errors.Is(err, lock.ErrForbidden) {
		t.Errorf("got %v", err)
	}
}

func key(bare string) func() v1alpha1.FullKey {
	return func() v1alpha1.FullKey { return v1alpha1.FullKeyOf(bare) }
}
