package contender

import (
	"bufio"
	"io"
	"net"
	"testing"
)

// The test plays the server, since redis-server is rarely installed.
func TestRedisLockSpeaksRESP(t *testing.T) {
	client, server := net.Pipe()
	redis := &redisLock{connection: client, reader: bufio.NewReader(client), owner: "me"}
	defer redis.Close()
	const request = "*6\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\nme\r\n$2\r\nNX\r\n$2\r\nPX\r\n$7\r\n1800000\r\n"
	for answer, isTaken := range map[string]bool{"+OK\r\n": true, "$-1\r\n": false} {
		go func() {
			sent := make([]byte, len(request))
			if _, err := io.ReadFull(server, sent); err != nil || string(sent) != request {
				t.Errorf("sent %q, want %q: %v", sent, request, err)
			}
			_, _ = io.WriteString(server, answer)
		}()
		if err := redis.Acquire(t.Context(), "k"); (err == nil) != isTaken {
			t.Errorf("acquire answered with %q: %v", answer, err)
		}
	}
}
