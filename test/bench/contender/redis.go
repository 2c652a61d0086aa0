package contender

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"forrst.dev/lock-operator/test/bench/measure"
)

// redisDelete deletes a key only if it still belongs to the owner.
const redisDelete = `if redis.call("get",KEYS[1])==ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`

// redisStart bounds the start of Redis, and redisPoll is how often it is asked whether it has started.
const (
	redisStart = 3 * time.Second
	redisPoll  = 50 * time.Millisecond
)

// redisServer is a Redis without persistence on its own socket.
type redisServer struct {
	command *exec.Cmd
	dir     string
	socket  string
}

// ErrNoRedis says that this machine has no Redis, which fails no scenario.
var ErrNoRedis = errors.New("redis-server is not installed")

// startRedis starts a server. The caller stops it.
func startRedis(ctx context.Context) (*redisServer, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, ErrNoRedis
	}
	dir, err := os.MkdirTemp("", "lock-operator-redis-")
	if err != nil {
		return nil, err
	}
	server := &redisServer{dir: dir, socket: filepath.Join(dir, "redis.sock")}
	server.command = exec.CommandContext(ctx, path, "--port", "0", "--unixsocket", server.socket, "--save", "", "--appendonly", "no")
	if err := server.command.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	for deadline := time.Now().Add(redisStart); time.Now().Before(deadline); {
		connection, err := dialRedis(ctx, server.socket)
		if err == nil {
			return server, connection.Close()
		}
		if err := measure.WaitUntil(ctx, time.Now().Add(redisPoll)); err != nil {
			break
		}
	}
	server.stop()
	return nil, errors.New("redis-server did not start")
}

func (s *redisServer) stop() {
	_ = s.command.Process.Kill() // it may have ended already
	_ = s.command.Wait()         // killed
	_ = os.RemoveAll(s.dir)      // a temporary folder
}

func dialRedis(ctx context.Context, socket string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", socket)
}

// redisLock is SET NX PX and a scripted delete, the common lock on one server.
type redisLock struct {
	connection net.Conn
	reader     *bufio.Reader
	owner      string
}

// NewRedisLock starts a Redis, which the contender's stop ends. Without one it returns [ErrNoRedis].
func NewRedisLock(ctx context.Context) (measure.Contender, error) {
	server, err := startRedis(ctx)
	if err != nil {
		return measure.Contender{}, err
	}
	return measure.Contender{Name: "Redis SET NX PX", Open: func(ctx context.Context, client int) (measure.Locker, error) {
		connection, err := dialRedis(ctx, server.socket)
		if err != nil {
			return nil, err
		}
		return &redisLock{connection: connection, reader: bufio.NewReader(connection), owner: OwnerOf(client)}, nil
	}, Stop: server.stop}, nil
}

// Acquire implements [measure.Locker].
func (r *redisLock) Acquire(_ context.Context, key string) error {
	return r.command("+OK", "SET", key, r.owner, "NX", "PX", strconv.FormatInt(TTL.Milliseconds(), 10))
}

// Release implements [measure.Locker].
func (r *redisLock) Release(_ context.Context, key string) error {
	return r.command(":1", "EVAL", redisDelete, "1", key, r.owner)
}

// command sends a command and expects an answer of one line.
func (r *redisLock) command(want string, words ...string) error {
	var request strings.Builder
	fmt.Fprintf(&request, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := io.WriteString(r.connection, request.String()); err != nil {
		return err
	}
	line, err := r.reader.ReadString('\n')
	if err != nil {
		return err
	}
	if got := strings.TrimSpace(line); got != want {
		return fmt.Errorf("redis answered %q", got)
	}
	return nil
}

// Close implements [measure.Locker].
func (r *redisLock) Close() { _ = r.connection.Close() }
