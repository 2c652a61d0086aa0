package forrst_test

import (
	"context"
	"net/http"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"forrst.dev/lock-operator/facade/access"
)

// fakeAccess takes the word of a function for who calls.
type fakeAccess struct {
	who func(*http.Request) (user.Info, error)
	// judge says what a user may do. Nil means everything.
	judge func(who user.Info, right authorizationv1.ResourceAttributes) error

	mu sync.Mutex
	// asked are the questions, as "verb namespace" or "verb namespace/name".
	asked []string
}

// Authenticate implements [access.Access].
func (a *fakeAccess) Authenticate(request *http.Request) (user.Info, error) { return a.who(request) }

// Authorize implements [access.Access].
func (a *fakeAccess) Authorize(_ context.Context, who user.Info, right authorizationv1.ResourceAttributes) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	asked := right.Verb + " " + right.Namespace
	if right.Name != "" {
		asked += "/" + right.Name
	}
	a.asked = append(a.asked, asked)
	if a.judge == nil {
		return nil
	}
	return a.judge(who, right)
}

// identified lets everyone do everything, under the name that the function returns. No
// function means no identities.
func identified(name func(*http.Request) string) access.Access {
	if name == nil {
		return nil
	}
	return &fakeAccess{who: func(r *http.Request) (user.Info, error) { return &user.DefaultInfo{Name: name(r)}, nil }}
}
