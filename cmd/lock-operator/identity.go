package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	ctrl "sigs.k8s.io/controller-runtime"

	"forrst.dev/lock-operator/auth"
	"forrst.dev/lock-operator/lock/engine"
)

const (
	// identityTimeout bounds one request for the own identity.
	identityTimeout = 10 * time.Second
	// identityPause is how long to wait for an API server that is away.
	identityPause = time.Second
)

// learnIdentity sets the user name of this process, and the namespace of the operator, unless flags have
// set them; the other processes have that name, too, unless flags give others. It waits for the API
// server. The façade needs its name for its other replicas alone.
func (o *options) learnIdentity(ctx context.Context, manager ctrl.Manager) error {
	if o.runs(facadeComponent) && o.peers.isOn() {
		var err error
		if o.peers.user, err = self(ctx, manager); err != nil {
			return err
		}
	}
	if !o.runs(controllerComponent) && !o.runs(webhookComponent) {
		return nil
	}
	if o.operatorUser == "" {
		var err error
		if o.operatorUser, err = self(ctx, manager); err != nil {
			return err
		}
	}
	o.facadeUser, o.controllersUser = cmp.Or(o.facadeUser, o.operatorUser), cmp.Or(o.controllersUser, o.operatorUser)
	if o.leaderElectionNamespace != "" || !o.runs(controllerComponent) {
		return nil
	}
	namespace, _, err := serviceaccount.SplitUsername(o.operatorUser)
	if err != nil && o.leaderElect {
		return fmt.Errorf("--leader-election-namespace: must be set, since the user %q is not a service account", o.operatorUser)
	}
	o.leaderElectionNamespace = namespace
	return nil
}

// self asks for the own identity until the API server answers.
func self(ctx context.Context, manager ctrl.Manager) (string, error) {
	for isReported := false; ; isReported = true {
		user, err := askForSelf(ctx, manager)
		if err == nil || ctx.Err() != nil || !isAway(err) {
			return user, err
		}
		if !isReported {
			manager.GetLogger().Error(err, "Waiting for the API server to tell the own user name")
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-time.After(identityPause):
		}
	}
}

func askForSelf(ctx context.Context, manager ctrl.Manager) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	return auth.Self(ctx, manager.GetConfig(), manager.GetHTTPClient())
}

// isAway reports whether the API server could not be reached, or cannot serve yet: until it has
// loaded the roles, it refuses everything.
func isAway(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || engine.MayHaveHappened(err) || apierrors.IsTooManyRequests(err) || apierrors.IsForbidden(err)
}
