//go:build timing

package auth_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/facade/limits"
	"forrst.dev/lock-operator/test/support/timing"
)

// TestMain lets the test program be the client of a flood as well, in a process of its own.
func TestMain(m *testing.M) {
	if os.Getenv("FLOOD_CONNECTIONS") != "" {
		flood()
		return
	}
	os.Exit(m.Run())
}

// keys are the locks of a namespace, through the REST door.
type keys struct {
	url, token string
	client     *http.Client
}

// lastAnswer bounds how much of an answer is read.
const lastAnswer = 64 << 10

func (k *keys) do(ctx context.Context, method, key, body, lockToken string) (status int, text string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, k.url+"/"+key, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Authorization", "Bearer "+k.token)
	request.Header.Set("Content-Type", "application/json")
	if lockToken != "" {
		request.Header.Set("X-Lock-Token", lockToken)
	}
	response, err := k.client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	read, err := io.ReadAll(io.LimitReader(response.Body, lastAnswer))
	return response.StatusCode, string(read), err
}

// cycle acquires the key and, if it is granted, releases it.
func (k *keys) cycle(ctx context.Context, key string) (isGranted bool, err error) {
	status, text, err := k.do(ctx, http.MethodPost, key, `{"ttl_seconds":60}`, "")
	switch {
	case err != nil:
		return false, err
	case status == http.StatusTooManyRequests:
		return false, nil
	case status != http.StatusCreated:
		return false, fmt.Errorf("acquire: %d %s", status, text)
	}
	var granted struct {
		LockToken string `json:"lock_token"`
	}
	if err := json.Unmarshal([]byte(text), &granted); err != nil {
		return false, err
	}
	if status, text, err = k.do(ctx, http.MethodDelete, key, "", granted.LockToken); err != nil || status != http.StatusNoContent {
		return false, fmt.Errorf("release: %d %s %w", status, text, err)
	}
	return true, nil
}

// flood asks for one key after another over each of its connections, without a pause and whatever it is told, until its
// standard input ends. Each line of it is answered with how many were granted and refused since the one before.
func flood() {
	connections, err := strconv.Atoi(os.Getenv("FLOOD_CONNECTIONS"))
	if err != nil {
		panic(err)
	}
	k := &keys{os.Getenv("FLOOD_URL"), os.Getenv("FLOOD_TOKEN"), &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections}}}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var granted, refused, number atomic.Int64
	for range connections {
		go func() {
			for ctx.Err() == nil {
				switch isGranted, err := k.cycle(ctx, fmt.Sprint("k", number.Add(1))); {
				case isGranted:
					granted.Add(1)
				case err == nil:
					refused.Add(1)
				}
			}
		}()
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(granted.Swap(0), refused.Swap(0))
	}
}

// flooding is a flood under way.
type flooding struct {
	in  io.WriteCloser
	out *bufio.Reader
}

// startFlood starts a flood of so many connections at the lowest priority, so that the service has the processors that it
// needs. It returns when the flood has used up what a caller has saved that has asked for nothing.
func startFlood(ctx context.Context, k *keys, connections int) (f *flooding, stop func()) {
	GinkgoHelper()
	command := exec.CommandContext(ctx, "nice", "-n", "19", os.Args[0])
	command.Env = append(os.Environ(), fmt.Sprint("FLOOD_CONNECTIONS=", connections), "FLOOD_URL="+k.url, "FLOOD_TOKEN="+k.token)
	command.Stderr = GinkgoWriter
	in, err := command.StdinPipe()
	Expect(err).NotTo(HaveOccurred())
	out, err := command.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(command.Start()).To(Succeed())
	f = &flooding{in, bufio.NewReader(out)}
	all := 0
	Eventually(func() int {
		granted, _ := f.count()
		all += granted
		return all
	}).WithTimeout(patience).Should(BeNumerically(">", 2*limits.DefaultRatePerCaller))
	return f, func() {
		Expect(in.Close()).To(Succeed())
		Expect(command.Wait()).To(Succeed())
	}
}

// count returns what the flood has got since the last count.
func (f *flooding) count() (granted, refused int) {
	GinkgoHelper()
	_, err := fmt.Fprintln(f.in)
	Expect(err).NotTo(HaveOccurred())
	_, err = fmt.Fscan(f.out, &granted, &refused)
	Expect(err).NotTo(HaveOccurred())
	return granted, refused
}

// measured is what one tenant made.
type measured struct {
	took   []time.Duration
	length time.Duration
}

func (m *measured) perSecond() float64 { return float64(len(m.took)) / m.length.Seconds() }

func (m *measured) String() string {
	return fmt.Sprintf("%.0f/s, p50 %s, p99 %s", m.perSecond(), timing.Quantile(m.took, 0.5), timing.Quantile(m.took, 0.99))
}

// run makes cycles over one connection for a while, no more than perSecond, which is within the rate of a caller.
func (m *measured) run(ctx context.Context, k *keys, perSecond int, length time.Duration) {
	GinkgoHelper()
	began := time.Now()
	ticker := time.NewTicker(time.Second / time.Duration(perSecond))
	defer ticker.Stop()
	for number := 0; time.Since(began) < length; number++ {
		<-ticker.C
		start := time.Now()
		isGranted, err := k.cycle(ctx, fmt.Sprint("k", number))
		Expect(err).NotTo(HaveOccurred())
		Expect(isGranted).To(BeTrue(), "the tenant that keeps to its rate was refused")
		m.took = append(m.took, time.Since(start))
	}
	m.length += time.Since(began)
}

var _ = Describe("A façade with its defaults, and a tenant that goes on although it is told to wait", Label("timing"), func() {
	const rounds, length, perSecond = 3, 5 * time.Second, 90
	It("leaves another tenant its part of the API server", func(ctx context.Context) {
		facade := startReplica(ctx)
		var tenants []*keys
		for range 2 {
			namespace := createNamespace(ctx, "worker")
			account := token(ctx, namespace, "worker", "lock-operator.forrst.dev")
			(&tenant{url: facade, token: account, client: http.DefaultClient}).awaitAccess(ctx)
			tenants = append(tenants, &keys{facade + "/v1/namespaces/" + namespace + "/locks", account, &http.Client{Transport: &http.Transport{}}})
		}
		shop, payments := tenants[0], tenants[1]
		for _, connections := range []int{8, 64} {
			// In turns, so that whatever slows the machine slows both.
			var alone, beside, other measured
			refused := 0
			for range rounds {
				alone.run(ctx, shop, perSecond, length)
				flood, stop := startFlood(ctx, payments, connections)
				beside.run(ctx, shop, perSecond, length)
				granted, refusals := flood.count()
				other.took = append(other.took, make([]time.Duration, granted)...)
				refused += refusals
				stop()
			}
			other.length = beside.length
			both := beside.perSecond() + other.perSecond()
			p99 := float64(timing.Quantile(beside.took, 0.99)) / float64(timing.Quantile(alone.took, 0.99))
			AddReportEntry(fmt.Sprint(connections, " connections"), fmt.Sprintf("alone %s; beside the other %s, p99 %.1f times as long; the other %.0f/s and %.0f refusals/s",
				&alone, &beside, p99, other.perSecond(), float64(refused)/beside.length.Seconds()), ReportEntryVisibilityAlways)
			Expect(beside.perSecond()).To(BeNumerically(">=", 0.8*min(alone.perSecond(), both/2)))
			Expect(p99).To(BeNumerically("<=", 3))
		}
	})
})
