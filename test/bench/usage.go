package main

import (
	"maps"
	"os"
	"time"
)

// measured are the programs whose processor time is reported.
var measured = []string{"kube-apiserver", "etcd", operatorProgram}

const operatorProgram = "lock-operator"

// clientProgram stands for this process, which runs the clients.
const clientProgram = "bench"

// echoProgram stands for the echo, another process of the same program.
const echoProgram = "echo"

// usageMeter reads the processor time of the cluster's programs.
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

// with returns the meter with another process in the place of the cluster's operator, unless it is zero.
func (m *usageMeter) with(operator int) *usageMeter {
	if operator == 0 {
		return m
	}
	pids := maps.Clone(m.pids)
	pids[operatorProgram] = operator
	return &usageMeter{pids: pids}
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

// addSince adds the processor time between two readings.
func (u usage) addSince(before, after usage) {
	for program := range after {
		u[program] += after[program] - before[program]
	}
}
