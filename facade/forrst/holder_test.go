package forrst_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// fakeHolders knows one object, and counts how often it is looked for.
type fakeHolders struct {
	known v1alpha1.HolderReference
	asked []string
	// err is that of every look for an object, unless it is nil.
	err error
}

func (h *fakeHolders) Check(_ context.Context, namespace string, holder rules.ValidReference) error {
	ref := holder.HolderReference()
	h.asked = append(h.asked, namespace+"/"+ref.Name)
	if h.err != nil {
		return h.err
	}
	if ref == h.known {
		return nil
	}
	return &lock.InvalidError{Problems: field.ErrorList{field.Invalid(field.NewPath("spec", "holderRef"), field.OmitValueType{}, "there is no such object")}}
}

var (
	callerPod = v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod", Name: "worker-0", UID: "pod-0"}
	otherPod  = v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod", Name: "worker-1", UID: "pod-1"}
)

const (
	callerPodJSON = `"holder_ref":{"api_version":"v1","kind":"Pod","name":"worker-0","uid":"pod-0"}`
	otherPodJSON  = `"holder_ref":{"api_version":"v1","kind":"Pod","name":"worker-1","uid":"pod-1"}`
)

func TestWhatALockEndsWith(t *testing.T) {
	acquire := func(members string) string {
		return envelopeWith(wire.Acquire, arguments(`"key":"k",`+ttl+members), "")
	}
	extension := func(members string) string { return envelopeWith(ping, "", locked(`{"key":"k",`+ttl+members+`}`)) }
	cases := map[string]struct {
		body         string
		podNamespace string
		want         *v1alpha1.HolderReference
		wantAsked    []string
	}{
		"the caller's Pod, without a request":              {body: acquire(""), podNamespace: namespace, want: &callerPod},
		"the caller's Pod that it names, too":              {body: acquire("," + callerPodJSON), podNamespace: namespace, want: &callerPod},
		"an object that the caller names":                  {body: acquire("," + otherPodJSON), podNamespace: namespace, want: &otherPod, wantAsked: []string{"default/worker-1"}},
		"not a Pod that lies elsewhere":                    {body: acquire(""), podNamespace: "elsewhere"},
		"the caller's Pod, if the lock outlives its call":  {body: extension(`,"auto_release":false`), podNamespace: namespace, want: &callerPod},
		"not the caller's Pod, if it ends with a function": {body: extension(""), podNamespace: namespace},
		"nothing, if the caller is no Pod":                 {body: acquire("")},
		"a namesake of a Pod that lies elsewhere is looked for": {body: acquire("," + otherPodJSON), podNamespace: "elsewhere",
			want: &otherPod, wantAsked: []string{"default/worker-1"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			known := &fakeHolders{known: otherPod}
			f := newFixtureWith(t, func(config *testfacade.Settings) {
				config.Holders = known
				config.Access = &fakeAccess{who: func(*http.Request) (user.Info, error) {
					if test.podNamespace == "" {
						return &user.DefaultInfo{Name: "alice"}, nil
					}
					return &user.DefaultInfo{Name: "system:serviceaccount:" + test.podNamespace + ":worker", Extra: map[string][]string{
						serviceaccount.PodNameKey: {callerPod.Name}, serviceaccount.PodUIDKey: {string(callerPod.UID)},
					}}, nil
				}}
			})
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, forrst.Path, strings.NewReader(test.body))
			request.Header.Set(wire.NamespaceHeader, namespace)
			got := f.serve(request)
			if got.status != http.StatusOK {
				t.Fatalf("status %d: %s", got.status, got.body)
			}
			requests := f.requests()
			if len(requests) != 1 {
				t.Fatalf("%d locks were tried", len(requests))
			}
			if diff := cmp.Diff(test.want, requests[0].HolderRef); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.wantAsked, known.asked); diff != "" {
				t.Errorf("looked for (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAHolderThatCannotBeLookedForIsAnOutage(t *testing.T) {
	f := newFixtureWith(t, func(config *testfacade.Settings) {
		config.Holders = &fakeHolders{err: errors.New("look for the holder: the connection was refused")}
	})
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, forrst.Path,
		strings.NewReader(envelopeWith(wire.Acquire, arguments(`"key":"k",`+ttl+","+otherPodJSON), "")))
	if got := f.serve(request); !strings.Contains(got.body, `"UNAVAILABLE"`) || len(f.requests()) > 0 {
		t.Errorf("status %d: %s", got.status, got.body)
	}
}

func TestHolderThatIsRefused(t *testing.T) {
	for members, want := range map[string]string{
		callerPodJSON:             "INVALID_ARGUMENTS /call/arguments/holder_ref",
		`"holder_ref":"worker-0"`: "INVALID_ARGUMENTS /call/arguments/holder_ref",
		`"holder_ref":{},"holder_ref":{},"release_delay":{"value":5}`: "INVALID_ARGUMENTS /call/arguments/holder_ref",
		`"holder_ref":null,"release_delay":{"value":5}`:               "INVALID_ARGUMENTS /call/arguments/release_delay",
		strings.Replace(otherPodJSON, "v1", "", 1):                    "INVALID_ARGUMENTS /call/arguments/holder_ref/api_version",
		strings.Replace(otherPodJSON, "v1", "a/b/c", 1):               "INVALID_ARGUMENTS /call/arguments/holder_ref/api_version",
	} {
		f := newFixtureWith(t, func(config *testfacade.Settings) { config.Holders = &fakeHolders{known: otherPod} })
		got := f.post(envelopeWith(wire.Acquire, arguments(`"key":"k",`+members), ""))
		f.wantProblems(got, 400, want)
		if len(f.left()) > 0 {
			t.Errorf("%s: a lock was taken", members)
		}
	}
	f := newFixture(t)
	f.wantProblems(f.post(envelopeWith(wire.Acquire, arguments(`"key":"k",`+otherPodJSON), "")), 400, "INVALID_ARGUMENTS /call/arguments/holder_ref")
}

func TestHolderIsShown(t *testing.T) {
	f := newFixtureWith(t, func(config *testfacade.Settings) { config.Holders = &fakeHolders{known: otherPod} })
	got := f.post(envelopeWith(wire.Acquire, arguments(`"key":"k",`+ttl+`,"release_delay":{"value":5},`+otherPodJSON), ""))
	for _, want := range []string{`"holder_ref":{"api_version":"v1","kind":"Pod","name":"worker-1","uid":"pod-1"}`, `"release_delay":{"value":5,"unit":"second"}`} {
		if !strings.Contains(got.body, want) {
			t.Errorf("%s is not in %s", want, got.body)
		}
	}
}
