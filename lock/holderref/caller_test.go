package holderref_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/holderref"
)

func TestPodOf(t *testing.T) {
	const worker = "system:serviceaccount:payments:worker"
	extra := func(name, uid []string) map[string][]string {
		return map[string][]string{
			"authentication.kubernetes.io/pod-name":  name,
			"authentication.kubernetes.io/pod-uid":   uid,
			"authentication.kubernetes.io/node-name": {"node-1"},
		}
	}
	name, uid := []string{"worker-0"}, []string{"uid-0"}
	cases := map[string]struct {
		caller user.Info
		bound  bool
	}{
		"a token that is bound to a pod":           {caller: &user.DefaultInfo{Name: worker, Extra: extra(name, uid)}, bound: true},
		"a token that is bound to nothing":         {caller: &user.DefaultInfo{Name: worker}},
		"a name without a UID":                     {caller: &user.DefaultInfo{Name: worker, Extra: extra(name, nil)}},
		"a UID without a name":                     {caller: &user.DefaultInfo{Name: worker, Extra: extra(nil, uid)}},
		"two names":                                {caller: &user.DefaultInfo{Name: worker, Extra: extra([]string{"a", "b"}, uid)}},
		"an empty name":                            {caller: &user.DefaultInfo{Name: worker, Extra: extra([]string{""}, uid)}},
		"a user that is no service account":        {caller: &user.DefaultInfo{Name: "alice", Extra: extra(name, uid)}},
		"a name that looks like a service account": {caller: &user.DefaultInfo{Name: "system:serviceaccount:payments", Extra: extra(name, uid)}},
		"no caller":                                {},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			var wantNamespace string
			var want *v1alpha1.HolderReference
			if test.bound {
				wantNamespace, want = "payments", &v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod", Name: "worker-0", UID: "uid-0"}
			}
			namespace, got := holderref.PodOf(test.caller)
			if diff := cmp.Diff(want, got); diff != "" || namespace != wantNamespace {
				t.Errorf("namespace %q, (-want +got):\n%s", namespace, diff)
			}
		})
	}
}
