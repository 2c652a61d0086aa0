package forrst_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/server"
	"forrst.dev/lock-operator/test/support/testfacade"
)

const (
	benchmarkClients = 16
	// callsPerRound of each client are short enough for the machine to be equally busy with
	// other things during both rounds of a pair.
	callsPerRound = 200
)

// BenchmarkPingRatio compares pings with echoes through the façade's own server. One
// operation is a round of each, so that both meet the same machine. The ratio must be at
// least one half.
func BenchmarkPingRatio(b *testing.B) {
	echoes := newRounds(b, startWith(b, server.Options{DrainTimeout: time.Minute}, func(options server.Options) (*server.Server, error) {
		echoing, err := server.New(options)
		if err == nil {
			echoing.Mount(echoDoor{})
		}
		return echoing, err
	}))
	pings := newRounds(b, serve(b, served{Settings: testfacade.Settings{Locks: &patientLocks{}, Namespace: namespace}}, time.Minute))
	var ratios []float64
	var echoTime, pingTime time.Duration
	for b.Loop() {
		echoTook, pingTook := echoes.run(b), pings.run(b)
		echoTime += echoTook
		pingTime += pingTook
		ratios = append(ratios, echoTook.Seconds()/pingTook.Seconds())
	}
	slices.Sort(ratios)
	calls := float64(b.N * benchmarkClients * callsPerRound)
	b.ReportMetric(calls/echoTime.Seconds(), "echoes/s")
	b.ReportMetric(calls/pingTime.Seconds(), "pings/s")
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
}

// rounds are many calls by clients that each have a connection.
type rounds struct {
	request     string
	connections []*bufio.ReadWriter
}

// echoDoor answers requests with their bodies.
type echoDoor struct{}

// Register implements [server.Door].
func (echoDoor) Register(mux *http.ServeMux) { mux.HandleFunc(forrst.Path, echo) }

func newRounds(b *testing.B, s *serving) *rounds {
	b.Helper()
	body := envelopeWith(ping, "", "")
	r := &rounds{request: fmt.Sprintf("POST /forrst HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)}
	var connections []net.Conn
	for range benchmarkClients {
		connection := dial(b, s)
		connections = append(connections, connection)
		r.connections = append(r.connections, bufio.NewReadWriter(bufio.NewReader(connection), bufio.NewWriter(connection)))
	}
	b.Cleanup(func() {
		for _, connection := range connections {
			_ = connection.Close()
		}
		s.stop()
		if err := <-s.ended; err != nil {
			b.Error(err)
		}
	})
	return r
}

func (r *rounds) run(b *testing.B) time.Duration {
	b.Helper()
	var clients sync.WaitGroup
	start := time.Now()
	for _, connection := range r.connections {
		clients.Go(func() {
			for range callsPerRound {
				if err := r.call(connection); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	clients.Wait()
	return time.Since(start)
}

func (r *rounds) call(connection *bufio.ReadWriter) error {
	if _, err := io.Copy(connection, strings.NewReader(r.request)); err != nil {
		return err
	}
	if err := connection.Flush(); err != nil {
		return err
	}
	response, err := http.ReadResponse(connection.Reader, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	return nil
}
