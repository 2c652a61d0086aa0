package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	ctrl "sigs.k8s.io/controller-runtime"

	"forrst.dev/lock-operator/auth"
)

// identityTimeout bounds the request for the own identity.
const identityTimeout = 10 * time.Second

// learnIdentity sets the user name of the operator, and the namespace of the leader's
// Lease, unless flags have set them. The façade alone needs neither.
func (o *options) learnIdentity(ctx context.Context, manager ctrl.Manager) error {
	if !o.runs(controllerComponent) && !o.runs(webhookComponent) {
		return nil
	}
	if o.operatorUser == "" {
		ctx, cancel := context.WithTimeout(ctx, identityTimeout)
		defer cancel()
		var err error
		if o.operatorUser, err = auth.Self(ctx, manager.GetConfig(), manager.GetHTTPClient()); err != nil {
			return err
		}
	}
	if o.leaderElectionNamespace == "" && o.leaderElect && o.runs(controllerComponent) {
		namespace, _, err := serviceaccount.SplitUsername(o.operatorUser)
		if err != nil {
			return fmt.Errorf("--leader-election-namespace: must be set, since the user %q is not a service account", o.operatorUser)
		}
		o.leaderElectionNamespace = namespace
	}
	return nil
}
