// Package freezing makes the lock of a change freeze: one that guards kinds of objects of a namespace until
// a time (docs/guards.md).
package freezing

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/durations"
)

// Key is the key of a freeze, as in config/samples/guards/freeze.yaml.
const Key = "freeze"

// Longest is how far ahead a freeze may end, unless the operator is configured with less.
const Longest = 366 * 24 * time.Hour

// guarded are the resources that a freeze guards by default: what people and pipelines change.
// ConfigMaps count only if they are of an application: programs keep their state in others.
var guarded = []schema.GroupResource{
	{Group: "apps", Resource: "deployments"},
	{Group: "apps", Resource: "statefulsets"},
	{Group: "apps", Resource: "daemonsets"},
	{Group: "autoscaling", Resource: "horizontalpodautoscalers"},
	{Group: "batch", Resource: "cronjobs"},
	{Group: "networking.k8s.io", Resource: "ingresses"},
	{Resource: "services"},
	{Resource: "configmaps"},
}

// applicationLabel is on the ConfigMaps that are guarded by default.
const applicationLabel = "app.kubernetes.io/name"

// Guards returns the guards of a freeze of these resources, such as "deployments.apps", and by default of
// what people and pipelines change. A resource that is named is guarded as a whole.
func Guards(resources []string) ([]v1alpha1.Guard, error) {
	if len(resources) == 0 {
		return defaultGuards(), nil
	}
	var guards []v1alpha1.Guard
	for _, text := range resources {
		resource := schema.ParseGroupResource(strings.TrimSpace(text))
		if resource.Resource == "" || strings.ToLower(text) != text {
			return nil, fmt.Errorf("%q is no resource such as deployments.apps or services", text)
		}
		guard := v1alpha1.Guard{Group: resource.Group, Resource: resource.Resource, Selector: &metav1.LabelSelector{}}
		if slices.ContainsFunc(guards, func(other v1alpha1.Guard) bool { return other.Group == guard.Group && other.Resource == guard.Resource }) {
			return nil, fmt.Errorf("%q is named twice", text)
		}
		guards = append(guards, guard)
	}
	return guards, nil
}

func defaultGuards() []v1alpha1.Guard {
	var guards []v1alpha1.Guard
	for _, resource := range guarded {
		selector := &metav1.LabelSelector{}
		if resource.Resource == "configmaps" {
			selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: applicationLabel, Operator: metav1.LabelSelectorOpExists}}
		}
		guards = append(guards, v1alpha1.Guard{Group: resource.Group, Resource: resource.Resource, Selector: selector})
	}
	return guards
}

// Default names what a freeze guards by default.
func Default() string { return Resources(defaultGuards()) }

// Resources names what the guards cover, for people.
func Resources(guards []v1alpha1.Guard) string {
	names := make([]string, 0, len(guards))
	for _, guard := range guards {
		name := schema.GroupResource{Group: guard.Group, Resource: guard.Resource}.String()
		if guard.Name != "" {
			name += " " + guard.Name
		} else if selector := guard.Selector; selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) > 0 {
			name += " with the label " + metav1.FormatLabelSelector(selector)
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// layouts are the ways to write a time: a date, or also a time of day and a zone. Those without a zone are of the local one.
var layouts = func() []string {
	made := []string{time.DateOnly}
	for _, clock := range []string{"T15:04:05", "T15:04", " 15:04:05", " 15:04"} {
		for _, zone := range []string{"", "Z07:00", "Z0700"} {
			made = append(made, time.DateOnly+clock+zone)
		}
	}
	return made
}()

// ParseUntil reads the end of a freeze: a length of time such as "36h" or "3d", a date, whose beginning
// counts, a date with a time of day, or a time of day, which is today or tomorrow. Times without a zone
// are of the location of now.
func ParseUntil(text string, now time.Time) (time.Time, error) {
	until, err := parse(strings.TrimSpace(text), now)
	switch {
	case err != nil:
		return time.Time{}, err
	case !until.After(now):
		return time.Time{}, fmt.Errorf("%s is past", until.Format(time.RFC3339))
	case until.Sub(now) > Longest:
		return time.Time{}, fmt.Errorf("%s is more than 366 days ahead", until.Format(time.RFC3339))
	}
	return until, nil
}

func parse(text string, now time.Time) (time.Time, error) {
	if length, err := durations.Parse(text); err == nil {
		return now.Add(length), nil
	}
	for _, layout := range layouts {
		if at, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return at, nil
		}
	}
	if clock, err := time.Parse("15:04", text); err == nil {
		at := time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), 0, 0, now.Location())
		if !at.After(now) {
			at = at.AddDate(0, 0, 1)
		}
		return at, nil
	}
	return time.Time{}, fmt.Errorf("%q is neither a length of time such as 36h or 3d, nor a time such as 2027-01-04, 2027-01-04T06:00:00Z or 18:00", text)
}
