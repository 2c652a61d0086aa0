// Package renewal renews the locks that are held for as long as their Lock exists: those with the renewalPolicy
// Operator.
package renewal
