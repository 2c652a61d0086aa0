package failure

import (
	"crypto/tls"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"forrst.dev/lock-operator/lock"
)

// What to do about a service that serves the caller nothing.
const (
	doLogIn       = "log in again, or name another user of your kubeconfig with --user; for a façade, a file with a valid token with --token-file"
	doImpersonate = "leave --as out, or ask an administrator of the cluster for the right to impersonate"
	doTrust       = "name the authority of its certificate by --certificate-authority, or correct your kubeconfig; see that the address is right"
)

// Contact says why an API server or a façade served nothing to the caller, in words that follow on its name, and what to do.
func Contact(err error) (what, do string) {
	switch {
	case isUnauthenticated(err):
		return "it does not know you", doLogIn
	case isImpersonation(err):
		return "it does not let you act as another user", doImpersonate
	case apierrors.IsForbidden(err):
		return "it refuses you", doAskRights
	case isUntrusted(err):
		return "its certificate is not trusted", doTrust
	case strings.Contains(err.Error(), "remote error: tls"):
		return "it does not accept your certificate", doLogIn
	case strings.Contains(err.Error(), "getting credentials: "):
		return "your credentials were not to be had", doLogIn
	case apierrors.ReasonForError(err) != "":
		return "it answers with an error", "see that the address is that of an API server, and ask those who run the cluster"
	}
	return "it does not answer", "see that the address is right and a network path leads there"
}

func isUnauthenticated(err error) bool {
	return errors.Is(err, lock.ErrUnauthenticated) || apierrors.IsUnauthorized(err)
}

// isImpersonation reports whether the caller may not act as the user of --as.
func isImpersonation(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot impersonate")
}

func isUntrusted(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok
}
