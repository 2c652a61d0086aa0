package limits

import (
	"net/http"
	"net/netip"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"forrst.dev/lock-operator/lock/network"
)

// Caller is whose limits a call counts against: an authenticated user or a network. All
// requests without an internet address are one caller.
type Caller struct {
	user    string
	network netip.Prefix
	// namespace is that of a service account, whatever namespace its calls are about: its owner can make as many accounts as it
	// likes. Empty if the caller is no service account.
	namespace string
}

// CallerOf returns the caller of a request with the name of its user, which is
// [user.Anonymous] where callers are not authenticated.
func CallerOf(r *http.Request, name string) Caller {
	if name != user.Anonymous {
		return Caller{user: name, namespace: namespaceOf(name)}
	}
	return Caller{network: network.Of(r.RemoteAddr)}
}

// namespaceOf returns the namespace of a service account, or "" for other users. The API server
// has authenticated the name.
func namespaceOf(name string) string {
	account, ok := strings.CutPrefix(name, serviceaccount.ServiceAccountUsernamePrefix)
	if !ok {
		return ""
	}
	namespace, _, _ := strings.Cut(account, serviceaccount.ServiceAccountUsernameSeparator)
	return namespace
}

// TenantOf returns whose calls take turns with each other, see [Turns]: those of the service accounts of a namespace, or those
// of any other user.
func TenantOf(user string) string {
	if namespace := namespaceOf(user); namespace != "" {
		return "namespace " + namespace
	}
	return user
}
