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
// outside the lock, except by work that outlives the handler, such as that of a hijacked connection or of a
// handler inside [net/http.TimeoutHandler]. [Protection.LockHandler] is the lock as a resource: POST
// acquires it, PUT renews, DELETE releases and GET reads it.
//
// The process keeps nothing: a token names its grant and is proved by the lock itself, so any replica
// serves any request. All replicas must have one identity, namespace and Config. The lock stores a hash
// of the token's secret, so reading Locks lets no client write what they protect. It lets no client end them
// either, unless a façade serves the namespace without authentication (--facade-auth=none): then any program
// on that machine can read the owner token and release the lock, and only the fencing token excludes the writes
// of its former holder.
//
// Who a client is and what it may do is the matter of the service, which authenticates and authorises
// before these handlers. The holder that they tell is the identity of the service.
package lockhttp
