package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"slices"
	"strings"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"forrst.dev/lock-operator/auth"
	"forrst.dev/lock-operator/facade/access"
)

// How the façade authenticates its callers.
const (
	authNone  = "none"
	authToken = "token"
)

// facadeAuthOptions are the flags for the authentication of the façade's callers.
type facadeAuthOptions struct {
	mode, audiences string
}

func (o *facadeAuthOptions) bindFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.mode, "facade-auth", authToken, "How the façade authenticates its callers: token, by bearer tokens that the API server reviews, or none, on loopback only.")
	flags.StringVar(&o.audiences, "facade-audiences", "", "Audiences, separated by commas, of which bearer tokens must be for one. Empty for those of the API server.")
}

func (o *facadeAuthOptions) validate(address string) error {
	switch {
	case o.mode != authNone && o.mode != authToken:
		return fmt.Errorf("--facade-auth: %q is neither %s nor %s", o.mode, authToken, authNone)
	case o.mode == authNone && !isLoopback(address):
		return fmt.Errorf("--facade-bind-address: %q is not a loopback address; with --facade-auth=none the façade must not be reached from elsewhere", address)
	case o.mode == authNone && o.audiences != "":
		return errors.New("--facade-audiences: needs --facade-auth=token")
	case slices.Contains(o.audienceList(), ""):
		return fmt.Errorf("--facade-audiences: %q has an empty one", o.audiences)
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("--facade-bind-address: %w", err)
	}
	return nil
}

func (o *facadeAuthOptions) audienceList() []string {
	if o.audiences == "" {
		return nil
	}
	return strings.Split(o.audiences, ",")
}

// newAccess returns what decides about the façade's callers.
func newAccess(manager ctrl.Manager, settings options, now clock.PassiveClock) (*access.Control, error) {
	log := manager.GetLogger().WithName("facade")
	if settings.facadeAuth.mode == authNone {
		log.Info("Façade does not authenticate its callers: every program on this machine can take and release its locks",
			"address", settings.facadeAddr, "namespace", settings.facadeNamespace)
		return access.New(access.Options{Namespace: settings.facadeNamespace, Clock: now})
	}
	if settings.facadeServer.tlsCertFile == "" {
		log.Info("Façade serves without TLS: bearer tokens can be read in transit", "address", settings.facadeAddr)
	}
	reviews, err := auth.New(manager.GetConfig(), manager.GetHTTPClient(), auth.Options{Audiences: settings.facadeAuth.audienceList()})
	if err != nil {
		return nil, err
	}
	return access.New(access.Options{Access: reviews, Clock: now})
}
