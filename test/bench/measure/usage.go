package measure

import (
	"maps"
	"time"
)

// Names of programs in a [Usage].
const (
	APIServerProgram = "kube-apiserver"
	EtcdProgram      = "etcd"
	OperatorProgram  = "lock-operator"
	// ClientProgram stands for this process, which runs the clients.
	ClientProgram = "bench"
	// EchoProgram stands for the echo, another process of the same program.
	EchoProgram = "echo"
)

// UsageMeter reads the processor time of programs.
type UsageMeter struct {
	// Pids are the processes by program.
	Pids map[string]int
}

// with returns the meter with another process in the place of the cluster's operator, unless it is zero.
func (m *UsageMeter) with(operator int) *UsageMeter {
	if operator == 0 {
		return m
	}
	pids := maps.Clone(m.Pids)
	pids[OperatorProgram] = operator
	return &UsageMeter{Pids: pids}
}

// Usage is processor time by program.
type Usage map[string]time.Duration

func (m *UsageMeter) read() (Usage, error) {
	read := Usage{}
	for program, pid := range m.Pids {
		spent, err := CPUTime(pid)
		if err != nil {
			return nil, err
		}
		read[program] = spent
	}
	return read, nil
}

// addSince adds the processor time between two readings.
func (u Usage) addSince(before, after Usage) {
	for program := range after {
		u[program] += after[program] - before[program]
	}
}

// per returns the processor time per cycle.
func (u Usage) per(cycles int) Usage {
	each := Usage{}
	for program, spent := range u {
		each[program] = spent / time.Duration(max(1, cycles))
	}
	return each
}
