// Package server serves the webhooks of admission. It is a [webhook.Server] of controller-runtime
// that knows its clients, if it is told by which certificates, and bounds what the others can use
// up: connections, time, memory, and requests to the API server that reviews cost.
//
// The API server calls webhooks by HTTP/1.1, so nothing else is served.
//
// [webhook.Server]: https://pkg.go.dev/sigs.k8s.io/controller-runtime/pkg/webhook#Server
package server
