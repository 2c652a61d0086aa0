// Package forward calls functions that run in other services on behalf of callers of the
// façade.
//
// A [Client] sends a request where its route leads, and tells apart whether a call that
// failed may still be running. A [Forwarder] makes the request of a caller one of the
// façade, and the answer one for the caller. A [Lock] that ends with the function is renewed
// while the service may be running it, also when the caller has gone.
package forward
