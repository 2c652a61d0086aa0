//go:build linux

// Package scale_test measures what kubectl-lock takes with many locks: a part of 10,000 that CLI_SCALE sets, as in
// CLI_SCALE=1, which takes minutes.
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
	fullLocks = 10_000
	// longest is how long list and who may take with all of them.
	longest = 1500 * time.Millisecond
	// tries is how often they are run: other programs of a busy machine may make one slow.
	tries = 5
	// mostCores and mostMemory are what list -w and top may use, and window is how long they are watched.
	mostCores  = 1.0
	mostMemory = 200 << 20
	window     = 15 * time.Second
	// writers is how many locks are written at a time.
	writers = 16
)

// namespaces have the locks by turns.
var namespaces = []string{"default", "payments"}

func lockCount(t *testing.T) int {
	t.Helper()
	scale := 0.1
	if text := os.Getenv("CLI_SCALE"); text != "" {
		var err error
		if scale, err = strconv.ParseFloat(text, 64); err != nil {
			t.Fatal(err)
		}
	}
	return int(scale * fullLocks)
}

func keyOf(number int) string { return fmt.Sprintf("orders:import-%05d", number) }

// bench is a control plane with many locks.
type bench struct {
	admin      client.Client
	program    string
	kubeconfig string
	locks      []*v1alpha1.Lock
}

func newBench(t *testing.T) *bench {
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
	b := &bench{kubeconfig: kubectl.Kubeconfig(), locks: make([]*v1alpha1.Lock, lockCount(t))}
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
	command.WaitDelay = window
	return command
}

// fastest checks the shortest time of some runs of a command, and returns what it prints.
func (b *bench) fastest(t *testing.T, arguments ...string) (printed string) {
	t.Helper()
	var took time.Duration
	for try := range tries {
		began := time.Now()
		output, err := b.command(t.Context(), arguments...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		if this := time.Since(began); try == 0 || this < took {
			took = this
		}
		printed = string(output)
	}
	t.Logf("%v with %d locks: %s", arguments, len(b.locks), took.Round(time.Millisecond))
	if took > longest {
		t.Errorf("it took %s, and may take %s", took, longest)
	}
	return printed
}

func TestManyLocks(t *testing.T) {
	b := newBench(t)
	t.Run("list", func(t *testing.T) {
		printed := b.fastest(t, "list", "-A")
		if lines := strings.Count(printed, "\n"); lines != len(b.locks)+1 {
			t.Errorf("%d lines for %d locks", lines, len(b.locks))
		}
	})
	t.Run("who", func(t *testing.T) {
		printed := b.fastest(t, "who", keyOf(0), "-n", namespaces[0])
		if !strings.Contains(printed, "shop 0") {
			t.Error(printed)
		}
	})
	t.Run("list -w", func(t *testing.T) { b.watch(t, "held ", "list", "-A", "-w") })
	t.Run("top", func(t *testing.T) { b.watch(t, "Locks "+strconv.Itoa(len(b.locks)), "top", "-A") })
}

// watch runs a command on a terminal while all locks change, and checks what it has used.
func (b *bench) watch(t *testing.T, want string, arguments ...string) {
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
	var shown bytes.Buffer
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(&shown, terminal) }) // until the program ends
	<-time.After(window)
	if err := command.Process.Signal(syscall.SIGINT); err != nil {
		t.Error(err)
	}
	_ = command.Wait()
	took := time.Since(began)
	reading.Wait()
	_ = terminal.Close()
	stop()
	changes.Wait()

	usage, ok := command.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		t.Fatal("no usage is known")
	}
	cores := (command.ProcessState.UserTime() + command.ProcessState.SystemTime()).Seconds() / took.Seconds()
	memory := usage.Maxrss << 10
	t.Logf("%v with %d locks and %.0f renewals per second: %.2f cores, %d MiB", arguments, len(b.locks),
		float64(renewed.Load())/took.Seconds(), cores, memory>>20)
	if cores >= mostCores || memory > mostMemory {
		t.Errorf("%.2f cores and %d MiB are too much", cores, memory>>20)
	}
	if renewed.Load() == 0 || !strings.Contains(shown.String(), want) {
		t.Errorf("%d renewals, and the screen has no %q", renewed.Load(), want)
	}
}
