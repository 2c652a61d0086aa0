// Package testenv gives suites a real etcd and API server with the manifests of
// config/ installed, identities to act as, and the real kubectl.
package testenv
