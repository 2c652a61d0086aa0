// Package lockhttp puts the resources of an HTTP service behind locks. A client of the service reserves
// a resource over several requests: it takes the lock, reads, decides, writes with the lock token, and
// releases the lock. Meanwhile no other client can write.
//
//	flags, err := lockhttp.New(lockhttp.Config{Client: locks, Key: keyOfFlag})
//	…
//	mux.Handle("/v1/flags/{flag}", flags.Handler(serveFlag))
//	mux.Handle("/v1/flags/{flag}/lock", flags.LockHandler())
//
// [Protection.Handler] lets reads pass, and runs each write under the lock: that of the token in the
// header X-Lock-Token or, without one, a lock of its own for the time of the request. So no write is
// outside the lock. [Protection.LockHandler] is the lock as a resource: POST acquires it, PUT renews,
// DELETE releases and GET reads it.
//
// The process keeps nothing: a token names its grant and is proved by the lock itself, so any replica
// serves any request. All replicas must have one identity, namespace and Config. The lock stores a hash
// of the token's secret, so reading Locks gives no power over what they protect.
//
// Who a client is and what it may do is the matter of the service, which authenticates and authorises
// before these handlers. The holder that they tell is the identity of the service.
package lockhttp
