package peers_test

import (
	"fmt"
	"net"
	"os"
	"testing"
)

// TestMain sets a proxy that does not exist: the environment is read once in a process. No address of loopback is
// reached through it.
func TestMain(m *testing.M) {
	if err := os.Setenv("HTTPS_PROXY", "http://127.0.0.1:1"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func TestReplicasMeetWithoutTheProxyOfTheEnvironment(t *testing.T) {
	p := connect(t)
	_, port, err := net.SplitHostPort(p.serving)
	check(t, err)
	// It is this machine as well, and not an address of loopback.
	p.write("members", fmt.Sprintf("b: 0.0.0.0:%s\n", port))
	p.watch(serverName)
	p.mustMeet()
}
