package server

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"forrst.dev/lock-operator/test/support/pipes"
	"forrst.dev/lock-operator/webhook/sender"
)

// identity is the certificate of all servers.
var identity = sync.OnceValue(func() (made struct {
	pair   tls.Certificate
	roots  *x509.CertPool
	issued time.Time // The clock of bubbles starts earlier.
}) {
	certificate, key, err := cert.GenerateSelfSignedCertKey("webhook", nil, nil)
	if err != nil {
		panic(err)
	}
	if made.pair, err = tls.X509KeyPair(certificate, key); err != nil {
		panic(err)
	}
	made.roots, made.issued = x509.NewCertPool(), time.Now()
	made.roots.AppendCertsFromPEM(certificate)
	return made
})

// bubble has a server without a network, on a clock that stands still while reviews are judged.
type bubble struct {
	*Server

	t     *testing.T
	inner *pipes.Listener
}

// serve runs a server with the handler in a bubble until the test ends. It believes its clients that they
// are API servers if the options have an authority.
func serve(t *testing.T, options Options, handler http.HandlerFunc, test func(b *bubble)) {
	t.Helper()
	identity()
	synctest.Test(t, func(t *testing.T) {
		if options.Reviews == nil {
			options.Reviews = map[string]Cost{"/review": {MaxBytes: 1 << 20, ByteCost: 12}}
		}
		s, err := New(options)
		if err != nil {
			t.Fatal(err)
		}
		s.Register("/review", handler)
		b := &bubble{s, t, pipes.Listen()}
		served := s.newHTTPServer(t.Context(), &tls.Config{Certificates: []tls.Certificate{identity().pair}, MinVersion: tls.VersionTLS12})
		ended := make(chan error, 1)
		s.listener.Listener = b.inner
		go func() { ended <- served.ServeTLS(s.listener, "", "") }()
		test(b)
		synctest.Wait() // Close waits for clients under a mutex, and the clock stands still while a connection that ends waits for it.
		if err := served.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// connect returns a connection of the network with the number after its handshake.
func (b *bubble) connect(network int) (*tls.Conn, error) {
	made := b.inner.ConnectFrom(fmt.Sprintf("10.0.0.%d:1000", network))
	secured := tls.Client(made, &tls.Config{
		RootCAs: identity().roots, ServerName: "webhook", MinVersion: tls.VersionTLS12, Time: func() time.Time { return identity().issued },
	})
	b.t.Cleanup(func() { _ = made.Close() }) // The server may have closed it.
	err := secured.HandshakeContext(b.t.Context())
	return secured, err
}

// header is that of a review of so many bytes.
func header(bytes int) string {
	return fmt.Sprintf("POST /review HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", bytes)
}

// post sends a review on a connection of its own, and returns the answer.
func (b *bubble) post(network int, review string) (code int, refusal metav1.Status, err error) {
	connection, err := b.connect(network)
	if err != nil {
		return 0, refusal, err
	}
	defer func() { _ = connection.Close() }() // The server may have closed it.
	if _, err := io.WriteString(connection, header(len(review))+review); err != nil {
		return 0, refusal, err
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		return 0, refusal, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = json.Unmarshal(text, &refusal)
	}
	return response.StatusCode, refusal, err
}

// reviewOf is a review of the namespace that has so many bytes.
func reviewOf(namespace string, bytes int) string {
	text := `{"request":{"namespace":"` + namespace + `","userInfo":{"username":"alice"},"object":"`
	return text + strings.Repeat("x", bytes-len(text)-3) + `"}}`
}

// One tenant that writes large objects must not make the writes of others fail, though all of them come
// from one API server.
func TestReviewsWaitForMemoryInTurnsOfTheirNamespaces(t *testing.T) {
	var released chan struct{}
	var mu sync.Mutex
	var judgedOf []string
	// There is room for four of these reviews at a time, on all of the memory.
	serve(t, Options{MaxMemory: 50 << 10, ClientCA: "ca.crt"}, func(_ http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		judgedOf = append(judgedOf, requestOf(text).Namespace)
		mu.Unlock()
		<-released
	}, func(b *bubble) {
		t := b.t
		released = make(chan struct{})
		var codes [600]atomic.Int64
		var working sync.WaitGroup
		begun := time.Now()
		send := func(namespace string) {
			working.Go(func() {
				code, _, err := b.post(1, reviewOf(namespace, 1<<10))
				if err != nil {
					t.Error(err)
				}
				codes[code].Add(1)
				if code == http.StatusServiceUnavailable && time.Since(begun) != maxWait {
					t.Errorf("refused after %s", time.Since(begun))
				}
			})
			synctest.Wait()
		}
		for range 12 {
			send("hostile")
		}
		send("other")
		mu.Lock()
		if len(judgedOf) != 4 {
			t.Errorf("%d reviews are judged at once, want 4", len(judgedOf))
		}
		mu.Unlock()
		released <- struct{}{}
		synctest.Wait()
		mu.Lock()
		if got := judgedOf[len(judgedOf)-1]; len(judgedOf) != 5 || got != "other" {
			t.Errorf("%s is served next, of %d", got, len(judgedOf))
		}
		mu.Unlock()
		time.Sleep(maxWait) //nolint:forbidigo // Only the fake clock moves.
		synctest.Wait()
		if got := codes[http.StatusServiceUnavailable].Load(); got != 8 {
			t.Errorf("%d reviews were refused, want the 8 that waited for too long", got)
		}
		for range 4 {
			released <- struct{}{}
		}
		working.Wait()
		if got := codes[http.StatusOK].Load(); got != 5 {
			t.Errorf("%d reviews were judged, want 5", got)
		}
	})
}

func TestVerifiedSendersHaveAllOfTheMemory(t *testing.T) {
	for authority, want := range map[string]int{"ca.crt": http.StatusOK, "": http.StatusRequestEntityTooLarge} {
		serve(t, Options{MaxMemory: 16 << 10, ClientCA: authority}, func(http.ResponseWriter, *http.Request) {}, func(b *bubble) {
			t := b.t
			if code, _, err := b.post(1, reviewOf("a", 1000)); err != nil || code != want {
				t.Errorf("with the authority %q: status %d, %v, want %d", authority, code, err, want)
			}
		})
	}
}

// A review of the size of two Locks and more never waits for those that arrive. A larger one does.
func TestLargeReviewsThatArriveTakeRoom(t *testing.T) {
	// An eighth is 1,280 KiB, and for one network 640.
	for authority, size := range map[string]int{"ca.crt": 700 << 10, "": 355 << 10} {
		var released chan struct{}
		serve(t, Options{MaxMemory: 10 << 20, ClientCA: authority}, func(http.ResponseWriter, *http.Request) { <-released }, func(b *bubble) {
			t := b.t
			released = make(chan struct{})
			answers := make(chan int, 3)
			for _, bytes := range []int{size, size, freeBytes} {
				go func() {
					code, _, err := b.post(1, reviewOf("a", bytes))
					if err != nil {
						t.Error(err)
					}
					answers <- code
				}()
				synctest.Wait()
			}
			for judged := range 3 {
				if judged == 0 && b.arriving.usage() == 0 {
					t.Error("nothing of what arrives is counted")
				}
				released <- struct{}{}
				synctest.Wait()
			}
			if got := []int{<-answers, <-answers, <-answers}; fmt.Sprint(got) != "[200 200 200]" || b.arriving.usage() != 0 {
				t.Errorf("with the authority %q: %v", authority, got)
			}
		})
	}
}

// Whatever clients of two networks do with all of the connections, another network gets one.
func TestNoClientKeepsItsPlaceByBeingSlow(t *testing.T) {
	review := reviewOf("a", 100)
	for name, test := range map[string]struct {
		sent string
		// isRead says that the client reads what is answered.
		isRead bool
	}{
		"no request":               {"", true},
		"no further request":       {header(len(review)) + review, true},
		"a part of a header":       {header(len(review))[:20], true},
		"a part of a review":       {header(len(review)) + review[:50], true},
		"an answer that is unread": {header(len(review)) + review, false},
	} {
		t.Run(name, func(t *testing.T) {
			serve(t, Options{MaxConnections: 4}, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }, func(b *bubble) {
				t := b.t
				for _, network := range []int{1, 2, 1, 2} {
					slow, err := b.connect(network)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := io.WriteString(slow, test.sent); err != nil {
						t.Fatal(err)
					}
					if test.isRead {
						go func() { _, _ = io.Copy(io.Discard, slow) }()
					}
				}
				synctest.Wait()
				if code, _, err := b.post(3, review); err != nil || code != http.StatusOK {
					t.Errorf("status %d, %v", code, err)
				}
			})
		})
	}
}

// Clients that nobody verifies announce large reviews, until none more of them finds room, and go on with none.
func TestReviewsThatDoNotArriveLeaveRoomForOthers(t *testing.T) {
	const memory = 8 << 20 // An eighth is for what arrives.
	large := reviewOf("a", 250<<10)
	serve(t, Options{MaxMemory: memory}, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }, func(b *bubble) {
		t := b.t
		for _, network := range []int{1, 1, 1, 2, 2, 2} {
			slow, err := b.connect(network)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(slow, header(len(large))+large[:freeBytes+1]); err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = io.Copy(io.Discard, slow) }()
		}
		synctest.Wait()
		if used := b.arriving.usage(); used < 0.9 {
			t.Fatalf("%v of the room is taken", used)
		}
		if code, refusal, err := b.post(3, large); err != nil || code != http.StatusOK {
			t.Errorf("status %d, %+v, %v", code, refusal, err)
		}
	})
}

