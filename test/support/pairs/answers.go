package pairs

import (
	"errors"
	"fmt"
	"slices"
)

// Answers are those that a call may be answered with.
type Answers struct {
	// Ended says that the call has ended the grant. Empty for a call that ends none.
	Ended string
	// Missed says that the call has found the grant other than its condition says, since another call has changed it and has not
	// ended it. Empty for a call without such a condition.
	Missed string
	// Changed says that the call has changed the grant, which goes on, so that a condition of the other call misses it. Empty for
	// a call that changes none.
	Changed string
	// Took says that the call has got the lock, after the grant had ended. Empty for a call that does not acquire it.
	Took string
	// Others are all others. They are true beside a call that has ended the grant. The first of a call that ends no grant is its
	// only one beside a grant that goes on.
	Others []string
	// EndsNext says that the call names no grant. Beside a waiting caller it may rightly end the next one, of that caller.
	EndsNext bool
}

// nobody is the ender of a grant that goes on.
const nobody = -1

// verdict is what has become of a grant by two calls about it.
type verdict struct {
	// ender is the call that has ended the grant.
	ender int
	// isNextEnded says that the other one has ended the grant of the caller that waited.
	isNextEnded bool
}

// judge returns what two calls about one grant have done by their answers, or an error if these cannot both be true.
func judge(calls [2]Answers, answers [2]string, hasWaiter bool) (verdict, error) {
	var enders []int
	for index, each := range calls {
		if each.Ended != "" && answers[index] == each.Ended {
			enders = append(enders, index)
		}
	}
	ender := nobody
	switch {
	case len(enders) == 1:
		ender = enders[0]
	case len(enders) > 1 && hasWaiter && calls[1].EndsNext:
		return verdict{0, true}, nil
	case len(enders) > 1 && hasWaiter && calls[0].EndsNext:
		return verdict{1, true}, nil
	case len(enders) > 1:
		return verdict{ender: nobody}, errors.New("both are told that they ended the grant")
	}
	if err := areTrue(calls, answers, ender); err != nil {
		return verdict{ender: nobody}, err
	}
	return verdict{ender: ender}, nil
}

// areTrue returns an error unless both answers can be true if that call, or nobody, has ended the grant.
func areTrue(calls [2]Answers, answers [2]string, ender int) error {
	hasEnder := calls[0].Ended != "" || calls[1].Ended != ""
	for index, each := range calls {
		answer, other := answers[index], calls[1-index]
		isOtherChange := other.Changed != "" && answers[1-index] == other.Changed
		switch {
		case index == ender && each.Missed != "" && isOtherChange && other.Took != other.Changed:
			return fmt.Errorf("%q: the other call has changed the version that this one has ended", answer)
		case ender == nobody && each.Missed != "" && each.Changed != "" && answer == each.Changed && other.Missed != "" && isOtherChange:
			return fmt.Errorf("%q: both have changed the same version", answer)
		case index == ender:
		case each.Took != "" && answer == each.Took && ender != nobody:
		case ender != nobody && (slices.Contains(each.Others, answer) || each.Missed != "" && answer == each.Missed):
		case ender == nobody && each.Ended == "" && answer == each.Others[0]:
		case ender == nobody && each.Missed != "" && answer == each.Missed && isOtherChange:
		case ender == nobody && hasEnder && slices.Contains(each.Others, answer):
			return fmt.Errorf("%q: nobody is told that it ended the grant", answer)
		default:
			return fmt.Errorf("%q is no true answer", answer)
		}
	}
	return nil
}
