package rules

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
)

func TestAdmitUpdateOnRequest(t *testing.T) {
	request := func(value string) func(*v1alpha1.Lock) {
		return func(l *v1alpha1.Lock) {
			metav1.SetMetaDataAnnotation(&l.ObjectMeta, v1alpha1.RequestAnnotation, value)
		}
	}
	owner := func(l *v1alpha1.Lock) { l.Spec.Owner = "token-b" }
	cases := map[string]struct {
		changes []func(*v1alpha1.Lock)
		user    string
		after   time.Duration
		want    error
	}{
		"the holder renews":                      {changes: []func(*v1alpha1.Lock){request("renew")}, user: "alice"},
		"the holder renews for another ttl":      {changes: []func(*v1alpha1.Lock){request("renew"), func(l *v1alpha1.Lock) { l.Spec.TTL = &v1alpha1.Duration{Duration: time.Minute} }}, user: "alice"},
		"another user renews":                    {changes: []func(*v1alpha1.Lock){request("renew")}, user: "bob", want: ErrHeld},
		"another owner renews":                   {changes: []func(*v1alpha1.Lock){request("renew"), owner}, user: "alice", want: ErrHeld},
		"a renewal of an expired lock":           {changes: []func(*v1alpha1.Lock){request("renew")}, user: "alice", after: 30 * time.Second, want: ErrExpired},
		"a renewal beyond the maximum":           {changes: []func(*v1alpha1.Lock){request("renew"), func(l *v1alpha1.Lock) { l.Spec.TTL = &v1alpha1.Duration{Duration: 25 * time.Hour} }}, user: "alice", want: ErrInvalid},
		"a renewal until an absolute time":       {changes: []func(*v1alpha1.Lock){request("renew"), func(l *v1alpha1.Lock) { l.Spec.ExpireTime = at(300) }}, user: "alice", want: ErrInvalid},
		"the holder hands off":                   {changes: []func(*v1alpha1.Lock){request("hand-off"), owner}, user: "alice"},
		"another user hands off":                 {changes: []func(*v1alpha1.Lock){request("hand-off"), owner}, user: "bob", want: ErrHeld},
		"a hand-off to the same owner":           {changes: []func(*v1alpha1.Lock){request("hand-off")}, user: "alice", want: ErrInvalid},
		"a hand-off of an expired lock":          {changes: []func(*v1alpha1.Lock){request("hand-off"), owner}, user: "alice", after: time.Minute, want: ErrExpired},
		"a request for something else":           {changes: []func(*v1alpha1.Lock){request("steal")}, user: "alice", want: ErrInvalid},
		"an empty request":                       {changes: []func(*v1alpha1.Lock){request("")}, user: "alice", want: ErrInvalid},
		"a request with a stamp of one's own":    {changes: []func(*v1alpha1.Lock){request("renew"), func(l *v1alpha1.Lock) { l.Spec.RenewTime = at(100) }}, user: "alice", want: ErrInvalid},
		"a request that lies about the revision": {changes: []func(*v1alpha1.Lock){request("renew"), func(l *v1alpha1.Lock) { l.ResourceVersion = "6" }}, user: "alice", want: ErrStale},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			old, _, err := AdmitCreate(manifest(), User{Name: "alice"}, DefaultLimits(), noon)
			if err != nil {
				t.Fatal(err)
			}
			old.UID, old.ResourceVersion = "uid", "7"
			old.Spec.Reason = "monthly close"
			updated := old.DeepCopy()
			for _, change := range test.changes {
				change(updated)
			}
			now := noon.Add(max(test.after, 10*time.Second))
			got, _, err := AdmitUpdate(Change{Old: old, Updated: updated, User: User{Name: test.user}}, DefaultLimits(), now, 0)
			if test.want != nil {
				if !errors.Is(err, test.want) {
					t.Errorf("got %v, want %v", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := got.Annotations[v1alpha1.RequestAnnotation]; ok {
				t.Error("the request would be stored")
			}
			if want := now.Add(updated.Spec.TTL.Duration); !got.Spec.ExpireTime.Time.Equal(want) {
				t.Errorf("expires at %v, want %v", got.Spec.ExpireTime, want)
			}
			isGrant := updated.Spec.Owner != old.Spec.Owner
			if isRenewed := got.Spec.FencingToken != nil && *got.Spec.FencingToken == 7; isGrant == isRenewed {
				t.Errorf("fencing token %v after a change of owner: %v", got.Spec.FencingToken, isGrant)
			}
			if isGrant && (got.Spec.AcquireTime.Equal(old.Spec.AcquireTime) || got.Spec.Reason != "") {
				t.Errorf("the next owner got acquireTime %v and reason %q of the former", got.Spec.AcquireTime, got.Spec.Reason)
			}
		})
	}
}

func TestAdmitCreateRefusesARequest(t *testing.T) {
	lock := manifest()
	metav1.SetMetaDataAnnotation(&lock.ObjectMeta, v1alpha1.RequestAnnotation, v1alpha1.RequestRenewal)
	if _, _, err := AdmitCreate(lock, User{Name: "alice"}, DefaultLimits(), noon); !errors.Is(err, ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
}

// The id is how a client finds its own grant, so no other user may change it.
func TestAdmitUpdateOfTheAcquisition(t *testing.T) {
	acquisition := func(l *v1alpha1.Lock, id string) {
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, v1alpha1.AcquisitionAnnotation, id)
	}
	renew := func(l *v1alpha1.Lock) {
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, v1alpha1.RequestAnnotation, v1alpha1.RequestRenewal)
	}
	cases := map[string]struct {
		change    func(*v1alpha1.Lock)
		user      string
		after     time.Duration
		want      error
		wantGrant bool
	}{
		"a new one by another user":                {change: func(l *v1alpha1.Lock) { acquisition(l, "2") }, user: "bob", want: ErrHeld},
		"none by another user":                     {change: func(l *v1alpha1.Lock) { l.Annotations = nil }, user: "bob", want: ErrHeld},
		"a new one by the holder":                  {change: func(l *v1alpha1.Lock) { acquisition(l, "2") }, user: "alice", want: ErrHeld},
		"a label by another user":                  {change: func(l *v1alpha1.Lock) { l.Labels = map[string]string{"a": "b"} }, user: "bob"},
		"a renewal":                                {change: renew, user: "alice"},
		"a new one after the expiry":               {change: func(l *v1alpha1.Lock) { acquisition(l, "2") }, user: "alice", after: time.Minute, wantGrant: true},
		"a new one after the expiry, another user": {change: func(l *v1alpha1.Lock) { acquisition(l, "2") }, user: "bob", after: time.Minute, want: ErrInvalid},
		"a label after the expiry":                 {change: func(l *v1alpha1.Lock) { l.Labels = map[string]string{"a": "b"} }, user: "alice", after: time.Minute},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			submitted := manifest()
			acquisition(submitted, "1")
			old, _, err := AdmitCreate(submitted, User{Name: "alice"}, DefaultLimits(), noon)
			if err != nil {
				t.Fatal(err)
			}
			old.UID, old.ResourceVersion = "uid", "7"
			updated := old.DeepCopy()
			test.change(updated)
			got, _, err := AdmitUpdate(Change{Old: old, Updated: updated, User: User{Name: test.user}}, DefaultLimits(), noon.Add(max(test.after, time.Second)), 0)
			if !errors.Is(err, test.want) {
				t.Fatalf("got %v, want %v", err, test.want)
			}
			if err == nil && !got.Spec.AcquireTime.Equal(old.Spec.AcquireTime) != test.wantGrant {
				t.Errorf("acquired at %v, before at %v", got.Spec.AcquireTime, old.Spec.AcquireTime)
			}
		})
	}
}
