package server

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// Timeouts of connections. They do not bound calls: the timeout for reading ends with the
// body, and the one for writing begins anew with the answer, see [BeginAnswer].
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second
	writeTimeout      = 2 * time.Minute
	idleTimeout       = 2 * time.Minute
	// maxHeaderBytes is what the protocol asks for (docs/forrst.md, section 4.1), with room
	// for the token of a service account.
	maxHeaderBytes = 16 << 10

	// maxHeaderFields bounds what the headers of a request take in memory besides their bytes.
	maxHeaderFields = 100

	// maxStreams is how many calls one HTTP/2 connection may have at a time. A client with
	// more has to open another one.
	maxStreams = 2000
	// maxFrameBytes is the smallest bound that HTTP/2 permits. Each connection keeps room for the largest
	// frame that it was told of.
	maxFrameBytes = 16 << 10
	// maxUnreadBytes are kept of a body that is not read, and maxUnreadBytesOfConnection, the smallest bound
	// that HTTP/2 permits, of all bodies of a connection.
	maxUnreadBytes             = 32 << 10
	maxUnreadBytesOfConnection = 64 << 10
	// pingAfter is how long an HTTP/2 connection may be silent before it is pinged, and
	// pingTimeout how long the answer may take: calls of a client whose machine is gone must
	// not wait for locks.
	pingAfter   = 30 * time.Second
	pingTimeout = 15 * time.Second
)

// newHTTPServer returns a server for HTTP/1.1 and HTTP/2, with TLS or, if config is nil,
// without. The contexts of its calls come from ctx.
func newHTTPServer(ctx context.Context, handler http.Handler, config *tls.Config) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(config != nil)
	protocols.SetUnencryptedHTTP2(config == nil)
	return &http.Server{
		Handler:           handler,
		TLSConfig:         config,
		Protocols:         &protocols,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReadFrameSize:              maxFrameBytes,
			MaxReceiveBufferPerStream:     maxUnreadBytes,
			MaxReceiveBufferPerConnection: maxUnreadBytesOfConnection,
			SendPingTimeout:               pingAfter,
			PingTimeout:                   pingTimeout,
			WriteByteTimeout:              answerTimeout,
		},
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
}
