package line_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/line"
)

// touching is an engine that can be made to lose touch with the API server.
type touching struct {
	*engine.Engine
	isLost *atomic.Bool
}

func (t touching) HasLostTouch() bool { return t.isLost.Load() }

// Lines leave a home that has lost touch with the API server, and stay where they are otherwise.
func TestLinesLeaveAHomeThatHasLostTouch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas, isLost := &replicas{t: t, etcd: newEtcd(), all: map[string]*replica{}}, new(atomic.Bool)
		for i := range 3 {
			replicas.addWith(fmt.Sprintf("replica-%d", i), time.Millisecond, func(of *engine.Engine) line.Local {
				if i == 0 {
					return touching{of, isLost}
				}
				return touching{of, new(atomic.Bool)}
			})
			<-time.After(110 * time.Millisecond) // They look at other times.
		}
		replicas.meet()
		<-time.After(5 * time.Second)
		var changed []<-chan struct{}
		for _, name := range replicas.names() {
			changed = append(changed, replicas.all[name].Changed())
		}
		<-time.After(time.Minute)
		for i, changed := range changed {
			select {
			case <-changed:
				t.Errorf("replica-%d has seen other homes while all keep up", i)
			default:
			}
		}
		isLost.Store(true)
		<-time.After(time.Second)
		for i, changed := range changed {
			select {
			case <-changed:
			default:
				t.Errorf("replica-%d still has a home that has lost touch", i)
			}
		}
	})
}
