package holderref_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/holderref"
	"forrst.dev/lock-operator/lock/rules"
)

// askedMapper records the questions. A version in a question is one that the API server would be asked about.
type askedMapper struct {
	apimeta.RESTMapper
	asked []string
}

func (m *askedMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*apimeta.RESTMapping, error) {
	m.asked = append(m.asked, strings.Join(append([]string{kind.String()}, versions...), "/"))
	return m.RESTMapper.RESTMapping(kind, versions...)
}

func TestKindsThatAreNotAllowedCostNoRequest(t *testing.T) {
	apps := schema.GroupVersion{Group: "apps", Version: "v1"}
	kinds := holderref.NewKinds(schema.GroupKind{Group: "apps", Kind: "Deployment"}, schema.GroupKind{Group: "apps", Kind: "Gone"})
	const allowed = "lock-operator allows Pod, Job.batch, Deployment.apps, Gone.apps, and more by its flag --holder-kinds"
	for name, test := range map[string]struct {
		apiVersion, kind, want, asked string
		reads                         int
	}{
		"a Pod":                                {"v1", "Pod", "", "", 1},
		"a Job":                                {"batch/v1", "Job", "", "", 1},
		"a kind that was added":                {"apps/v1", "Deployment", "", "Deployment.apps", 1},
		"a Pod of another version":             {"v2", "Pod", "spec.holderRef.apiVersion: Invalid value: \"v2\": must be v1 for a Pod", "", 0},
		"a Job of another version":             {"batch/v1beta1", "Job", "must be batch/v1 for a Job", "", 0},
		"another version of an added kind":     {"apps/v9", "Deployment", "must be apps/v1 for a Deployment", "Deployment.apps", 0},
		"a kind that was added but is unknown": {"apps/v1", "Gone", "apiVersion apps/v1 has no such kind in this cluster", "Gone.apps", 0},
		"another kind of the group":            {"apps/v1", "StatefulSet", allowed, "", 0},
		"the kind in another group":            {"extensions/v1", "Deployment", allowed, "", 0},
		"a Pod of another group":               {"apps/v1", "Pod", allowed, "", 0},
		"a kind that does not exist":           {"v1", "Pot", allowed, "", 0},
		"a kind by another case":               {"v1", "pod", allowed, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			mapper := apimeta.NewDefaultRESTMapper([]schema.GroupVersion{apps})
			mapper.Add(apps.WithKind("Deployment"), apimeta.RESTScopeNamespace)
			asked := &askedMapper{RESTMapper: mapper}
			reader := &oneReader{there: &corev1.Pod{}}
			if test.kind == "Job" {
				reader.there = &batchv1.Job{}
			}
			reader.there.SetUID("u")
			checker := holderref.Checker{Reader: reader, Mapper: asked, Kinds: kinds}
			err := checker.Check(t.Context(), "default", valid(t, v1alpha1.HolderReference{APIVersion: test.apiVersion, Kind: test.kind, Name: "it", UID: "u"}))
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (!errors.Is(err, rules.ErrInvalid) || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %s", err, test.want)
			}
			if got := strings.Join(asked.asked, " "); got != test.asked || reader.reads != test.reads {
				t.Errorf("asked about %q, %d reads", got, reader.reads)
			}
		})
	}
}

func TestKindsAreReadFromAFlag(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "ConfigMap": "ConfigMap", "Deployment.apps, ConfigMap,": "Deployment.apps,ConfigMap", "Canary.flagger.app": "Canary.flagger.app",
	} {
		var kinds holderref.Kinds
		if err := kinds.Set(text); err != nil || kinds.String() != want {
			t.Errorf("%q: got %q, %v", text, kinds.String(), err)
		}
		if !kinds.Has(&v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod"}) || !kinds.Has(&v1alpha1.HolderReference{APIVersion: "batch/v1", Kind: "Job"}) {
			t.Errorf("%q: locks may not be held for Pods and Jobs", text)
		}
	}
	for _, text := range []string{"apps/Deployment", ".apps", "Deployment.Apps_", "a b", "deployments/scale", strings.Repeat("K,", 33)} {
		var kinds holderref.Kinds
		if err := kinds.Set(text); err == nil {
			t.Errorf("%q is accepted as %s", text, kinds.String())
		}
	}
}

// forbidding is an API server that has not loaded its roles yet.
type forbidding struct{ client.Reader }

func (forbidding) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "objects"}, "it", errors.New("no"))
}

// awayReader does not reach the API server.
type awayReader struct{ client.Reader }

func (awayReader) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("the API server is away")
}

func TestAReadThatFailsDoesNotMeanThatThereIsNoHolder(t *testing.T) {
	checker := holderref.Checker{Reader: awayReader{}}
	err := checker.Check(t.Context(), "default", valid(t, v1alpha1.HolderReference{APIVersion: "v1", Kind: "Pod", Name: "it", UID: "u"}))
	if err == nil || errors.Is(err, rules.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

func TestARightThatTheOperatorHasIsNotMissingForGood(t *testing.T) {
	apps := schema.GroupVersion{Group: "apps", Version: "v1"}
	mapper := apimeta.NewDefaultRESTMapper([]schema.GroupVersion{apps})
	mapper.Add(apps.WithKind("Deployment"), apimeta.RESTScopeNamespace)
	checker := holderref.Checker{Reader: forbidding{}, Mapper: mapper, Kinds: holderref.NewKinds(schema.GroupKind{Group: "apps", Kind: "Deployment"})}
	for kind, apiVersion := range map[string]string{"Pod": "v1", "Job": "batch/v1", "Deployment": "apps/v1"} {
		err := checker.Check(t.Context(), "default", valid(t, v1alpha1.HolderReference{APIVersion: apiVersion, Kind: kind, Name: "it", UID: "u"}))
		if isForGood := errors.Is(err, rules.ErrInvalid); err == nil || isForGood != (kind == "Deployment") {
			t.Errorf("%s: got %v", kind, err)
		}
	}
}

func TestARightThatHasToBeGrantedIsNamed(t *testing.T) {
	checker := holderref.Checker{Reader: forbidding{}, NeedsGrant: true}
	for kind, want := range map[string]string{"Pod": "may not get pods;", "Job": "may not get jobs.batch;"} {
		apiVersion := map[string]string{"Pod": "v1", "Job": "batch/v1"}[kind]
		err := checker.Check(t.Context(), "default", valid(t, v1alpha1.HolderReference{APIVersion: apiVersion, Kind: kind, Name: "it", UID: "u"}))
		if !errors.Is(err, rules.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want a refusal with %q", kind, err, want)
		}
	}
}
