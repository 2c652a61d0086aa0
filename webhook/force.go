package webhook

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/rules"
)

// forceReleaseVerb is the right to end locks of other holders before they expire.
const forceReleaseVerb = "force-release"

// authorizeTimeout is below the API server's timeout for the webhook: the user must get the
// reason of a refusal rather than a timeout.
const authorizeTimeout = 3 * time.Second

// forbiddenError says that the user lacks a right, or that this could not be found out.
type forbiddenError struct {
	// held is the lock for which the right is needed. Nil if it is none.
	held    *rules.HeldError
	message string
}

func (e *forbiddenError) Error() string {
	if e.held == nil {
		return e.message
	}
	return heldText(e.held) + e.message
}

// authorizeForce checks that the user may take the lock of the name from its holder. It
// fails closed.
//
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
func (a *LockAdmission) authorizeForce(ctx context.Context, request admission.Request, name string, held *rules.HeldError) error {
	isAllowed, err := isAllowed(ctx, a.Authorizer, request, forceReleaseOf(name))
	switch {
	case isAllowed:
		return nil
	case apierrors.IsTooManyRequests(err):
		return err
	case err != nil:
		logf.FromContext(ctx).Error(err, "Could not find out whether a user may force the release of a Lock",
			"namespace", request.Namespace, "lock", name, "user", request.UserInfo.Username)
		return &forbiddenError{held: held, message: ", and whether you may force its release could not be found out; try again"}
	default:
		return &forbiddenError{held: held, message: fmt.Sprintf("; wait until it is free, or ask a user who has the verb %s on %s in namespace %q to force its release",
			forceReleaseVerb, lockResource, request.Namespace)}
	}
}

// forceReleaseOf is what a user may who may take the lock of the name from its holder.
func forceReleaseOf(name string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		Verb:       forceReleaseVerb,
		APIGroup:   v1alpha1.GroupVersion.Group,
		APIVersion: v1alpha1.GroupVersion.Version,
		Resource:   lockResource.Resource,
		Name:       name,
	}
}

// isAllowed reports whether the user of the request may do what the attributes say, in the namespace
// of the request. If not, an error says that the right is not known.
func isAllowed(ctx context.Context, by authorizer.Authorizer, request admission.Request, attributes authorizer.AttributesRecord) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, authorizeTimeout)
	defer cancel()
	attributes.User, attributes.Namespace, attributes.ResourceRequest = userOf(request.UserInfo), request.Namespace, true
	decision, _, err := by.Authorize(ctx, attributes)
	return decision == authorizer.DecisionAllow, err
}

func userOf(info authenticationv1.UserInfo) user.Info {
	extra := make(map[string][]string, len(info.Extra))
	for key, values := range info.Extra {
		extra[key] = values
	}
	return &user.DefaultInfo{Name: info.Username, UID: info.UID, Groups: info.Groups, Extra: extra}
}
