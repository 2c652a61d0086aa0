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
	// Missed says that the call, which would end the grant, has found it other than its condition says, since another call has
	// changed it and has not ended it. Empty for a call without such a condition.
	Missed string
	// Took says that the call has got the lock, after the grant had ended. Empty for a call that does not acquire it.
	Took string
	// Others are all others. They are true beside a call that has ended the grant. The first of a call that ends no grant is its
	// only one beside a grant that goes on.
	Others []string
}

// nobody is the ender of a grant that goes on.
const nobody = -1

// judge returns which of two calls about one grant has ended it, by their answers, or an error if these cannot both be true.
func judge(calls [2]Answers, answers [2]string) (ender int, err error) {
	ender = nobody
	hasEnder := false
	for index, each := range calls {
		hasEnder = hasEnder || each.Ended != ""
		if each.Ended == "" || answers[index] != each.Ended {
			continue
		}
		if ender != nobody {
			return nobody, errors.New("both are told that they ended the grant")
		}
		ender = index
	}
	for index, each := range calls {
		answer, other := answers[index], calls[1-index]
		switch {
		case index == ender:
		case each.Took != "" && answer == each.Took && ender != nobody:
		case ender != nobody && (slices.Contains(each.Others, answer) || each.Missed != "" && answer == each.Missed):
		case ender == nobody && each.Ended == "" && answer == each.Others[0]:
		case ender == nobody && each.Missed != "" && answer == each.Missed && other.Ended == "":
		case ender == nobody && hasEnder && slices.Contains(each.Others, answer):
			return nobody, fmt.Errorf("%q: nobody is told that it ended the grant", answer)
		default:
			return nobody, fmt.Errorf("%q is no true answer", answer)
		}
	}
	return ender, nil
}
