// Package locktoken makes and reads lock tokens: texts that prove a grant to an HTTP service which makes
// the owner tokens of its callers, such as the REST door of the façade and the services with package
// lock/lockhttp. A token holds a secret, of which the service stores only a hash as the owner token.
package locktoken
