package peers_test

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"
)

// lines are those of a log that tell why a replica is not reached.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(_, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.Contains(line, "Cannot reach another replica") {
		l.all = append(l.all, line)
	}
}

func (l *lines) get() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// The operator of an installation finds out from the log, at its default level, why two replicas are apart.
func TestTheLogTellsWhyAReplicaIsNotReached(t *testing.T) {
	for name, test := range map[string]struct {
		prepare    func(*pair)
		serverName string
		want       string
	}{
		"the certificate has another name": {func(*pair) {}, "lock-operator-webhook.forrst-system.svc", "x509: "},
		"another authority": {func(p *pair) {
			other, _, err := cert.GenerateSelfSignedCertKey(serverName, nil, nil)
			check(t, err)
			p.write("ca.crt", string(other))
		}, serverName, "x509: "},
		"no authority":          {func(p *pair) { check(t, os.Remove(p.path("ca.crt"))) }, serverName, "read the authorities of replicas"},
		"an empty authority":    {func(p *pair) { p.write("ca.crt", "") }, serverName, "no certificates in"},
		"nothing listens":       {func(p *pair) { p.write("members", "b: 127.0.0.1:1\n") }, serverName, "connection refused"},
		"no token":              {func(p *pair) { check(t, os.Remove(p.path("token"))) }, serverName, "read the token for the other replicas"},
		"the token is unknown":  {func(p *pair) { p.write("token", "swordfish") }, serverName, "the caller is not authenticated"},
		"the token of a tenant": {func(p *pair) { p.write("token", "tenant") }, serverName, "only replicas of the façade, and guests that are Pods, may call this"},
	} {
		t.Run(name, func(t *testing.T) {
			p := connect(t)
			test.prepare(p)
			p.watch(test.serverName)
			await(t, func() bool { return len(p.logged.get()) > 0 })
			line := p.logged.get()[0]
			if !strings.Contains(line, test.want) || !strings.Contains(line, `"replica"="b"`) {
				t.Error(line)
			}
			if strings.Contains(line, "swordfish") {
				t.Errorf("the token is in the log: %s", line)
			}
		})
	}
}

func TestTheLogTellsItOnceAMinute(t *testing.T) {
	p := connect(t)
	p.write("token", "expired")
	p.watch(serverName)
	p.mustBeApart(&p.reviews.asked)
	await(t, func() bool { return p.reviews.asked.Load() >= 4 })
	if got := p.logged.get(); len(got) != 1 {
		t.Errorf("%d lines after some failures: %q", len(got), got)
	}
	p.clock.by.Add(int64(time.Minute))
	await(t, func() bool { return len(p.logged.get()) == 2 })
	p.write("token", "own")
	p.mustMeet()
	p.clock.by.Add(int64(time.Minute))
	p.write("members", "a: 127.0.0.1:1\n")
	await(t, func() bool { ready, _ := p.calling.Peers(); return ready == 0 })
	if got := p.logged.get(); len(got) != 2 {
		t.Errorf("%d lines after the replica was reached: %q", len(got), got)
	}
}
