package upgrade_test

import (
	"bytes"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

type schema = apiextensionsv1.JSONSchemaProps

// incompatibilities lists what the schema before admits and the schema now does not: fields, their types, lengths and bounds, values,
// what no pattern or rule has refused, and objects without what is required now. It does not judge a new pattern or rule,
// which may refuse the same as another one did.
func incompatibilities(path string, before, now schema) (differences []string) {
	for _, name := range now.Required {
		if !slices.Contains(before.Required, name) {
			differences = append(differences, path+" requires "+name)
		}
	}
	differences = append(differences, incompatibleValues(path, before, now)...)
	differences = append(differences, incompatibleBounds(path, before, now)...)
	differences = append(differences, incompatibleRules(path, before, now)...)
	if !apiequality.Semantic.DeepEqual(uncompared(before), uncompared(now)) {
		differences = append(differences, path+" differs in another way")
	}
	for name, property := range before.Properties {
		other, ok := now.Properties[name]
		if !ok {
			differences = append(differences, path+"."+name+" is gone")
			continue
		}
		differences = append(differences, incompatibilities(path+"."+name, property, other)...)
	}
	if before.Items != nil && before.Items.Schema != nil && now.Items != nil && now.Items.Schema != nil {
		differences = append(differences, incompatibilities(path+"[]", *before.Items.Schema, *now.Items.Schema)...)
	}
	return differences
}

// incompatibleValues lists what a field itself may no longer be.
func incompatibleValues(path string, before, now schema) (differences []string) {
	if before.Type != now.Type {
		differences = append(differences, fmt.Sprintf("%s was of type %s and is of type %s", path, before.Type, now.Type))
	}
	for _, value := range before.Enum {
		if len(now.Enum) > 0 && !slices.ContainsFunc(now.Enum, func(other apiextensionsv1.JSON) bool { return bytes.Equal(other.Raw, value.Raw) }) {
			differences = append(differences, fmt.Sprintf("%s may not be %s", path, value.Raw))
		}
	}
	if len(before.Enum) == 0 && len(now.Enum) > 0 {
		differences = append(differences, path+" has an enum")
	}
	// A rule may refuse what an object gets by another default.
	if was, is := defaultOf(before), defaultOf(now); was != none && was != is {
		differences = append(differences, fmt.Sprintf("%s had the default %s and has %s", path, was, is))
	}
	return differences
}

// none stands for no default.
const none = "none"

func defaultOf(of schema) string {
	if of.Default == nil {
		return none
	}
	return string(of.Default.Raw)
}

// incompatibleBounds lists which bounds of a field have become narrower.
func incompatibleBounds(path string, before, now schema) (differences []string) {
	if narrower(before.MaxLength, now.MaxLength) || narrower(before.MaxItems, now.MaxItems) {
		differences = append(differences, path+" has a lower greatest length")
	}
	if higher(before.MinLength, now.MinLength) || higher(before.MinItems, now.MinItems) {
		differences = append(differences, path+" must be longer")
	}
	if now.Minimum != nil && (before.Minimum == nil || *now.Minimum > *before.Minimum || now.ExclusiveMinimum && !before.ExclusiveMinimum) {
		differences = append(differences, path+" must be higher")
	}
	if now.Maximum != nil && (before.Maximum == nil || *now.Maximum < *before.Maximum || now.ExclusiveMaximum && !before.ExclusiveMaximum) {
		differences = append(differences, path+" must be lower")
	}
	return differences
}

// incompatibleRules lists the patterns, formats and rules of CEL that a field did not have.
func incompatibleRules(path string, before, now schema) (differences []string) {
	if now.Pattern != "" && now.Pattern != before.Pattern {
		differences = append(differences, path+" has the new pattern "+now.Pattern)
	}
	if now.Format != "" && now.Format != before.Format {
		differences = append(differences, path+" has the new format "+now.Format)
	}
	for _, rule := range now.XValidations {
		if slices.ContainsFunc(before.XValidations, func(other apiextensionsv1.ValidationRule) bool { return textOf(other) == textOf(rule) }) {
			continue
		}
		differences = append(differences, path+" has the new rule "+textOf(rule))
	}
	return differences
}

// textOf returns what decides about an object.
func textOf(rule apiextensionsv1.ValidationRule) string {
	if rule.OptionalOldSelf != nil && *rule.OptionalOldSelf {
		return "(also without oldSelf) " + rule.Rule
	}
	return rule.Rule
}

// uncompared returns the schema without what has been compared, and without what says nothing about an object.
func uncompared(of schema) schema {
	of.Description, of.Default, of.Required, of.Properties, of.Items, of.Type, of.Enum = "", nil, nil, nil, nil, "", nil
	of.MaxLength, of.MaxItems, of.MinLength, of.MinItems = nil, nil, nil, nil
	of.Minimum, of.ExclusiveMinimum, of.Maximum, of.ExclusiveMaximum = nil, false, nil, false
	of.Pattern, of.Format, of.XValidations = "", "", nil
	return of
}

// narrower reports whether a bound has come down, where nil is none.
func narrower(before, now *int64) bool {
	return now != nil && (before == nil || *now < *before)
}

// higher reports whether a least length has gone up, where nil is 0.
func higher(before, now *int64) bool {
	return now != nil && *now > 0 && (before == nil || *now > *before)
}
