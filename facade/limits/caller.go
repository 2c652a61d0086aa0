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
	// namespace is that of a service account. Whatever namespace its calls are about, they count
	// against this one: its owner can make as many accounts as it likes, and callers cannot use up
	// the share of a namespace that is not theirs. Empty if the caller is no service account.
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
