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

// hearing is an engine whose watch shows a change every so often.
type hearing struct {
	*engine.Engine
	silence func() time.Duration
}

func (h hearing) Lag() (bool, time.Duration) { return false, h.silence() }

// Lines stay at their homes while all replicas hear the same, however far apart the changes are. They leave one that hears
// less.
func TestHomesStayWhileAllHearTheSame(t *testing.T) {
	for _, apart := range []time.Duration{750 * time.Millisecond, 1200 * time.Millisecond, 2 * time.Second, 15 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			replicas, began, isDeaf := &replicas{t: t, etcd: newEtcd(), all: map[string]*replica{}}, time.Now(), new(atomic.Bool)
			for i := range 3 {
				late := time.Duration(i) * 7 * time.Millisecond
				replicas.addWith(fmt.Sprintf("replica-%d", i), time.Millisecond, func(of *engine.Engine) line.Local {
					return hearing{of, func() time.Duration {
						if i == 0 && isDeaf.Load() {
							return time.Hour
						}
						return (time.Since(began)-late+apart)%apart + 1
					}}
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
					t.Errorf("changes every %s: replica-%d has seen other homes", apart, i)
				default:
				}
			}
			isDeaf.Store(true)
			<-time.After(3 * time.Second)
			for i, changed := range changed {
				select {
				case <-changed:
				default:
					t.Errorf("changes every %s: replica-%d still has a home that hears nothing", apart, i)
				}
			}
		})
	}
}
