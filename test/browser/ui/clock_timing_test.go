//go:build timing

package ui_test

import (
	"testing"
	"time"
)

func TestTimingAnExpiryIsOnTheScreenAtOnce(t *testing.T) {
	f := newFacade(t, nil)
	s := open(t, f.url())
	s.shows(".link", "Live")
	s.seeExpiries()
	s.expire(f, 20, 250*time.Millisecond)
}
