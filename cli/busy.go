package cli

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"

	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/cli/terminal"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/rules"
)

// busy says who holds a lock, as people say it. The error matches [lock.ErrHeld].
func busy(ctx context.Context, s *session.Session, err error) string {
	held, ok := errors.AsType[*lock.HeldError](err)
	switch {
	case !ok:
		return err.Error()
	case held.IsExpired:
		return terminal.Clean(held.Key.Bare()) + " has expired, but is kept a moment longer, since clocks may differ"
	case held.Holder == "":
		return terminal.Clean(held.Key.Bare()) + " is held"
	}
	holder := terminal.Clean(held.Holder)
	if isMe(ctx, s, held) {
		holder = "you"
	}
	text := fmt.Sprintf("%s is held by %s; it ends %s unless it is renewed", terminal.Clean(held.Key.Bare()), holder, s.Times().In(held.ExpireTime))
	if errors.Is(err, lock.ErrTimeout) {
		return "the wait is over: " + text
	}
	return text
}

// isMe reports whether the user is known to be the holder. A façade does not tell.
func isMe(ctx context.Context, s *session.Session, held *lock.HeldError) bool {
	if s.UsesFacade() {
		return false
	}
	cluster, err := s.Cluster()
	if err != nil {
		return false
	}
	var review authenticationv1.SelfSubjectReview
	if err := cluster.Create(ctx, &review); err != nil {
		return false
	}
	user := review.Status.UserInfo
	return user.Username != "" && held.IsBy(rules.User{Name: user.Username, UID: user.UID})
}