// If clients are verified, those that are silent may have no certificate. They must not close the
// connections of API servers, however many networks they are in.
func TestSilentConnectionsMakeRoomFirstIfClientsAreVerified(t *testing.T) {
	review := reviewOf("a", 100)
	serve(t, Options{MaxConnections: 4, ClientCA: "ca.crt"}, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }, func(b *bubble) {
		t := b.t
		verified, err := b.connect(1)
		if err != nil {
			t.Fatal(err)
		}
		answers := bufio.NewReader(verified)
		ask := func() {
			t.Helper()
			if _, err := io.WriteString(verified, header(len(review))+review); err != nil {
				t.Fatal(err)
			}
			answer, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatalf("the connection is closed: %v", err)
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
		}
		ask()
		for network := range 10 {
			silent, err := b.connect(2 + network)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = silent.NetConn().Close() }() // Before the server, which would wait for a reader of its farewell.
			synctest.Wait()
		}
		ask()
		_ = verified.NetConn().Close() // As above.
	})
}

func TestAReviewThatIsJudgedForLongIsAnswered(t *testing.T) {
	review := reviewOf("a", 100)
	serve(t, Options{MaxConnections: 2}, func(http.ResponseWriter, *http.Request) {
		time.Sleep(3 * time.Second) //nolint:forbidigo // Only the fake clock moves.
	}, func(b *bubble) {
		t := b.t
		var working sync.WaitGroup
		for _, network := range []int{1, 2} {
			working.Go(func() {
				if code, _, err := b.post(network, review); err != nil || code != http.StatusOK {
					t.Errorf("network %d: status %d, %v", network, code, err)
				}
			})
		}
		time.Sleep(2 * time.Second) //nolint:forbidigo // Only the fake clock moves.
		for _, network := range []int{1, 3} {
			if _, _, err := b.post(network, review); err == nil {
				t.Errorf("network %d is served besides", network)
			}
		}
		working.Wait()
	})
}

