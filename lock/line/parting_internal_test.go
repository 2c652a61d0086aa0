package line

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/utils/clock"
)

// The connection to a replica that is no member any more ends with the last answer, or after a second without one.
func TestAConnectionEndsAfterItsReplicaIsNoMember(t *testing.T) {
	for name, test := range map[string]struct {
		isAsked bool
		want    time.Duration
	}{
		"nothing is asked":    {want: 0},
		"nothing is answered": {isAsked: true, want: maxParting},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMembers("self", clock.RealClock{}, logr.Discard(), func() bool { return false }, func(bool) {})
				go func() { _ = m.run(t.Context()) }()
				synctest.Wait()
				connection, err := grpc.NewClient("passthrough:other", grpc.WithTransportCredentials(insecure.NewCredentials()))
				if err != nil {
					t.Fatal(err)
				}
				open := &visitOut{asked: map[uint64]recipient{}}
				if test.isAsked {
					open.asked[1] = recipient{}
				}
				m.peers["other"] = &runningPeer{peer: &peer{connection: connection, open: open}, stop: func() {}}
				m.set([]string{"self"}, nil)
				for waited := time.Duration(0); ; waited += drainPeriod {
					synctest.Wait()
					isEnded := connection.GetState() == connectivity.Shutdown
					if isEnded != (waited >= test.want) {
						t.Fatalf("after %v: ended %t", waited, isEnded)
					}
					if isEnded {
						return
					}
					<-time.After(drainPeriod)
				}
			})
		})
	}
}
