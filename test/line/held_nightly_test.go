//go:build nightly

package line_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/test/support/fixture"
)

const (
	// held is how many connections hold a lock each, and heldFor for how many seconds. One in ten is that of a client which is
	// killed. LINE_HELD and LINE_HELD_SECONDS set other numbers.
	held    = 1000
	heldFor = 600
)

var _ = Describe("Connections that hold locks", Label("nightly"), func() {
	It("keep them while all replicas are replaced in turn, and lose them when their clients are killed", func(ctx context.Context) {
		number := numberOf("LINE_HELD", held)
		killed := number / 10
		until := time.After(time.Duration(numberOf("LINE_HELD_SECONDS", heldFor)) * time.Second)
		installed := install(ctx, 3)
		namespace := environment.Namespace(ctx, "line-")
		environment.AllowWorkers(ctx, namespace)
		token := tokenOf(ctx, namespace, fixture.Worker, audience)
		service := newService(ctx, installed.nextDoor())
		holding, end := context.WithCancel(ctx)
		defer end()
		var all sync.WaitGroup
		holders := make([]*connectedHolder, number-killed)
		for index := range holders {
			holders[index] = &connectedHolder{
				url:   fmt.Sprintf("https://%s/v1/namespaces/%s/locks/job-%d?hold=true", service.listener.Addr(), namespace, index),
				token: token, transport: installed.transport, events: make(chan string, 1),
			}
			all.Go(func() {
				defer GinkgoRecover()
				Expect(holders[index].run(holding)).To(MatchError(context.Canceled), "%s", holders[index].url)
			})
		}
		for _, each := range holders {
			Eventually(each.events).WithContext(ctx).WithTimeout(patience).Should(Receive(Equal(wire.EventAcquired)))
		}
		for index, old := range append([]*replica(nil), installed.all...) {
			installed.start(ctx)
			installed.meet(ctx)
			installed.all = installed.all[1:]
			old.process.Terminate()
			installed.tell()
			Eventually(old.process).WithTimeout(patience).Should(gexec.Exit())
			GinkgoWriter.Printf("replica %d of 3 is replaced\n", index+1)
		}

		clients := make([]*exec.Cmd, killed)
		for index := range clients {
			door := installed.all[index%len(installed.all)].address
			clients[index] = exec.Command("curl", "-sSN", "--http1.1", "--cacert", installed.path("tls.crt"), "-H", "Authorization: Bearer "+token, "--json", `{"ttl_seconds": 3600}`,
				fmt.Sprintf("https://%s/v1/namespaces/%s/locks/killed-%d?hold=true", door, namespace, index))
			output, err := clients[index].StdoutPipe()
			Expect(err).NotTo(HaveOccurred())
			clients[index].Stderr = GinkgoWriter
			Expect(clients[index].Start()).To(Succeed())
			DeferCleanup(func() { _ = clients[index].Process.Kill() }) // It may have been killed.
			line, err := bufio.NewReader(output).ReadString('\n')
			Expect(err).NotTo(HaveOccurred())
			Expect(line).To(Equal("event: acquired\n"))
		}
		Expect(countLocks(ctx, namespace)).To(Equal(number))
		began := time.Now()
		for _, each := range clients {
			Expect(each.Process.Kill()).To(Succeed())
			_ = each.Wait() // It was killed.
		}
		Eventually(countLocks).WithArguments(ctx, namespace).WithTimeout(patience).Should(Equal(number - killed))
		GinkgoWriter.Printf("the locks of %d clients were free %s after they were killed\n", killed, time.Since(began))

		<-until
		Expect(countLocks(ctx, namespace)).To(Equal(number - killed))
		end()
		all.Wait()
		Eventually(countLocks).WithArguments(ctx, namespace).WithTimeout(patience).Should(BeZero())
		renewals := 0
		for _, each := range holders {
			Expect(each.connections).To(BeNumerically(">", 1), "%s", each.url)
			renewals += each.renewals
		}
		GinkgoWriter.Printf("%d locks were renewed %d times\n", len(holders), renewals)
	})
})

func countLocks(ctx context.Context, namespace string) (int, error) {
	var locks metav1.PartialObjectMetadataList
	locks.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("LockList"))
	err := environment.Admin.Client.List(ctx, &locks, client.InNamespace(namespace))
	return len(locks.Items), err
}

// connectedHolder holds a lock by one connection after the other.
type connectedHolder struct {
	url, token string
	transport  http.RoundTripper
	// events receives the names of events as long as there is room.
	events                chan string
	connections, renewals int
	lock                  wire.Lock
}

// errLost says why a holder has lost its lock.
var errLost = errors.New("lost")

// run holds the lock until ctx ends.
func (h *connectedHolder) run(ctx context.Context) error {
	for {
		err := h.connect(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errLost) {
			return err
		}
		select { // The service may not know yet of a replica that has gone.
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// connect holds the lock by one connection.
func (h *connectedHolder) connect(ctx context.Context) error {
	method := http.MethodPost
	if h.lock.LockToken != "" {
		method = http.MethodPut
	}
	request, err := http.NewRequestWithContext(ctx, method, h.url, strings.NewReader(`{"ttl_seconds": 15}`))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+h.token)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", h.url)
	if method == http.MethodPut {
		request.Header.Del("Idempotency-Key")
		request.Header.Set("X-Lock-Token", h.lock.LockToken)
	}
	response, err := h.transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }() // Only read.
	if response.StatusCode >= http.StatusBadRequest {
		if response.StatusCode == http.StatusServiceUnavailable {
			return nil
		}
		return fmt.Errorf("%w: %s", errLost, response.Status)
	}
	h.connections++
	event := ""
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case name == "event":
			event = value
			select {
			case h.events <- event:
			default:
			}
		case name != "data" || event == wire.EventReconnect:
		case event == wire.EventLost:
			return fmt.Errorf("%w: %s", errLost, value)
		default:
			var told wire.Lock
			if err := json.Unmarshal([]byte(value), &told); err != nil {
				return err
			}
			if event == wire.EventRenewed {
				h.renewals++
			}
			if h.lock.FencingToken != nil && *told.FencingToken != *h.lock.FencingToken {
				return fmt.Errorf("%w: another grant: %s", errLost, value)
			}
			told.LockToken = cmp.Or(told.LockToken, h.lock.LockToken)
			h.lock = told
		}
	}
	return nil
}
