// Package bodies reads the bodies of requests and takes room for them, whatever their protocol.
package bodies
