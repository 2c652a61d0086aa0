//go:build linux

// Package scale_test runs kubectl-lock with many locks. What it takes with ten thousand of them is judged by "make timing".
package scale_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/testenv"
)

const (
	// someLocks are more than a client gets by one request.
	someLocks = 1000
	// patience has room for a slow machine.
	patience = 2 * time.Minute
	// writers is how many locks are written at a time.
	writers = 16
)

// namespaces have the locks by turns.
var namespaces = []string{"default", "payments"}

func keyOf(number int) string { return fmt.Sprintf("orders:import-%05d", number) }

// bench is a control plane with many locks.
type bench struct {
	admin      client.Client
	program    string
	kubeconfig string
	locks      []*v1alpha1.Lock
}

// newBench starts a control plane with so many locks.
func newBench(t *testing.T, count int) *bench {
	t.Helper()
	environment, err := testenv.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	config, kubectl, err := environment.User("admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{kubeconfig: kubectl.Kubeconfig(), locks: make([]*v1alpha1.Lock, count)}
	if b.admin, err = client.New(config, client.Options{Scheme: environment.Scheme}); err != nil {
		t.Fatal(err)
	}
	if b.program, err = testenv.Build(t.Context(), "cmd/kubectl-lock"); err != nil {
		t.Fatal(err)
	}
	if err := b.admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaces[1]}}); err != nil {
		t.Fatal(err)
	}
	b.each(t, func(number int) error {
		b.locks[number] = &v1alpha1.Lock{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespaces[number%len(namespaces)], Name: v1alpha1.FullKeyOf(keyOf(number)).ObjectName()},
			Spec: v1alpha1.LockSpec{
				Key: keyOf(number), Owner: "550e8400-e29b-41d4-a716-446655440000", TTL: &v1alpha1.Duration{Duration: time.Hour},
				Holder: "system:serviceaccount:payments:worker", Reason: "shop " + strconv.Itoa(number),
			},
		}
		stamp(b.locks[number])
		b.locks[number].Spec.AcquireTime = b.locks[number].Spec.RenewTime
		return b.admin.Create(t.Context(), b.locks[number])
	})
	return b
}

// stamp renews a lock.
func stamp(lock *v1alpha1.Lock) {
	now := time.Now()
	lock.Spec.RenewTime, lock.Spec.ExpireTime = &v1alpha1.Timestamp{Time: now}, &v1alpha1.Timestamp{Time: now.Add(time.Hour)}
}

// each calls fn for each lock, several at a time.
func (b *bench) each(t *testing.T, fn func(number int) error) {
	t.Helper()
	var all sync.WaitGroup
	for writer := range writers {
		all.Go(func() {
			for number := writer; number < len(b.locks); number += writers {
				if err := fn(number); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// change renews one lock after the other until ctx ends, and counts that.
func (b *bench) change(ctx context.Context, t *testing.T, renewed *atomic.Int64) {
	t.Helper()
	var all sync.WaitGroup
	for writer := range writers {
		all.Go(func() {
			for number := writer; ctx.Err() == nil; number += writers {
				if number >= len(b.locks) {
					number = writer
				}
				stamp(b.locks[number])
				// With the version that is stored: each lock has one writer.
				if err := b.admin.Update(context.WithoutCancel(ctx), b.locks[number]); err != nil {
					t.Error(err)
					return
				}
				renewed.Add(1)
			}
		})
	}
	all.Wait()
}

func (b *bench) command(ctx context.Context, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, b.program, arguments...)
	command.Env = []string{"KUBECONFIG=" + b.kubeconfig, "HOME=/nonexistent", "PATH=" + os.Getenv("PATH"), "TERM=xterm", "NO_COLOR=1"}
	command.WaitDelay = patience
	return command
}

// run returns what a command prints.
func (b *bench) run(t *testing.T, arguments ...string) string {
	t.Helper()
	output, err := b.command(t.Context(), arguments...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return string(output)
}

// wantList checks what list prints.
func (b *bench) wantList(t *testing.T, printed string) {
	t.Helper()
	if lines := strings.Count(printed, "\n"); lines != len(b.locks)+1 {
		t.Errorf("%d lines for %d locks", lines, len(b.locks))
	}
}

func wantWho(t *testing.T, printed string) {
	t.Helper()
	if !strings.Contains(printed, "shop 0") {
		t.Error(printed)
	}
}

// screen is what a program has written to its terminal.
type screen struct {
	want string
	// shows is closed once want has been written.
	shows chan struct{}
	text  bytes.Buffer
}

func (s *screen) Write(content []byte) (int, error) {
	already := strings.Contains(s.text.String(), s.want)
	_, _ = s.text.Write(content)
	if !already && strings.Contains(s.text.String(), s.want) {
		close(s.shows)
	}
	return len(content), nil
}

// watched is how a command has run on a terminal.
type watched struct {
	state   *os.ProcessState
	took    time.Duration
	renewed int64
}

// watch runs a command on a terminal while all locks change: until the screen has shown the text, and for as long as given.
func (b *bench) watch(t *testing.T, atLeast time.Duration, want string, arguments ...string) watched {
	t.Helper()
	changing, stop := context.WithCancel(t.Context())
	defer stop()
	var renewed atomic.Int64
	var changes sync.WaitGroup
	changes.Go(func() { b.change(changing, t, &renewed) })
	command := b.command(t.Context(), arguments...)
	terminal, err := pty.StartWithSize(command, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	shown := &screen{want: want, shows: make(chan struct{})}
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(shown, terminal) }) // until the program ends
	enough := time.After(atLeast)
	select {
	case <-shown.shows:
		<-enough
	case <-time.After(patience):
		t.Errorf("the screen has no %q", want)
	}
	if err := command.Process.Signal(syscall.SIGINT); err != nil {
		t.Error(err)
	}
	_ = command.Wait()
	took := time.Since(began)
	reading.Wait()
	_ = terminal.Close()
	stop()
	changes.Wait()
	return watched{state: command.ProcessState, took: took, renewed: renewed.Load()}
}

func TestManyLocks(t *testing.T) {
	b := newBench(t, someLocks)
	b.wantList(t, b.run(t, "list", "-A"))
	wantWho(t, b.run(t, "who", keyOf(0), "-n", namespaces[0]))
	b.watch(t, 0, "held ", "list", "-A", "-w")
	b.watch(t, 0, "Locks "+strconv.Itoa(someLocks), "top", "-A")
}
