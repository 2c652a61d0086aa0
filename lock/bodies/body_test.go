package bodies_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"forrst.dev/lock-operator/lock/bodies"
)

var errFull = errors.New("full")

// room has so many bytes left.
type room int64

func (r *room) Take(n int64) error {
	if int64(*r) < n {
		return errFull
	}
	*r -= room(n)
	return nil
}

func (r *room) Give(n int64) { *r += room(n) }

// body returns a reader of a body of at most size bytes, in a room with so many left.
func body(left *room, reader io.Reader, size int64) *bodies.Body {
	body := new(bodies.Body)
	body.Init(left, reader, size)
	return body
}

func TestABodyTakesRoomUntilItIsForgotten(t *testing.T) {
	left := room(10)
	read := func(size int) (*bodies.Body, error) {
		body := body(&left, strings.NewReader(strings.Repeat("x", size)), 100)
		_, err := body.ReadAll(-1)
		return body, err
	}
	six, err := read(6)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := read(5); !errors.Is(err, errFull) {
		t.Errorf("more than there is: %v", err)
	}
	if left != 4 {
		t.Errorf("%d bytes are left: what was refused still counts", left)
	}
	if err := six.Take(5); !errors.Is(err, errFull) {
		t.Errorf("what the work on a body takes does not count: %v", err)
	}
	if err := six.Take(4); err != nil || left != 0 {
		t.Errorf("%d bytes are left: %v", left, err)
	}
	six.Forget()
	six.Forget()
	if left != 10 {
		t.Errorf("%d bytes are left after the body was forgotten twice", left)
	}
	if err := six.Take(1); err == nil || left != 10 {
		t.Errorf("%d bytes are left: a body takes room that is forgotten", left)
	}
}

func TestABodyThatIsTooLargeIsReadAndForgotten(t *testing.T) {
	for name, announced := range map[string]int64{"announced": 11, "not announced": -1} {
		t.Run(name, func(t *testing.T) {
			left := room(100)
			sent := strings.NewReader(strings.Repeat("x", 11))
			body := body(&left, sent, 10)
			if kept, err := body.ReadAll(announced); !errors.Is(err, bodies.ErrTooLarge) || len(kept) > 0 {
				t.Errorf("%d bytes, %v", len(kept), err)
			}
			if sent.Len() > 0 {
				t.Errorf("%d bytes are left: the client may never see the answer", sent.Len())
			}
			if left != 100 {
				t.Errorf("it still counts: %d bytes are left", left)
			}
		})
	}
}

// A body that is announced as too large is not kept even in part.
func TestABodyThatIsAnnouncedAsTooLargeTakesNothing(t *testing.T) {
	left := room(1)
	body := body(&left, strings.NewReader("xxx"), 2)
	if _, err := body.ReadAll(3); !errors.Is(err, bodies.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}

func TestABodyThatEndsEarlyCountsUntilItIsForgotten(t *testing.T) {
	left := room(3)
	body := body(&left, io.MultiReader(strings.NewReader("xxx"), failing{}), 10)
	if _, err := body.ReadAll(10); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
	if left != 0 {
		t.Errorf("%d bytes are left", left)
	}
	body.Forget()
	if left != 3 {
		t.Errorf("%d bytes are left after it was forgotten", left)
	}
}

// endless is a client that sends on.
type endless int64

func (e *endless) Read(p []byte) (int, error) {
	*e += endless(len(p))
	return len(p), nil
}

func TestLittleIsReadOfABodyThatIsRefused(t *testing.T) {
	left, sent := room(100), new(endless)
	if _, err := body(&left, sent, 1000).ReadAll(-1); !errors.Is(err, errFull) || *sent > 1<<20+1000 {
		t.Errorf("%d bytes were read: %v", *sent, err)
	}
}

// failing is a connection that breaks.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
