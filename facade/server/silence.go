package server

import (
	"context"
	"time"

	"forrst.dev/lock-operator/listener"
)

// BoundSilence ends the connection of the call if its client does not acknowledge for so long what it was sent, as when its machine
// has gone, and with it the context of the call. Of several calls on one connection the shortest time counts. Only Linux does so.
func BoundSilence(ctx context.Context, silence time.Duration) { listener.Of(ctx).BoundSilence(silence) }
