package robustness_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"
)

// holder is a program with the SDK in a process of its own, which can be stopped while it holds
// a lock (replica/holder.go).
type holder struct {
	process

	history *history
	isSure  atomic.Bool
	rests   chan struct{}
}

func startHolder(binary, dir, name, facade string) (*holder, error) {
	made := &holder{process: process{name: name, dir: dir}, rests: make(chan struct{}, 1)}
	_, err := made.launch(exec.Command(binary, "--hold", facade), made.note)
	return made, err
}

// note reads a line that the process wrote.
func (h *holder) note(line string) {
	kind, value, _ := strings.Cut(line, " ")
	switch kind {
	case "holds", "free":
		h.isSure.Store(kind == "holds")
	case "rests":
		h.rests <- struct{}{}
	case "belief":
		var told struct {
			Key          string `json:"key"`
			Owner        string `json:"owner"`
			Token        int64  `json:"token"`
			From         int64  `json:"from"`
			To           int64  `json:"to"`
			Err          string `json:"err"`
			IsUnexpected bool   `json:"isUnexpected"`
		}
		taken := belief{program: h.name}
		if err := json.Unmarshal([]byte(value), &told); err != nil {
			taken.err, taken.isUnexpected = err, true
		} else {
			taken.key, taken.owner, taken.token, taken.isUnexpected = told.Key, told.Owner, told.Token, told.IsUnexpected
			taken.span = span{h.history.at(told.From), h.history.at(told.To)}
			if told.Err != "" {
				taken.err = errors.New(told.Err)
			}
		}
		h.history.addBelief(taken)
	}
}

// run lets the program work until ctx ends.
func (h *holder) run(ctx context.Context, history *history, seed uint64) {
	h.history = history
	_ = h.tell(fmt.Sprintf("work %d", seed)) // A process that has ended does not come to rest.
	<-ctx.Done()
	_ = h.tell("rest")
	select {
	case <-h.rests:
	case <-time.After(startTimeout):
		history.addBelief(belief{program: h.name, err: errors.New("did not come to rest"), isUnexpected: true})
	}
}

// awaitSure waits until the program is sure that it holds a lock, but not for long.
func (h *holder) awaitSure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	for pause(ctx, time.Millisecond) {
		if h.isSure.Load() {
			return
		}
	}
}

const eachProgram = "program of each"

var (
	stopHolder    = freezing("stop a program that holds", false)
	suspendHolder = freezing("suspend the machine of a program that holds", true)
)

// freezing stops a program for longer than its ttl.
func freezing(name string, suspend bool) fault {
	return fault{name, 0, eachProgram, func(ctx context.Context, b breaking) error {
		holder := b.holders[b.number]
		holder.awaitSure(ctx)
		return holder.freeze(ctx, suspend, between(b.random, 2500*time.Millisecond, 4500*time.Millisecond))
	}}
}
