package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeProc is a folder like /proc.
type fakeProc struct {
	t    *testing.T
	root string
}

// write sets the times of all processors (user, nice, system, idle, iowait, irq, softirq and steal), and by process those of
// the process and of its children that have ended.
func (f fakeProc) write(processors string, spent map[int][2]int) {
	f.t.Helper()
	files := map[string]string{"stat": "cpu  " + processors + " 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n"}
	for pid, times := range spent {
		parent := 1
		if pid == os.Getpid()+1 {
			parent = os.Getpid()
		}
		files[fmt.Sprintf("%d/stat", pid)] = fmt.Sprintf("%d (a) name (b)) S %d 0 0 0 0 0 0 0 0 0 %d 0 %d 0 20 0", pid, parent, times[0], times[1])
	}
	for name, content := range files {
		path := filepath.Join(f.root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			f.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			f.t.Fatal(err)
		}
	}
}

func TestAMachineTellsWhoElseUsesIt(t *testing.T) {
	own, child, other := os.Getpid(), os.Getpid()+1, os.Getpid()+2
	for name, test := range map[string]struct {
		processors string
		spent      map[int][2]int
		want       string
	}{
		"own work and that of children is none": {"600 0 200 1000 0 0 100 0", map[int][2]int{own: {150, 0}, child: {600, 50}}, ""},
		"work of a process that is no child":    {"600 0 200 1000 0 0 100 0", map[int][2]int{own: {150, 0}, child: {350, 0}, other: {250, 0}}, "other processes used 30 %"},
		"a child that has ended":                {"600 0 200 1000 0 0 100 0", map[int][2]int{own: {150, 650}}, ""},
		"work at low priority":                  {"0 200 0 1700 0 0 0 0", nil, "other processes used 20 %"},
		"little work of others is normal":       {"90 0 0 1810 0 0 0 0", nil, ""},
		"a hypervisor that takes processors":    {"0 0 0 1870 0 0 0 30", nil, "a hypervisor took 3 %"},
	} {
		t.Run(name, func(t *testing.T) {
			f := fakeProc{t, t.TempDir()}
			f.write("0 0 0 900 0 0 0 0", map[int][2]int{own: {}, child: {}, other: {}})
			m := &machine{root: f.root}
			// Meanwhile 1000 ticks of its processors go by.
			if got := m.during(func() { f.write(test.processors, test.spent) }); !strings.HasPrefix(got, test.want) || (got == "") != (test.want == "") {
				t.Errorf("the disturbance is %q, want %q", got, test.want)
			}
		})
	}
}

func TestTheRealMachineCanBeRead(t *testing.T) {
	err := (&bench{}).try(func(*bench) {
		before := cpuTime(os.Getpid())
		(&machine{root: "/proc"}).during(func() {})
		if cpuTime(os.Getpid()) <= before || kibibytes(os.Getpid(), resident) <= 0 {
			t.Error("this process has used no processor time, or no memory")
		}
	})
	if err != nil {
		t.Error(err)
	}
}
