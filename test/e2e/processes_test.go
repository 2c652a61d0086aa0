package e2e_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/sets"
)

// processes returns the processes of the cluster in the folder, by the lock file that
// the supervisor opens and all processes that it starts inherit. They are found after
// the supervisor has ended, too, and whatever the folders on their command lines are called.
func processes(dir string) []int {
	GinkgoHelper()
	links, err := filepath.Glob("/proc/[0-9]*/fd/*")
	Expect(err).NotTo(HaveOccurred())
	claim := filepath.Join(dir, "devcluster.lock")
	found := sets.New[int]()
	for _, link := range links {
		if target, _ := os.Readlink(link); target == claim { // closed meanwhile
			pid, err := strconv.Atoi(strings.Split(link, "/")[2])
			Expect(err).NotTo(HaveOccurred())
			found.Insert(pid)
		}
	}
	return sets.List(found)
}

// process returns the one process of the cluster that runs the program.
func (c *cluster) process(name string) int {
	GinkgoHelper()
	var found []int
	for _, pid := range processes(c.dir) {
		if program(pid) == name {
			found = append(found, pid)
		}
	}
	Expect(found).To(HaveLen(1), "processes of %s", name)
	return found[0]
}

// program returns the name that the process was started by.
func program(pid int) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // ended meanwhile
	path, _, _ := strings.Cut(string(line), "\x00")
	return filepath.Base(path)
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

// refuses reports whether no process listens on the address.
func refuses(address string) bool {
	connection, err := net.Dial("tcp", address) //nolint:noctx // loopback answers at once
	if err != nil {
		return true
	}
	_ = connection.Close()
	return false
}
