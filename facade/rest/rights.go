package rest

import (
	"errors"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/lock"
)

// verbs are those that a caller is told whether it has.
var verbs = []string{access.VerbGet, access.VerbList, access.VerbWatch, access.VerbCreate, access.VerbPrioritize, access.VerbForceRelease}

// rights answers GET of what the caller may do: with all locks, with those of a namespace, or with one lock.
func (c *call) rights() (*answer, error) {
	var found mistakes
	namespace := c.query.text("namespace")
	var single func() v1alpha1.FullKey
	if c.query.has("key") {
		if namespace == "" {
			found.Add(FieldError{In: inQuery, Field: "namespace", Detail: "is required with key"})
		}
		name := c.nameOf(c.query.text("key"), inQuery, &found)
		single = name.fullKey
	}
	c.query.refuseOthers(&found)
	if err := found.Problem(); err != nil {
		return nil, err
	}
	var err error
	if c.Caller.Namespace, err = c.readNamespace(namespace); err != nil {
		return nil, err
	}
	told := wire.Rights{
		User: c.Caller.Holder(), IsAuthenticated: c.Caller.IsAuthenticated, OwnNamespace: c.config.Access.Everywhere(), Verbs: []string{},
	}
	if own, _, err := serviceaccount.SplitUsername(told.User); err == nil {
		told.OwnNamespace = own
	}
	for _, verb := range verbs {
		err := c.config.Access.Authorize(c.Request.Context(), &c.Caller, verb, single)
		switch {
		case err == nil:
			told.Verbs = append(told.Verbs, verb)
		case !errors.Is(err, lock.ErrForbidden):
			return nil, err
		}
	}
	return &answer{status: http.StatusOK, body: told}, nil
}
