package main

import (
	"os"
	"time"
)

// measured are the programs whose use of the processors is told.
var measured = []string{"kube-apiserver", "etcd", "lock-operator"}

// clientProgram stands for this process, which is where the clients are.
const clientProgram = "bench"

// echoProgram stands for the echo, which is another process of the same program.
const echoProgram = "echo"

// usageMeter tells what the cluster's programs use of the processors.
type usageMeter struct{ pids map[string]int }

func newUsageMeter(c *cluster, echo *echoProcess) (*usageMeter, error) {
	meter := &usageMeter{pids: map[string]int{}}
	for _, program := range measured {
		pid, err := c.pid(program)
		if err != nil {
			return nil, err
		}
		meter.pids[program] = pid
	}
	meter.pids[clientProgram], meter.pids[echoProgram] = os.Getpid(), echo.command.Process.Pid
	return meter, nil
}

// usage is processor time by program.
type usage map[string]time.Duration

func (m *usageMeter) read() (usage, error) {
	read := usage{}
	for program, pid := range m.pids {
		spent, err := cpuTime(pid)
		if err != nil {
			return nil, err
		}
		read[program] = spent
	}
	return read, nil
}

// addSince adds what was used between two readings.
func (u usage) addSince(before, after usage) {
	for program := range after {
		u[program] += after[program] - before[program]
	}
}
