// Package faults_test proves the same as the package above while processes die, connections are cut, the webhook is away, and
// Jobs are stopped: a suite of its own, so that both run side by side.
package faults_test

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/kubelet"
	"forrst.dev/lock-operator/test/support/lockedjobs"
	"forrst.dev/lock-operator/test/support/testenv"
)

func TestFaults(t *testing.T) { lockedjobs.Run(t, "Locked Jobs under faults") }

const (
	lookAgain = lockedjobs.LookAgain
	patience  = lockedjobs.Patience
)

// The words of the specs.
var (
	newNamespace       = lockedjobs.NewNamespace
	makeJob            = lockedjobs.MakeJob
	annotated          = lockedjobs.Annotated
	podAnnotated       = lockedjobs.PodAnnotated
	runFor             = lockedjobs.RunFor
	create             = lockedjobs.Create
	read               = lockedjobs.Read
	isGone             = lockedjobs.IsGone
	has                = lockedjobs.Has
	conditionOf        = lockedjobs.ConditionOf
	runningPods        = lockedjobs.RunningPods
	isRunning          = lockedjobs.IsRunning
	finish             = lockedjobs.Finish
	lockOf             = lockedjobs.LockOf
	holderOf           = lockedjobs.HolderOf
	eventsOf           = lockedjobs.EventsOf
	startsOf           = lockedjobs.StartsOf
	expectNoViolations = lockedjobs.ExpectNoViolations
	inNamespace        = lockedjobs.InNamespace
	tokensOf           = lockedjobs.TokensOf
	waitingEvents      = lockedjobs.WaitingEvents
	startOperator      = lockedjobs.StartOperator
	startReplica       = lockedjobs.StartReplica
	createTwo          = lockedjobs.CreateTwo
	finishAll          = lockedjobs.FinishAll
	startsOfKey        = lockedjobs.StartsOfKey
	tokensOfKey        = lockedjobs.TokensOfKey
	lockedOrders       = lockedjobs.LockedOrders
)

var (
	environment *fixture.Cluster
	manager     *testenv.ControllerManager
	node        *kubelet.Kubelet
	admin       client.Client
	kubectl     *testenv.Kubectl
	admission   *fixture.Admission
)

var _ = BeforeSuite(func(ctx context.Context) {
	lockedjobs.Start(ctx)
	environment, manager, node = lockedjobs.Environment, lockedjobs.Manager, lockedjobs.Node
	admin, kubectl, admission = lockedjobs.Admin, lockedjobs.Kubectl, lockedjobs.Admission
})
