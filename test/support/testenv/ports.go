package testenv

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
)

// Ports are given out one after the other from blocks that are this process's own: two that are free would else be the same
// one now and then, before a process listens at either, and suites that run side by side would give out the same.
var (
	portsMutex sync.Mutex
	// blocks are the listeners at the first ports of this process's blocks.
	blocks []net.Listener
	// nextBlock is where the search for a block goes on, nextPort the next port of the present block.
	nextBlock, nextPort = firstPort, firstPort
)

// The ports are below those that systems give to connections, of which one might have the port before the process that is to
// listen there, or while it is started anew.
const firstPort, lastPort, portsPerBlock = 20_000, 30_000, 50

// FreeAddress returns a loopback address that no process listens on, and that it has not returned before. A process that is
// started anew may listen there again: nothing else takes the port meanwhile.
func FreeAddress(ctx context.Context) (string, error) {
	portsMutex.Lock()
	defer portsMutex.Unlock()
	for {
		if nextPort%portsPerBlock == 0 {
			if err := claimBlock(ctx); err != nil {
				return "", err
			}
		}
		address := loopback(nextPort)
		nextPort++
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if err != nil {
			continue
		}
		return address, listener.Close()
	}
}

// claimBlock makes a block of ports this process's own by listening at its first port until the process ends.
func claimBlock(ctx context.Context) error {
	for ; nextBlock < lastPort; nextBlock += portsPerBlock {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", loopback(nextBlock))
		if err != nil {
			continue
		}
		blocks = append(blocks, listener)
		nextPort, nextBlock = nextBlock+1, nextBlock+portsPerBlock
		return nil
	}
	return errors.New("other processes have all ports")
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
