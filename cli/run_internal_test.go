package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/cli/supervise"
	"forrst.dev/lock-operator/lock"
)

// What has become of the lock decides, not which process or call has found out.
func TestWhatARunSaysOfItsLock(t *testing.T) {
	var stderr bytes.Buffer
	o := &runOptions{
		session: session.New(session.Options{Streams: genericiooptions.IOStreams{ErrOut: &stderr}, Clock: clock.RealClock{}}), key: "k", ttl: time.Minute,
		policy: supervise.Policy{OnLost: supervise.OnLostKill},
	}
	silent := fmt.Errorf("%w: no answer", lock.ErrUnavailable)
	for name, test := range map[string]struct {
		result error
		status int
		text   string
	}{
		"ended":                               {o.result(supervise.Outcome{Status: 3}, nil), 3, ""},
		"ended, and the service is away":      {o.result(supervise.Outcome{Status: 3}, silent), 3, ""},
		"stopped":                             {o.result(supervise.Outcome{Status: 137, Cause: supervise.ErrHoldEnded}, nil), 202, "k was lost, and the command was stopped"},
		"not watched any more":                {o.result(supervise.Outcome{Status: 137, Cause: supervise.ErrWatcherEnded}, nil), 200, "was killed; the command was killed, and k was released"},
		"lost and not noticed":                {o.result(supervise.Outcome{}, lock.ErrNotHeld), 202, "k was lost while the command ran"},
		"lost and not noticed, and it failed": {o.result(supervise.Outcome{Status: 3}, lock.ErrForceReleased), 3, ""},
		"no time to start":                    {o.notStarted(supervise.ErrHoldEnded, lock.ErrNotHeld), 202, "k was lost before the command was started"},
		"not executed":                        {o.notStarted(&exec.Error{Name: "p", Err: syscall.E2BIG}, nil), 126, "argument list too long; k was released"},
		"not executed, and the service is away": {
			o.notStarted(&exec.Error{Name: "p", Err: syscall.E2BIG}, silent), 126, "k was not released: lock service is unavailable: no answer; it ends by itself, at the latest in 1m0s",
		},
		"not prepared":               {o.notStarted(errors.New("no room"), nil), 206, "no room; k was released"},
		"not prepared, and was lost": {o.notStarted(errors.New("no room"), lock.ErrNotHeld), 206, "no room; k was lost before"},
	} {
		t.Run(name, func(t *testing.T) {
			var printed bytes.Buffer
			if status := failure.Print(&printed, test.result, ""); status != test.status || !strings.Contains(printed.String(), test.text) {
				t.Errorf("got %d, %q; want %d, %q", status, printed.String(), test.status, test.text)
			}
		})
	}
	if strings.Count(stderr.String(), "warning: k was not released") != 1 || strings.Count(stderr.String(), "warning: k was lost before") != 1 {
		t.Errorf("the warnings are %s", stderr.String())
	}
}