// It is the server that keeps a review waiting for memory, for longer than a client may take.
func TestAReviewThatWaitsForMemoryKeepsItsConnection(t *testing.T) {
	for name, test := range map[string]struct {
		memory int64
		bytes  int
	}{
		"to be judged": {50 << 10, 3 << 10},  // 36 of 50 KiB.
		"to arrive":    {4 << 20, 330 << 10}, // 298 of 512 KiB.
	} {
		t.Run(name, func(t *testing.T) {
			review, released := reviewOf("a", test.bytes), make(chan struct{})
			serve(t, Options{MaxMemory: test.memory, MaxConnections: 4, ClientCA: "ca.crt"}, func(http.ResponseWriter, *http.Request) {
				<-released
			}, func(b *bubble) {
				t := b.t
				released = make(chan struct{})
				answers := make(chan error, 2)
				for range 2 {
					go func() {
						code, _, err := b.post(1, review)
						if err == nil && code != http.StatusOK {
							err = fmt.Errorf("status %d", code)
						}
						answers <- err
					}()
					synctest.Wait()
				}
				time.Sleep(maxWait - time.Millisecond) //nolint:forbidigo // Only the fake clock moves.
				if _, _, err := b.post(1, reviewOf("b", 100)); err == nil {
					t.Error("a third connection of the network finds room")
				}
				close(released)
				for range 2 {
					if err := <-answers; err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

func TestAReviewWaitsNoLongerThanItsPathAllows(t *testing.T) {
	const allowed = time.Second / 2
	costs := map[string]Cost{"/review": {MaxBytes: 1 << 20, ByteCost: 12, MaxWait: allowed}}
	serve(t, Options{MaxMemory: 50 << 10, ClientCA: "ca.crt", Reviews: costs}, func(http.ResponseWriter, *http.Request) {
		time.Sleep(2 * allowed) //nolint:forbidigo // Only the fake clock moves.
	}, func(b *bubble) {
		t, review := b.t, reviewOf("a", 3<<10) // Of which one at a time finds memory.
		var working sync.WaitGroup
		working.Go(func() {
			if code, _, err := b.post(1, review); err != nil || code != http.StatusOK {
				t.Errorf("status %d, %v", code, err)
			}
		})
		synctest.Wait()
		begun := time.Now()
		if code, _, err := b.post(1, review); err != nil || code != http.StatusServiceUnavailable || time.Since(begun) != allowed {
			t.Errorf("status %d after %s, %v", code, time.Since(begun), err)
		}
		working.Wait()
	})
}

func TestAnAnswerThatIsNotReadKeepsNoMemory(t *testing.T) {
	review := reviewOf("a", 1000)
	serve(t, Options{MaxMemory: 30_000}, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }, func(b *bubble) {
		t := b.t
		for range 3 {
			slow, err := b.connect(1)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(slow, header(len(review))+review); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if code, _, err := b.post(1, review); err != nil || code != http.StatusOK {
			t.Errorf("status %d, %v", code, err)
		}
	})
}

// controller-runtime decodes whatever the API machinery recognises. References of YAML may grow without a bound.
func TestAReviewThatIsNotJSONIsRefused(t *testing.T) {
	serve(t, Options{}, func(http.ResponseWriter, *http.Request) { t.Error("judged") }, func(b *bubble) {
		t := b.t
		for _, review := range []string{"request:\n  userInfo:\n    groups:\n" + strings.Repeat("    - a\n", 1000), "k8s\x00\x0a\x00", "", "[{}]"} {
			if code, refusal, err := b.post(1, review); err != nil || code != http.StatusUnsupportedMediaType || refusal.Message != errNotJSON.Error() {
				t.Errorf("%.10q: status %d, %+v, %v", review, code, refusal, err)
			}
		}
		if got := testutil.ToFloat64(b.refused.WithLabelValues(notJSON)); got != 4 {
			t.Errorf("%v are counted, want 4", got)
		}
	})
}

func TestRefusalsTellWhoseTheyAre(t *testing.T) {
	var mu sync.Mutex
	var told []string
	serve(t, Options{MaxMemory: 40_000, Reviews: map[string]Cost{"/review": {MaxBytes: 100_000, ByteCost: 12}}}, func(http.ResponseWriter, *http.Request) {
		time.Sleep(time.Minute) //nolint:forbidigo // Only the fake clock moves.
	}, func(b *bubble) {
		t := b.t
		b.OnRefused(func(r Refused) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, fmt.Sprint(r.Path, " ", r.Request.Namespace, " ", r.Request.UserInfo.Username, " ", r.Status.Code))
		})
		for _, test := range []struct {
			review string
			want   string
		}{
			{reviewOf("a", 100_001), "[/review a alice 413]"},
			{reviewOf("b", 50_000), "[/review b alice 413]"},
			{reviewOf("c", 2_000), "[/review c alice 413]"},
			{reviewOf("d", 1_000), "[]"},
			{reviewOf("e", 1_600), "[/review e alice 503]"}, // As long as d is judged.
			{`{"request":{}` + strings.Repeat(" ", 100_000) + "}", "[]"},
		} {
			if strings.Contains(test.review, `"d"`) {
				go func() { _, _, _ = b.post(1, test.review) }() // It ends with the server.
				synctest.Wait()
			} else if _, _, err := b.post(1, test.review); err != nil {
				t.Error(err)
			}
			mu.Lock()
			if got := fmt.Sprint(told); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			told = nil
			mu.Unlock()
		}
		time.Sleep(time.Minute) //nolint:forbidigo // Until the review of d has been judged.
	})
}

// Without certificates, one API server sends the reviews of all tenants.
func TestOneNamespaceGetsAQuarterOfTheRequestsOfItsNetwork(t *testing.T) {
	serve(t, Options{MaxRequests: 16}, func(w http.ResponseWriter, r *http.Request) {
		if !sender.FromContext(r.Context()).Allow() {
			w.WriteHeader(http.StatusTooManyRequests)
		}
		_, _ = io.WriteString(w, "{}")
	}, func(b *bubble) {
		t := b.t
		send := func(namespace string, count, want int) {
			t.Helper()
			for range count {
				if code, _, err := b.post(1, reviewOf(namespace, 100)); err != nil || code != want {
					t.Errorf("namespace %s: status %d, %v, want %d", namespace, code, err, want)
				}
			}
		}
		send("a", 2, http.StatusOK)
		send("a", 20, http.StatusTooManyRequests)
		send("b", 2, http.StatusOK)
		send("c", 2, http.StatusOK)
		send("", 2, http.StatusOK)
		send("d", 1, http.StatusTooManyRequests) // The network has used up its own.
		time.Sleep(time.Second)                  //nolint:forbidigo // Only the fake clock moves.
		send("a", 2, http.StatusOK)
	})
}

func TestWhoseAReviewIsIsReadFromItsBeginning(t *testing.T) {
	const names = `"namespace":"a","name":"b","operation":"UPDATE","userInfo":{"username":"alice","groups":["x"],"extra":{"k":["v"]}}`
	for text, want := range map[string]string{
		`{"kind":"AdmissionReview","request":{"uid":"1","kind":{"kind":"Lock"},` + names + `,"object":{"namespace":"c"},"dryRun":true},"response":null}`: "a b UPDATE alice true",
		`{"request":{` + names + `,"object":{"x":"` + strings.Repeat("x", 2*maxBeginning) + `"},"dryRun":true}}`:                                         "a b UPDATE alice false",
		`{"request":{` + names + `,"object":{"cut`:            "a b UPDATE alice false",
		`{"request":{"namespace":7,` + names + `}}`:           "    false",
		`{"request":[{` + names + `}]}`:                       "    false",
		`{"response":{"request":{` + names + `}},"request":1`: "    false",
		`[`: "    false",
		``:  "    false",
	} {
		r := requestOf([]byte(text))
		if got := fmt.Sprint(r.Namespace, " ", r.Name, " ", r.Operation, " ", r.UserInfo.Username, " ", r.DryRun != nil && *r.DryRun); got != want {
			t.Errorf("%.300s: got %q, want %q", text, got, want)
		}
	}
}
