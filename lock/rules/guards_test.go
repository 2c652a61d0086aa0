package rules

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"forrst.dev/lock-operator/api/v1alpha1"
)

var (
	webByName = v1alpha1.Guard{Group: "apps", Resource: "deployments", Name: "web"}
	webMaps   = v1alpha1.Guard{Resource: "configmaps", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}
)

func guarding(guards ...v1alpha1.Guard) func(*v1alpha1.Lock) {
	return func(lock *v1alpha1.Lock) { lock.Spec.Guards = guards }
}

func TestIsGuarded(t *testing.T) {
	web, api := labels.Set{"app": "web"}, labels.Set{"app": "api"}
	deployments := schema.GroupResource{Group: "apps", Resource: "deployments"}
	configMaps := schema.GroupResource{Resource: "configmaps"}
	everything := v1alpha1.Guard{Resource: "configmaps", Selector: &metav1.LabelSelector{}}
	unlabelled := v1alpha1.Guard{Resource: "configmaps", Selector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpDoesNotExist}}}}
	unreadable := v1alpha1.Guard{Resource: "configmaps", Selector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}}}
	for name, test := range map[string]struct {
		guards []v1alpha1.Guard
		target Target
		want   bool
	}{
		"by its name":                                {[]v1alpha1.Guard{webByName}, Target{Resource: deployments, Name: "web"}, true},
		"another name":                               {[]v1alpha1.Guard{webByName}, Target{Resource: deployments, Name: "web2"}, false},
		"another resource of that name":              {[]v1alpha1.Guard{webByName}, Target{Resource: configMaps, Name: "web"}, false},
		"the resource of another group":              {[]v1alpha1.Guard{webByName}, Target{Resource: schema.GroupResource{Group: "extensions", Resource: "deployments"}, Name: "web"}, false},
		"the second of two guards":                   {[]v1alpha1.Guard{webMaps, webByName}, Target{Resource: deployments, Name: "web"}, true},
		"by its labels":                              {[]v1alpha1.Guard{webMaps}, Target{Resource: configMaps, Name: "a", Labels: []labels.Set{web}}, true},
		"other labels":                               {[]v1alpha1.Guard{webMaps}, Target{Resource: configMaps, Name: "a", Labels: []labels.Set{api}}, false},
		"no labels":                                  {[]v1alpha1.Guard{webMaps}, Target{Resource: configMaps, Name: "a", Labels: []labels.Set{nil}}, false},
		"labels that the change takes away":          {[]v1alpha1.Guard{webMaps}, Target{Resource: configMaps, Name: "a", Labels: []labels.Set{web, nil}}, true},
		"labels that the change sets":                {[]v1alpha1.Guard{webMaps}, Target{Resource: configMaps, Name: "a", Labels: []labels.Set{api, web}}, true},
		"by an empty selector":                       {[]v1alpha1.Guard{everything}, Target{Resource: configMaps, Name: "a", Labels: []labels.Set{nil}}, true},
		"by the absence of a label":                  {[]v1alpha1.Guard{unlabelled}, Target{Resource: configMaps, Name: "a", Labels: []labels.Set{nil}}, true},
		"by a selector that cannot be read":          {[]v1alpha1.Guard{unreadable}, Target{Resource: configMaps, Name: "a", Labels: []labels.Set{web}}, false},
		"by a guard without a name and selector":     {[]v1alpha1.Guard{{Resource: "configmaps"}}, Target{Resource: configMaps, Labels: []labels.Set{nil}}, false},
		"a lock without guards":                      {nil, Target{Resource: configMaps, Name: "a", Labels: []labels.Set{web}}, false},
		"a selector and an object that is not there": {[]v1alpha1.Guard{everything}, Target{Resource: configMaps, Name: "a"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := IsGuarded(manifest(guarding(test.guards...)), test.target); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestGuardsThatAreInvalid(t *testing.T) {
	many := map[string]string{}
	for i := range 17 {
		many[fmt.Sprintf("label-%d", i)] = "x"
	}
	for name, test := range map[string]struct {
		guard v1alpha1.Guard
		want  string
	}{
		"locks":                       {v1alpha1.Guard{Group: "forrst.dev", Resource: "locks", Name: "a"}, "locks.forrst.dev cannot be guarded"},
		"leases":                      {v1alpha1.Guard{Group: "coordination.k8s.io", Resource: "leases", Name: "a"}, "leases.coordination.k8s.io cannot be guarded"},
		"events":                      {v1alpha1.Guard{Resource: "events", Selector: &metav1.LabelSelector{}}, "events cannot be guarded"},
		"events of the newer API":     {v1alpha1.Guard{Group: "events.k8s.io", Resource: "events", Name: "a"}, "events.events.k8s.io cannot be guarded"},
		"neither name nor selector":   {v1alpha1.Guard{Resource: "configmaps"}, "exactly one of name and selector"},
		"both name and selector":      {v1alpha1.Guard{Resource: "configmaps", Name: "a", Selector: &metav1.LabelSelector{}}, "exactly one of name and selector"},
		"a label that is none":        {v1alpha1.Guard{Resource: "configmaps", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}}, "spec.guards[0].selector.matchLabels"},
		"an operator that is none":    {v1alpha1.Guard{Resource: "configmaps", Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}}, "spec.guards[0].selector.matchExpressions[0].operator"},
		"a selector with many labels": {v1alpha1.Guard{Resource: "configmaps", Selector: &metav1.LabelSelector{MatchLabels: many}}, "must have at most 16 items"},
		"an expression of many values": {v1alpha1.Guard{Resource: "configmaps", Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: strings.Split(strings.Repeat("a,", 16)+"a", ",")}}}}, "must have at most 16 items"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := AdmitCreate(manifest(guarding(test.guard)), User{Name: "alice"}, DefaultLimits(), noon)
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// The right to guard is checked when a grant begins, and only then.
func TestGuardsOfAGrant(t *testing.T) {
	request := func(value string) func(*v1alpha1.Lock) {
		return func(l *v1alpha1.Lock) {
			metav1.SetMetaDataAnnotation(&l.ObjectMeta, v1alpha1.RequestAnnotation, value)
		}
	}
	owner := func(l *v1alpha1.Lock) { l.Spec.Owner = "token-b" }
	ttl := func(l *v1alpha1.Lock) { l.Spec.TTL = &v1alpha1.Duration{Duration: time.Minute} }
	for name, test := range map[string]struct {
		user    string
		changes []func(*v1alpha1.Lock)
		after   time.Duration
		refused bool
		// wantChecked are the guards of which the right is checked.
		wantChecked []v1alpha1.Guard
	}{
		"stay when the holder renews":               {user: "alice", changes: []func(*v1alpha1.Lock){ttl}},
		"stay when the holder asks for a renewal":   {user: "alice", changes: []func(*v1alpha1.Lock){request("renew")}},
		"are not widened by the holder":             {user: "alice", changes: []func(*v1alpha1.Lock){guarding(webByName, webMaps)}, refused: true},
		"are not narrowed by the holder":            {user: "alice", changes: []func(*v1alpha1.Lock){guarding()}, refused: true},
		"are not widened by a renewal":              {user: "alice", changes: []func(*v1alpha1.Lock){ttl, guarding(webByName, webMaps)}, refused: true},
		"are not widened by a requested renewal":    {user: "alice", changes: []func(*v1alpha1.Lock){request("renew"), guarding(webByName, webMaps)}, refused: true},
		"may change with a hand-off":                {user: "alice", changes: []func(*v1alpha1.Lock){request("hand-off"), owner, guarding(webMaps)}, wantChecked: []v1alpha1.Guard{webMaps}},
		"are checked again with a hand-off":         {user: "alice", changes: []func(*v1alpha1.Lock){request("hand-off"), owner}, wantChecked: []v1alpha1.Guard{webByName}},
		"pass to the next holder, who is checked":   {user: "bob", changes: []func(*v1alpha1.Lock){owner}, after: time.Hour, wantChecked: []v1alpha1.Guard{webByName}},
		"may be left out by the next holder":        {user: "bob", changes: []func(*v1alpha1.Lock){owner, guarding()}, after: time.Hour},
		"may be others with the next holder":        {user: "bob", changes: []func(*v1alpha1.Lock){owner, guarding(webMaps)}, after: time.Hour, wantChecked: []v1alpha1.Guard{webMaps}},
		"are not changed by another user meanwhile": {user: "bob", changes: []func(*v1alpha1.Lock){guarding(webMaps)}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			old, _, err := AdmitCreate(manifest(guarding(webByName)), User{Name: "alice"}, DefaultLimits(), noon)
			if err != nil {
				t.Fatal(err)
			}
			old.UID, old.ResourceVersion = "uid", "7"
			updated := old.DeepCopy()
			for _, change := range test.changes {
				change(updated)
			}
			change := Change{Old: old, Updated: updated, User: User{Name: test.user}}
			next, _, err := AdmitUpdate(change, DefaultLimits(), noon.Add(max(test.after, time.Second)), 0)
			if test.refused {
				if err == nil {
					t.Errorf("guards %v were admitted", next.Spec.Guards)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := NewGuards(next, old); !equality.DeepEqual(got, test.wantChecked) {
				t.Errorf("the right to %v is checked, want %v", got, test.wantChecked)
			}
		})
	}
}

func TestGuardedErrorNamesLockHolderTimesAndReason(t *testing.T) {
	lock, _, err := AdmitCreate(manifest(guarding(webByName), func(l *v1alpha1.Lock) { l.Spec.Reason = "rollout" }), User{Name: "alice"}, DefaultLimits(), noon)
	if err != nil {
		t.Fatal(err)
	}
	text := (&GuardedError{Lock: lock}).Error()
	for _, want := range []string{`"billing--report"`, "lock:billing:report", `"alice"`, at(0).String(), at(30).String(), "rollout"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q does not say %s", text, want)
		}
	}
	if strings.Contains(text, "token-a") {
		t.Errorf("%q has the owner token", text)
	}
}

func TestRenewalThroughTheServiceKeepsGuardsAndAHandOffDropsThem(t *testing.T) {
	lock, _, err := AdmitCreate(manifest(guarding(webByName)), User{Name: "alice"}, DefaultLimits(), noon)
	if err != nil {
		t.Fatal(err)
	}
	lock.ResourceVersion = "7"
	renewed, err := Renew(lock, Proof{Owner: "token-a", Holder: "alice"}, 0, noon.Add(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if len(renewed.Spec.Guards) != 1 {
		t.Errorf("a renewal left the guards %v", renewed.Spec.Guards)
	}
	next := HandOff(lock, Acquisition{Key: "billing:report", Owner: "token-b", Holder: "bob"}, DefaultLimits(), noon.Add(time.Second))
	if len(next.Spec.Guards) != 0 {
		t.Errorf("the next holder, whose right was not checked, guards %v", next.Spec.Guards)
	}
}
