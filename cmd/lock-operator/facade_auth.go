package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"slices"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"

	"forrst.dev/lock-operator/auth"
	"forrst.dev/lock-operator/facade/forrst"
)

// How the façade authenticates its callers.
const (
	authNone  = "none"
	authToken = "token"
)

// facadeAuthOptions are the flags that say whom the façade serves.
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

// newAccess returns what tells the façade's callers apart, or nil if nothing does.
func newAccess(manager ctrl.Manager, settings options) (forrst.Access, error) {
	log := manager.GetLogger().WithName("facade")
	if settings.facadeAuth.mode == authNone {
		log.Info("Façade authenticates nobody: every program on this machine can take and release its locks",
			"address", settings.facadeAddr, "namespace", settings.facadeNamespace)
		return nil, nil
	}
	if settings.facadeServer.tlsCertFile == "" {
		log.Info("Façade serves without TLS: bearer tokens can be read on the way to it", "address", settings.facadeAddr)
	}
	return auth.New(manager.GetConfig(), manager.GetHTTPClient(), auth.Options{Audiences: settings.facadeAuth.audienceList()})
}
