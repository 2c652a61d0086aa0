// Package client asks a façade for locks over HTTP. It is one of the backends of
// package lock, for programs that have no access to the API server.
//
// An answer can be lost although the façade did what it was asked for. So the client
// chooses the owner token before it asks, and after a lost answer looks whether the
// lock is held under it: see [Client.Acquire].
package client
