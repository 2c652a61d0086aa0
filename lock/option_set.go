package lock

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// optionSet is a set of options.
type optionSet uint32

// The options, in the order of optionNames.
const (
	optionScope optionSet = 1 << iota
	optionFunction
	optionTTL
	optionWait
	optionOwner
	optionReason
	optionHolderRef
	optionReleaseDelay
	optionRenewal
	optionRetry
	optionReleaseTimeout
	optionRaw
	optionKeys
	optionClock
	optionPriority
	optionFencingToken
	optionOrderCheck
	optionHoldAndWait
)

var optionNames = []string{
	"WithScope", "WithFunction", "WithTTL", "WithWait", "WithOwner", "WithReason", "WithHolderRef", "WithReleaseDelay",
	"WithoutRenewal", "WithRetry", "WithReleaseTimeout", "WithRaw", "WithKeys", "WithClock",
	"WithPriority", "WithFencingToken", "WithOrderCheck", "WithoutHoldAndWait",
}

// The options that concern the methods.
const (
	ofKey      = optionScope | optionFunction
	ofHold     = ofKey | optionTTL | optionRenewal | optionReleaseTimeout | optionClock // Resume
	ofAcquire  = ofHold | optionWait | optionOwner | optionReason | optionHolderRef | optionReleaseDelay | optionRetry | optionPriority | optionOrderCheck
	ofTogether = ofAcquire&^optionRetry | optionHoldAndWait // AcquireAll, DoAll
	ofRelease  = ofKey | optionReleaseTimeout
	ofForce    = ofKey | optionFencingToken
	ofGet      = ofKey | optionRaw | optionKeys
	ofList     = optionOwner | optionRaw | optionKeys
	ofAll      = ofAcquire | ofTogether | ofGet | ofForce
)

// without returns an error that names the options of the set that are not among those that concern the method,
// or nil if there are none.
func (given optionSet) without(concerned optionSet, method string) error {
	var problems field.ErrorList
	for index, name := range optionNames {
		if option := optionSet(1) << index; given&option != 0 && concerned&option == 0 {
			problems = append(problems, field.Forbidden(field.NewPath("options"), name+" does not concern "+method))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return &InvalidError{Problems: problems}
}
