package main

// How the façade authenticates its callers.
const (
	authNone  = "none"
	authToken = "token"
)
