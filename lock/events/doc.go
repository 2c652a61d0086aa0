// Package events tells people by Kubernetes Events what happened to locks in their
// namespace that they may not expect. What locks live through every day, such as grants
// and renewals, is no Event: it would be a write for each.
package events
