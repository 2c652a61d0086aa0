// Package jobs_test proves that pods of Jobs run only while the Job holds its lock, on a real
// API server with Job controller, CronJob controller, garbage collector and a simulated
// kubelet. Package faults has what goes wrong.
package jobs_test

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

func TestJobs(t *testing.T) { lockedjobs.Run(t, "Locked Jobs") }

const lookAgain = lockedjobs.LookAgain

type change = lockedjobs.Change

// The words of the specs.
var (
	newNamespace       = lockedjobs.NewNamespace
	keyOf              = client.ObjectKeyFromObject
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
	startReplicaWith   = lockedjobs.StartReplicaWith
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
)

var _ = BeforeSuite(func(ctx context.Context) {
	lockedjobs.Start(ctx)
	environment, manager, node = lockedjobs.Environment, lockedjobs.Manager, lockedjobs.Node
	admin, kubectl = lockedjobs.Admin, lockedjobs.Kubectl
})
