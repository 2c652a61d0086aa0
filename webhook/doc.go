// Package webhook admits the changes that users make to Locks directly, with
// kubectl, GitOps tools and client-go.
//
// One mutating callback judges and stamps at once: a verdict on a create needs
// the times that are stamped with it, and a second, validating callback would
// double the cost of a direct create. What is stamped is checked once more by the
// rules of the schema, which hold with the webhook away.
//
// The operator's own service account is exempt by matchConditions: façade and controllers
// apply the same rules before they write. See [Exemption].
package webhook
