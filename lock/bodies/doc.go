// Package bodies reads the bodies of requests and takes room for them, whatever their protocol. The
// façade and the webhook each have a budget of their own.
package bodies
