package measure

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A fakeMachine is a folder like /proc. The times of the processors are user, nice, system, idle, iowait, irq, softirq
// and steal.
type fakeMachine struct {
	t    *testing.T
	root string
}

func (f *fakeMachine) processors(times string) {
	f.t.Helper()
	f.write("stat", "cpu  "+times+" 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
}

// process sets the processor time of a process and of its children that have ended.
func (f *fakeMachine) process(pid, parent, spent, ofChildren int) {
	f.t.Helper()
	f.write(fmt.Sprintf("%d/stat", pid), fmt.Sprintf("%d (a) name (b)) S %d 0 0 0 0 0 0 0 0 0 %d 0 %d 0 20 0", pid, parent, spent, ofChildren))
}

func (f *fakeMachine) write(path, content string) {
	f.t.Helper()
	path = filepath.Join(f.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func TestMachineTellsWhoElseUsesIt(t *testing.T) {
	own := os.Getpid()
	for name, test := range map[string]struct {
		// after changes the machine while 1000 ticks of its processors go by.
		after  func(f *fakeMachine)
		slower float64
		want   string
	}{
		"its own work and that of its children is none": {func(f *fakeMachine) {
			f.processors("600 0 200 1000 0 0 100 0")
			f.process(own, 1, 150, 0)
			f.process(own+1, own, 600, 50)
		}, 1, ""},
		"work of a process that is no child": {func(f *fakeMachine) {
			f.processors("600 0 200 1000 0 0 100 0")
			f.process(own, 1, 150, 0)
			f.process(own+1, own, 350, 0)
			f.process(own+2, 1, 250, 0)
		}, 1, "other processes used 30 % of the processors"},
		"a child that has ended counts by its parent": {func(f *fakeMachine) {
			f.processors("600 0 200 1000 0 0 100 0")
			f.process(own, 1, 150, 650)
			if err := os.RemoveAll(filepath.Join(f.root, fmt.Sprint(own+1))); err != nil {
				f.t.Fatal(err)
			}
		}, 1, ""},
		"work at low priority": {func(f *fakeMachine) {
			f.processors("0 200 0 1700 0 0 0 0")
			f.process(own, 1, 0, 0)
		}, 1, "other processes used 20 % of the processors"},
		"little work of others is normal": {func(f *fakeMachine) {
			f.processors("90 0 0 1810 0 0 0 0")
			f.process(own, 1, 0, 0)
		}, 1, ""},
		"a hypervisor that takes processors away": {func(f *fakeMachine) {
			f.processors("0 0 0 1870 0 0 0 30")
			f.process(own, 1, 0, 0)
		}, 1, "the hypervisor took 3 % of the processors"},
		"a slower processor": {func(f *fakeMachine) {
			f.processors("0 0 0 1900 0 0 0 0")
			f.process(own, 1, 0, 0)
		}, 1.5, "the calibration took 1.50 times as long as at the start"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeMachine{t: t, root: t.TempDir()}
			f.processors("0 0 0 900 0 0 0 0")
			f.process(own, 1, 0, 0)
			f.process(own+1, own, 0, 0)
			f.process(own+2, 1, 0, 0)
			took := time.Millisecond
			m := &Machine{root: f.root, calibrate: func() time.Duration { return took }, baseline: time.Millisecond}
			end, err := m.Watch()
			if err != nil {
				t.Fatal(err)
			}
			test.after(f)
			took = time.Duration(test.slower * float64(time.Millisecond))
			window, err := end()
			if err != nil {
				t.Fatal(err)
			}
			if got := window.Disturbance(); got != test.want {
				t.Errorf("the disturbance is %q, want %q", got, test.want)
			}
		})
	}
}

func TestMachineOfAnUnknownFormatIsAnError(t *testing.T) {
	f := &fakeMachine{t: t, root: t.TempDir()}
	f.write("stat", "cpu 1 2 3\n")
	if _, err := (&Machine{root: f.root, calibrate: calibration}).Watch(); err == nil || !strings.Contains(err.Error(), "too few fields") {
		t.Errorf("got %v, want an error about the fields", err)
	}
}

func TestMachineReadsTheRealOne(t *testing.T) {
	m, err := NewMachine()
	if err != nil {
		t.Fatal(err)
	}
	end, err := m.Watch()
	if err != nil {
		t.Fatal(err)
	}
	window, err := end()
	if err != nil || window.Slowdown <= 0 || window.Foreign < 0 {
		t.Errorf("the window is %+v: %v", window, err)
	}
}

func TestCPUTimeGrowsWithWork(t *testing.T) {
	before, err := CPUTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	calibration()
	after, err := CPUTime(os.Getpid())
	if err != nil || after <= before {
		t.Errorf("the processor time was %s and is %s: %v", before, after, err)
	}
	if _, err := CPUTime(1 << 22); err == nil {
		t.Error("a process that does not exist has a processor time")
	}
}
