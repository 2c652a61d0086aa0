package e2e_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// processes returns the processes with all of the words in their command line.
func processes(words ...string) []int {
	GinkgoHelper()
	entries, err := os.ReadDir("/proc")
	Expect(err).NotTo(HaveOccurred())
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// A process that has ended meanwhile has no command line.
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		matches := len(line) > 0
		for _, word := range words {
			matches = matches && bytes.Contains(line, []byte(word))
		}
		if matches {
			found = append(found, pid)
		}
	}
	return found
}

// process returns the one process of the cluster that runs the program.
func (c *cluster) process(program string) int {
	GinkgoHelper()
	found := processes(c.dir, program)
	found = exclude(found, c.session.Command.Process.Pid)
	Expect(found).To(HaveLen(1), "processes of %s", program)
	return found[0]
}

func exclude(pids []int, pid int) []int {
	var rest []int
	for _, candidate := range pids {
		if candidate != pid {
			rest = append(rest, candidate)
		}
	}
	return rest
}

func signal(pid int, with syscall.Signal) {
	GinkgoHelper()
	Expect(syscall.Kill(pid, with)).To(Succeed())
}

// listeners returns the loopback addresses that the processes listen on.
func listeners(pids ...int) []string {
	GinkgoHelper()
	sockets := map[string]bool{}
	for _, pid := range pids {
		links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		Expect(err).NotTo(HaveOccurred())
		for _, link := range links {
			target, _ := os.Readlink(link) // closed meanwhile
			if inode, ok := strings.CutPrefix(target, "socket:["); ok {
				sockets[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	var addresses []string
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		content, err := os.ReadFile(table)
		Expect(err).NotTo(HaveOccurred())
		for line := range strings.Lines(string(content)) {
			fields := strings.Fields(line)
			const listening = "0A"
			if len(fields) < 10 || fields[3] != listening || !sockets[fields[9]] {
				continue
			}
			addresses = append(addresses, fields[1])
		}
	}
	return addresses
}

// isLoopback reports whether an address of /proc/net/tcp is on loopback.
func isLoopback(address string) bool {
	host, _, _ := strings.Cut(address, ":")
	return host == "0100007F" || host == "00000000000000000000000001000000" || host == "0000000000000000FFFF00000100007F"
}

// refuses reports whether nobody listens on the address.
func refuses(address string) bool {
	connection, err := net.Dial("tcp", address) //nolint:noctx // loopback answers at once
	if err != nil {
		return true
	}
	_ = connection.Close()
	return false
}
