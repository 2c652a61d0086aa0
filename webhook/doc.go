// Package webhook admits the changes that users make to Locks directly, with
// kubectl, GitOps tools and client-go.
//
// One mutating callback judges and stamps at once: a verdict on a create needs
// the times that are stamped with it, and a second, validating callback would
// double the cost of a direct create. The rules of the schema check the stamps once more;
// they hold even if the webhook is down.
//
// The operator's own service account is exempt by matchConditions: façade and controllers
// apply the same rules before they write. See [Exemption].
package webhook
