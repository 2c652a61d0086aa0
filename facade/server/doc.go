// Package server is what all doors of the façade share: listener, TLS, connections, limits,
// metrics, probes, and an orderly end. It knows no protocol above HTTP.
package server
