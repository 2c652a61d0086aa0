package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/util/cert"
)

const (
	// peersAudience is the audience of the tokens that replicas show each other.
	peersAudience = "peers.lock-operator.forrst.dev"
	// replicasName is the name in the certificate of the replicas.
	replicasName = "replicas.bench"
)

// replica is a process that serves the façade of the cluster alone, without limits of callers.
type replica struct {
	address, probes, log string
	pid                  int
}

// startReplica starts one with flags and a file for its log. It ends with the scenario.
func (b *bench) startReplica(log string, flags ...string) *replica {
	r := &replica{address: freeAddress(b), probes: freeAddress(b), log: log}
	command := exec.Command(filepath.Join(b.options.root, "bin", "lock-operator"), append([]string{
		"--components=facade", "--kubeconfig=" + b.operatorKubeconfig(), "--leader-election-namespace=" + operatorNamespace,
		"--facade-bind-address=" + r.address, "--health-probe-bind-address=" + r.probes, "--metrics-bind-address=0", "--facade-shutdown-delay=0s",
		"--facade-auth=none", "--facade-max-rate-per-caller=0", "--max-locks-per-namespace=0",
	}, flags...)...)
	file := must(os.Create(log))
	defer func() { _ = file.Close() }() // the process has it
	command.Stderr = file
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	check(command.Start())
	b.cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait() // how it ends is of no interest: it has been measured
	})
	r.pid = command.Process.Pid
	return r
}

// isReady reports whether the readiness probe succeeds.
func (r *replica) isReady(ctx context.Context) bool {
	response, err := http.DefaultClient.Do(must(http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.probes+"/readyz", http.NoBody)))
	if err != nil {
		return false
	}
	_ = response.Body.Close() // the status is all there is to it
	return response.StatusCode == http.StatusOK
}

// freeAddress returns a loopback address that nothing listens on.
func freeAddress(ctx context.Context) string {
	listener := must(new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"))
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// startReplicas starts so many façades, which share their lines if there are several, and waits until each has met all others.
// They serve TLS, and everything to everybody.
func (b *bench) startReplicas(number int) facade {
	folder := b.temporaryFolder()
	path := func(name string) string { return filepath.Join(folder, name) }
	certificate, key, err := cert.GenerateSelfSignedCertKey(replicasName, nil, nil)
	check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	var members strings.Builder
	peers := make([]string, number)
	for index := range peers {
		peers[index] = freeAddress(b)
		fmt.Fprintf(&members, "replica-%d: %s\n", index, peers[index])
	}
	for name, content := range map[string]string{
		"tls.crt": string(certificate), "tls.key": string(key), "members": members.String(),
		"token": b.token(b, operatorNamespace, operatorName, peersAudience),
	} {
		check(os.WriteFile(path(name), []byte(content), 0o600))
	}
	var replicas []*replica
	for index, address := range peers {
		flags := []string{"--facade-tls-cert-file=" + path("tls.crt"), "--facade-tls-key-file=" + path("tls.key")}
		if number > 1 {
			flags = append(flags, "--peers-bind-address="+address, "--peers-server-name="+replicasName, "--peers-file="+path("members"),
				fmt.Sprintf("--peers-replica=replica-%d", index), "--peers-token-file="+path("token"), "--peers-authority-file="+path("tls.crt"))
		}
		replicas = append(replicas, b.startReplica(path(fmt.Sprintf("%d.log", index)), flags...))
	}
	f := facade{operator: replicas[0].pid, tls: &tls.Config{RootCAs: roots, ServerName: replicasName, MinVersion: tls.VersionTLS13}}
	met := regexp.MustCompile("Sharing lines" + strings.Repeat(".*replica-[0-9]+", number))
	for index, r := range replicas {
		b.await(fmt.Sprintf("replica %d of %d has met the others", index, number), func() bool {
			return r.isReady(b) && (number == 1 || met.Match(must(os.ReadFile(r.log))))
		})
		f.addresses = append(f.addresses, r.address)
	}
	return f
}

// replicaStart says how a replica of the façade started: the times from the start of its process.
type replicaStart struct {
	// firstAcquire is until it answered an acquire that does not wait, ready until its readiness probe succeeded, and full
	// until it reported, at most once a second, that its cache had all locks.
	firstAcquire, ready, full time.Duration
	// processor is the processor time until it was idle again, and peak the largest resident memory in KiB.
	processor time.Duration
	peak      float64
}

// measureStart starts another replica of the façade, and measures it until it is idle.
func (b *bench) measureStart() (start replicaStart) {
	started := time.Now()
	r := b.startReplica(filepath.Join(b.temporaryFolder(), "log"))
	f, owner := facade{addresses: []string{r.address}}, ownerOf(0)
	note := func(took *time.Duration, isSo bool) {
		if *took == 0 && isSo {
			*took = time.Since(started)
		}
	}
	for start.firstAcquire == 0 || start.ready == 0 || start.full == 0 {
		note(&start.ready, start.ready == 0 && r.isReady(b))
		if c, err := f.dial(b, 0); err == nil {
			switch {
			case start.firstAcquire == 0:
				note(&start.firstAcquire, c.call(b, acquireCall("first", owner, 0), `"acquired":true`) == nil)
				_ = c.call(b, releaseCall("first", owner), "") // nobody waits for it
			case start.ready > 0:
				// The answer takes a second as long as the cache is not full.
				note(&start.full, c.call(b, functionCall(`"forrst.health"`, ""), `"cache":{"status":"healthy"`) == nil)
			}
			c.hangUp()
		}
		check(waitUntil(b, time.Now().Add(pollEvery)))
	}
	awaitIdle(b, r.pid)
	start.processor, start.peak = cpuTime(r.pid), kibibytes(r.pid, peakResident)
	return start
}
