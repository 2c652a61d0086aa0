package line_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/line"
)

// startWithGuest starts two replicas, and one that is no member.
func startWithGuest(t *testing.T, change func(*replicas)) (*replicas, *replica) {
	t.Helper()
	r := &replicas{t: t, etcd: newEtcd(), all: map[string]*replica{}}
	change(r)
	for _, name := range []string{"replica-0", "replica-1", "guest"} {
		r.add(name, time.Millisecond)
	}
	guest := r.all["guest"]
	delete(r.all, "guest")
	guest.knows(r.names(), func(name string) *replica { return r.all[name] })
	r.meet()
	return r, guest
}

func asBefore(*replicas) {}

// since is the request of a caller that came then.
func since(request lock.Request, then time.Time) lock.Request {
	request.Since = then
	return request
}

func TestAGuestStandsInTheLineOfTheMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas, guest := startWithGuest(t, asBefore)
		replicas.hold(replicas.at(0), "first")
		<-time.After(time.Second)
		const waiters = 60
		callers := &served{replicas: replicas}
		for i := range waiters {
			callers.come([]*replica{guest, replicas.at(0), guest, replicas.at(1)}[i%4], by(fmt.Sprint(i), time.Hour), 5*time.Millisecond)
			<-time.After(2 * time.Millisecond)
		}
		<-time.After(time.Second)
		replicas.wantInLine(waiters)
		if guest.HasWaiters() {
			t.Error("callers wait at the guest")
		}
		writes, reads := replicas.etcd.requests()
		replicas.release(replicas.at(0), "first")
		callers.wantInTurn(waiters)
		nowWrites, nowReads := replicas.etcd.requests()
		if made := nowWrites - writes; made > waiters+3 || nowReads != reads {
			t.Errorf("%d hand-offs took %d writes and %d reads", waiters, made, nowReads-reads)
		}
	})
}

func TestAGuestIsNeverHome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas, guest := startWithGuest(t, asBefore)
		isHome := map[*replica]bool{}
		for i := range 200 {
			of := v1alpha1.FullKeyOf(fmt.Sprint("key-", i))
			for _, at := range []*replica{guest, replicas.at(0), replicas.at(1)} {
				isHome[at] = isHome[at] || at.IsHome("default", of)
			}
		}
		if isHome[guest] || !isHome[replicas.at(0)] || !isHome[replicas.at(1)] {
			t.Errorf("the guest is home: %t, the members: %t and %t", isHome[guest], isHome[replicas.at(0)], isHome[replicas.at(1)])
		}
	})
}

// The callers of a guest keep their places when a home dies. When no member is left, they wait in the guest's own queue.
func TestTheCallersOfAGuestOutliveTheMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas, guest := startWithGuest(t, asBefore)
		home, edge := replicas.all[replicas.home()], replicas.edges()[0]
		replicas.hold(guest, "first")
		var told []chan error
		for i, at := range []*replica{guest, edge, guest, guest} {
			told = append(told, replicas.wait(t.Context(), at, by(fmt.Sprint(i), time.Hour)))
		}
		<-time.After(time.Second)
		home.kill()
		<-time.After(3 * time.Second)
		replicas.release(guest, "first")
		replicas.granted(told[0], time.Second)
		replicas.release(guest, "0")
		replicas.granted(told[1], time.Second)
		replicas.release(edge, "1")
		replicas.granted(told[2], time.Second)
		edge.kill()
		<-time.After(3 * time.Second)
		if !guest.HasWaiters() {
			t.Error("no caller waits at the guest, which is alone")
		}
		replicas.release(guest, "2")
		replicas.granted(told[3], time.Second)
		replicas.release(guest, "3")
		replicas.hold(guest, "alone")
	})
}

// A caller stands where it began to wait, whenever its request is made, and waits for as long as that says.
func TestACallerStandsWhereItBeganToWait(t *testing.T) {
	for name, isAlone := range map[string]bool{"at a member": false, "at a guest that is alone": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				replicas, guest := startWithGuest(t, asBefore)
				at := replicas.at(0)
				if isAlone {
					at = guest
					guest.SetMembers(nil, nil)
				}
				replicas.hold(at, "first")
				began := time.Now()
				<-time.After(10 * time.Second)
				behind := replicas.wait(t.Context(), at, by("behind", time.Hour))
				before := replicas.wait(t.Context(), guest, since(by("before", lock.WaitForever), began))
				second := replicas.wait(t.Context(), guest, since(by("second", 5*time.Second), began.Add(time.Second)))
				later := replicas.wait(t.Context(), guest, since(by("later", time.Minute), time.Now().Add(time.Hour)))
				waiting, _, err := at.Waiters(t.Context(), "default", key, 10)
				if err != nil || len(waiting) != 4 || waiting[0].Since.Sub(began).Abs() > 10*time.Millisecond {
					t.Fatalf("there wait %+v: %v", waiting, err)
				}
				select {
				case err := <-second:
					t.Errorf("a wait of five seconds ended before: %v", err)
				case <-time.After(4900 * time.Millisecond):
				}
				select {
				case err := <-second:
					if !errors.Is(err, lock.ErrTimeout) {
						t.Errorf("a wait of five seconds ended with %v", err)
					}
				case <-time.After(time.Second):
					t.Error("a wait of five seconds goes on")
				}
				replicas.release(at, "first")
				replicas.granted(before, time.Second)
				replicas.release(guest, "before")
				replicas.granted(behind, time.Second)
				replicas.release(at, "behind")
				replicas.granted(later, time.Second)
			})
		})
	}
}

// asGuests has the home take all streams for those of a guest.
func asGuests(user string) grpc.ServerOption {
	return grpc.StreamInterceptor(func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, serve grpc.StreamHandler) error {
		return serve(server, guestStream{stream, line.ContextWithGuest(stream.Context(), user)})
	})
}

type guestStream struct {
	grpc.ServerStream
	ctx context.Context // a stream has one
}

func (s guestStream) Context() context.Context { return s.ctx }

// A guest asks for its own user alone, who is not bounded. What the home declines, the guest does by itself.
func TestAGuestAsksForItsOwnUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		replicas, guest := startWithGuest(t, func(r *replicas) {
			r.server, r.waiters = []grpc.ServerOption{asGuests("alice")}, engine.WaiterLimits{PerLock: 1}
		})
		home := replicas.all[replicas.home()]
		replicas.hold(home, "first")
		own := []chan error{
			replicas.wait(t.Context(), guest, by("one", time.Hour)), replicas.wait(t.Context(), guest, by("two", time.Hour)),
		}
		other := by("other", time.Hour)
		other.Holder = "bob"
		ofOther := replicas.wait(t.Context(), guest, other)
		<-time.After(5 * time.Second)
		waiting, _, err := home.Waiters(t.Context(), "default", key, 10)
		if err != nil || len(waiting) != 2 || waiting[0].Holder != "alice" || waiting[1].Holder != "alice" {
			t.Errorf("at home there wait %+v: %v", waiting, err)
		}
		if _, _, err := guest.Waiters(t.Context(), "default", key, 10); err == nil {
			t.Error("the guest is told who waits")
		}
		replicas.release(home, "first")
		replicas.granted(own[0], 2*time.Second)
		<-time.After(time.Second)
		if err := guest.Release(t.Context(), "default", key, lock.Proof{Owner: "one", Holder: "alice"}); err != nil {
			t.Error(err)
		}
		replicas.granted(own[1], 2*time.Second)
		replicas.release(guest, "two")
		replicas.granted(ofOther, time.Minute)
	})
}
