package bodies_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"forrst.dev/lock-operator/lock/bodies"
)

var errFull = errors.New("full")

func TestABodyCountsAgainstPartAndWhole(t *testing.T) {
	whole := bodies.NewBudget(10, errFull)
	first, second := whole.Part(6), whole.Part(6)
	read := func(budget *bodies.Budget, size int) (*bodies.Body, error) {
		body := budget.Body(strings.NewReader(strings.Repeat("x", size)), 100)
		_, err := body.ReadAll(-1)
		return body, err
	}
	six, err := read(first, 6)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := read(first, 1); !errors.Is(err, errFull) {
		t.Errorf("more than the part: %v", err)
	}
	if _, err := read(second, 5); !errors.Is(err, errFull) {
		t.Errorf("more than the whole: %v", err)
	}
	four, err := read(second, 4)
	if err != nil {
		t.Errorf("what was refused still counts: %v", err)
	}
	six.Forget()
	six.Forget()
	if err := four.Take(3); !errors.Is(err, errFull) {
		t.Errorf("what the work on a body takes does not count: %v", err)
	}
	if err := four.Take(2); err != nil {
		t.Error(err)
	}
	four.Forget()
	for _, budget := range []*bodies.Budget{first, second} {
		body, err := read(budget, 6)
		if err != nil {
			t.Errorf("what was forgotten still counts: %v", err)
		}
		body.Forget()
	}
	if _, err := read(whole, 11); !errors.Is(err, errFull) {
		t.Errorf("what was forgotten twice was given back twice: %v", err)
	}
}

func TestABodyThatIsTooLargeIsReadAndForgotten(t *testing.T) {
	for name, announced := range map[string]int64{"announced": 11, "not announced": -1} {
		t.Run(name, func(t *testing.T) {
			budget := bodies.NewBudget(100, errFull)
			sent := strings.NewReader(strings.Repeat("x", 11))
			body := budget.Body(sent, 10)
			if kept, err := body.ReadAll(announced); !errors.Is(err, bodies.ErrTooLarge) || len(kept) > 0 {
				t.Errorf("%d bytes, %v", len(kept), err)
			}
			if sent.Len() > 0 {
				t.Errorf("%d bytes are left: the client may never see the answer", sent.Len())
			}
			if err := budget.Body(nil, 0).Take(100); err != nil {
				t.Errorf("it still counts: %v", err)
			}
		})
	}
}

// A body that is announced as too large is not kept even in part.
func TestABodyThatIsAnnouncedAsTooLargeTakesNothing(t *testing.T) {
	budget := bodies.NewBudget(1, errFull)
	body := budget.Body(strings.NewReader("xxx"), 2)
	if _, err := body.ReadAll(3); !errors.Is(err, bodies.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}

func TestABodyThatEndsEarlyCountsUntilItIsForgotten(t *testing.T) {
	budget := bodies.NewBudget(3, errFull)
	body := budget.Body(io.MultiReader(strings.NewReader("xxx"), failing{}), 10)
	if _, err := body.ReadAll(10); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
	body.Forget()
	if err := budget.Body(nil, 0).Take(3); err != nil {
		t.Error(err)
	}
}

// failing is a connection that breaks.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
