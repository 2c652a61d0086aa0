// Package listener bounds the connections of a port, in all and for each network, so that a client that opens thousands of
// them keeps no other one out.
package listener
