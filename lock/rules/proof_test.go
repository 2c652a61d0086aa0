package rules

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// A proof may be limited to one grant and to one version; what it is refused with tells which.
func TestLimitsOfAProof(t *testing.T) {
	now, acquisition := at(10).Time, strings.Repeat("a", tryAt)
	for name, test := range map[string]struct {
		proof  Proof
		change func(*v1alpha1.Lock)
		want   error
	}{
		"of the grant":                         {proof: Proof{FencingToken: 42}},
		"of an earlier grant":                  {proof: Proof{FencingToken: 41}, want: ErrNotHeld},
		"of a grant that is recorded":          {proof: Proof{FencingToken: 7}, change: func(l *v1alpha1.Lock) { l.Spec.FencingToken = new(int64(7)) }},
		"of a grant whose number is gone":      {proof: Proof{FencingToken: 7}, change: func(l *v1alpha1.Lock) { l.DeletionTimestamp = &metav1.Time{Time: noon} }},
		"of the acquisition":                   {proof: Proof{Acquisition: acquisition}},
		"of another acquisition":               {proof: Proof{Acquisition: "another"}, want: ErrNotHeld},
		"of an acquisition, and none is known": {proof: Proof{Acquisition: acquisition}, change: func(l *v1alpha1.Lock) { l.Annotations = nil }, want: ErrNotHeld},
		"of the version":                       {proof: Proof{ResourceVersion: "42"}},
		"of an earlier version":                {proof: Proof{ResourceVersion: "41"}, want: ErrStale},
		"of an earlier grant and version":      {proof: Proof{FencingToken: 41, ResourceVersion: "41"}, want: ErrNotHeld},
		"of an earlier version of an ended":    {proof: Proof{ResourceVersion: "41"}, change: func(l *v1alpha1.Lock) { l.Spec.ExpireTime = at(9) }, want: ErrExpired},
		"of another owner and version":         {proof: Proof{Owner: "other", ResourceVersion: "41"}, want: ErrOwnerMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			current := stored()
			current.ResourceVersion, current.Annotations = "42", map[string]string{v1alpha1.AcquisitionAnnotation: NthTry(acquisition, 2)}
			if test.change != nil {
				test.change(current)
			}
			if test.proof.Owner == "" {
				test.proof.Owner = current.Spec.Owner
			}
			if err := Release(current, test.proof, now); !errors.Is(err, test.want) || test.want == nil && err != nil {
				t.Errorf("release: %v, want %v", err, test.want)
			}
			if _, err := Renew(current, test.proof, time.Minute, now); !errors.Is(err, test.want) || test.want == nil && err != nil {
				t.Errorf("renew: %v, want %v", err, test.want)
			}
		})
	}
}

// A proof is limited to the grants of one acquisition, or to the one grant if that records no acquisition.
func TestLimitedTo(t *testing.T) {
	granted := stored()
	granted.ResourceVersion = "42"
	if got, want := (Proof{Owner: "job"}).LimitedTo(granted), (Proof{Owner: "job", FencingToken: 42}); got != want {
		t.Errorf("without an acquisition: %+v", got)
	}
	acquisition := strings.Repeat("a", tryAt)
	granted.Annotations = map[string]string{v1alpha1.AcquisitionAnnotation: NthTry(acquisition, 7)}
	if got, want := (Proof{Owner: "job"}).LimitedTo(granted), (Proof{Owner: "job", Acquisition: acquisition}); got != want {
		t.Errorf("of an acquisition: %+v", got)
	}
	if limited := (Proof{FencingToken: 41}); limited.LimitedTo(granted) != limited {
		t.Error("a proof for one grant is made one for another")
	}
}
