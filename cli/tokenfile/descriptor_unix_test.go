//go:build unix

package tokenfile_test

import (
	"syscall"
	"testing"

	"forrst.dev/lock-operator/cli/tokenfile"
)

func TestUsesDescriptors(t *testing.T) {
	// Not os.Pipe, whose files would close the numbers once more, when other files have them.
	var pipe [2]int
	if err := syscall.Pipe(pipe[:]); err != nil {
		t.Fatal(err)
	}
	keep(t, tokenfile.Place{Descriptor: &pipe[1]})
	if read, err := (tokenfile.Place{Descriptor: &pipe[0]}).Read(); err != nil || read != proof {
		t.Errorf("%v, %v", read, err)
	}
	for _, closed := range []int{-1, 987} {
		if _, err := (tokenfile.Place{Descriptor: &closed}).Prepare(); err == nil {
			t.Errorf("descriptor %d is accepted", closed)
		}
	}
}
