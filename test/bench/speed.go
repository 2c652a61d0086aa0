package main

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// speed are the scenarios of the suite speed.
var speed = []scenario{
	{"builds", builds}, // first, when both clusters are new
	{"distinct keys, 1", func(b *bench) { distinctKeys(b, 1) }},
	{"distinct keys, 16", func(b *bench) { distinctKeys(b, 16) }},
	{"distinct keys, 64", func(b *bench) { distinctKeys(b, 64) }},
	{"hot key, 2", func(b *bench) { hotKey(b, 2) }},
	{"hot key, 16", func(b *bench) { hotKey(b, 16) }},
	{"hot key, 64", func(b *bench) { hotKey(b, 64) }},
	{"release to next, 2", func(b *bench) { releaseToNext(b, 2, 100) }},
	{"release to next, 16", func(b *bench) { releaseToNext(b, 16, 20) }},
	{"replicas, 16", throughReplicas},
	{"doors, 1", func(b *bench) { doors(b, 1) }},
	{"doors, 16", func(b *bench) { doors(b, 16) }},
	{"guardable writes", guardableWrites},
	{"blocked callers", blocked},
	{"expiry", expiry},
	{"locked jobs", jobsInTurn},
}

const (
	facadeName = "façade"
	// blockFor is how long callers of the façade wait: the longest wait that it allows, and longer than any turn.
	blockFor = time.Minute
	// handOffHold is how long a lock is held where hand-offs are timed: long enough for all effects of the previous release
	// to end.
	handOffHold = 5 * time.Millisecond
)

// builds compares this commit with another one. Each has a cluster of its own, with its own definition of a Lock and its
// own webhooks, and the clusters take turns.
func builds(b *bench) {
	if b.options.against == "" {
		return
	}
	another := b.startCluster(b.options.against)
	for _, each := range []struct {
		name  string
		isHot bool
		block time.Duration
		most  float64
	}{{"acquire + release", false, 0, 0.80}, {"hand-off", true, blockFor, 0.65}} {
		other := another.facade.locks("façade, -against", each.block)
		other.at = another
		results := b.compare(comparison{
			name: "builds, " + each.name + ", 16", clients: 16, isHot: each.isHot, rounds: 20, slice: 500 * time.Millisecond,
			contenders: []contender{other, b.facade.locks("façade, this commit", each.block)},
		})
		b.add(results...)
		b.judge(results[1],
			atMost("API server processor time per "+each.name+" / -against", ratio(processorTime(apiServerProgram), results[1], results[0]), each.most, ""),
			noted("operator processor time per "+each.name+" / -against", ratio(processorTime(operatorProgram), results[1], results[0]), ""),
			atLeast("cycles / -against", ratio(rate, results[1], results[0]), 0.97))
	}
}

// distinctKeys gives every client its own key.
func distinctKeys(b *bench, clients int) {
	c := comparison{name: fmt.Sprintf("distinct keys, %d", clients), clients: clients, rounds: 21, slice: 300 * time.Millisecond}
	if clients > 16 {
		// A turn must be several times as long as a cycle.
		c.rounds, c.slice = 11, 800*time.Millisecond
	}
	c.contenders = []contender{
		createAndDelete("bare custom resource, operator", b.operator, bareType, stampedLock),
		b.facade.locks(facadeName, 0),
	}
	byOperator := b.compare(c)
	b.add(byOperator...)
	b.judge(byOperator[1],
		atLeast("cycles / bare custom resource", ratio(rate, byOperator[1], byOperator[0]), 0.90),
		noted("API server processor time / bare custom resource", ratio(processorTime(apiServerProgram), byOperator[1], byOperator[0]), ""))

	// These are for orientation, so they have few rounds.
	orientation := c
	orientation.rounds = 5
	orientation.contenders = []contender{
		createAndDelete("Lock: create + delete, operator", b.operator, lockType, stampedLock),
		createAndDelete("Lock: create + delete, user", b.user, lockType, declaredLock),
		bareLease(b.operator), etcdKey(b.etcd), etcdMutex(b.etcd), polledLease(b.user, false),
	}
	others := b.compare(orientation)
	b.add(others...)
	b.judge(others[1], atMost("create with webhook / without, p50", ratio(acquireTime, others[1], others[0]), 1.6, "").when(clients == 1))

	// Last, since the SDK's watch slows down other contenders.
	c.contenders = []contender{createAndDelete("bare custom resource, user", b.user, bareType, stampedLock), b.sdk(b.user)}
	byUser := b.compare(c)
	b.add(byUser...)
	b.judge(byUser[1], atLeast("cycles with webhook / bare custom resource without", ratio(rate, byUser[1], byUser[0]), 0.75).when(clients == 16))
}

