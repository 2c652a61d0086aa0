package listener

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"

	"github.com/go-logr/logr"
)

// connKey is the key of the [*Conn] in the contexts of its requests.
type connKey struct{}

// Track has [Of] find the connection of each request of the server, which must serve a [Listener]. What the server says of its
// connections is logged at verbosity 1 only: any client can cause it any number of times.
func Track(server *http.Server, logger logr.Logger) {
	server.ErrorLog = slog.NewLogLogger(logr.ToSlogHandler(logger.V(1)), slog.LevelInfo)
	server.ConnContext = func(ctx context.Context, made net.Conn) context.Context {
		if secured, ok := made.(*tls.Conn); ok {
			made = secured.NetConn()
		}
		return context.WithValue(ctx, connKey{}, made)
	}
}

// Of returns the connection of a request from its context. It is nil if that is not known.
func Of(ctx context.Context) *Conn {
	c, _ := ctx.Value(connKey{}).(*Conn)
	return c
}
