// Package bodies bounds the memory that the bodies of requests take in one process, whatever
// their protocol. The façade and the webhook each have a budget.
package bodies