// hotKey lets all clients contend for one key all the time.
func hotKey(b *bench, clients int) {
	results := b.compare(comparison{
		name: fmt.Sprintf("hot key, %d", clients), clients: clients, isHot: true, rounds: 16, slice: 500 * time.Millisecond,
		contenders: []contender{
			updateLoop("bare update loop", b.operator, bareType), etcdMutex(b.etcd), b.facade.locks(facadeName, blockFor),
			updateLoop("Lock: update loop", b.operator, lockType), b.sdk(b.user),
		},
	})
	b.add(results...)
	handOffs := results[2]
	overMutex := map[int]float64{2: 8, 16: 2}
	b.judge(handOffs,
		atLeast("hand-offs / etcd's mutex", ratio(rate, handOffs, results[1]), overMutex[clients]).when(overMutex[clients] > 0),
		atLeast("hand-offs / bare update loop", ratio(rate, handOffs, results[0]), 1.10).when(clients >= 16),
		// What else uses the machine can only add requests.
		atMost("writes per hand-off", single(handOffs.requests.writes, ""), 1.1, "").when(clients >= 16))
}

// releaseToNext times hand-offs, which must be so many times shorter than with a Lease.
func releaseToNext(b *bench, clients int, times float64) {
	results := b.compare(comparison{
		name: fmt.Sprintf("release to next, %d", clients), clients: clients, isHot: true, hold: handOffHold,
		rounds: 4, slice: 4 * time.Second, // The clients of a Lease are asleep for most of the time.
		contenders: []contender{polledLease(b.user, true), etcdMutex(b.etcd), b.facade.locks(facadeName, blockFor)},
	})
	for _, result := range results {
		result.total.latencies = result.total.handOffs
	}
	b.add(results...)
	b.judge(results[2], atLeast("times shorter than with a Lease, p50", ratio(handOffTime, results[0], results[2]), times))
}

// throughReplicas lets clients contend for one key through a replica of the façade, and spread over three that share its
// line.
func throughReplicas(b *bench) {
	results := b.compare(comparison{
		name: "hot key through replicas, 16", clients: 16, isHot: true, rounds: 20, slice: 2 * time.Second,
		contenders: []contender{b.startReplicas(1).locks("through one replica", blockFor), b.startReplicas(3).locks("through three replicas", blockFor)},
	})
	b.add(results...)
	b.judge(results[1], atLeast("hand-offs / through one", ratio(rate, results[1], results[0]), 0.95))
}

// doors compares an acquire and a release through the two doors.
func doors(b *bench, clients int) {
	results := b.compare(comparison{
		name: fmt.Sprintf("doors, %d", clients), clients: clients, rounds: 24, slice: 300 * time.Millisecond,
		contenders: []contender{b.facade.locks(facadeName, 0), b.facade.rest("REST")},
	})
	b.add(results...)
	b.judge(results[1], atMost("time / Forrst", ratio(cycleTime, results[1], results[0]), 1.05, ""))
}

// guardableWrites measures what guards cost the writes of objects that no lock guards: in a namespace that has not opted
// in, in one that has, and in one where a lock guards another ConfigMap.
func guardableWrites(b *bench) {
	c := comparison{name: "guardable writes, 1", clients: 1, rounds: 20, slice: 300 * time.Millisecond}
	for i, name := range []string{"update, not opted in", "update, opted in", "update, another object guarded"} {
		in := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("guardable-%d", i), Labels: map[string]string{}}}
		if i > 0 {
			in.Labels[v1alpha1.GuardsLabel] = v1alpha1.GuardsEnabled
		}
		must(b.clientset.CoreV1().Namespaces().Create(b, in, metav1.CreateOptions{}))
		if i > 1 {
			lock := declaredLock("guarding", ownerOf(0))
			lock.Namespace = in.Name
			lock.Spec.Guards = []v1alpha1.Guard{{Resource: "configmaps", Name: "another"}}
			must(newObjects(b.admin, lockType, in.Name).Create(b, lock, metav1.CreateOptions{}))
		}
		c.contenders = append(c.contenders, configMapUpdates(name, b.clientset, in.Name))
	}
	results := b.compare(c)
	b.add(results...)
	for _, with := range results[1:] {
		b.judge(with, atMost(with.contender+" / not opted in, p50", ratio(acquireTime, with, results[0]), 1.3, ""))
	}
}
