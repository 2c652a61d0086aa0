package server_test

import (
	"strings"
	"testing"

	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/test/support/exposition"
	"forrst.dev/lock-operator/webhook/server"
)

// serve sends a review on a connection of the network, which stays open, and returns the error.
func (w *world) serve(network int) error {
	_, _, err := w.post(w.client(network), strings.NewReader("{}"))
	return err
}

// hold sends a review of each network, which are being judged when hold returns. Calling end has them
// answered.
func (w *world) hold(h *holding, networks ...int) (end func()) {
	w.t.Helper()
	ended := make(chan error, len(networks))
	for _, network := range networks {
		go func() { ended <- w.serve(network) }()
		select {
		case <-h.begun:
		case err := <-ended:
			w.t.Fatalf("a review of network %d: %v", network, err)
		}
	}
	return func() {
		h.releaseAll()
		for range networks {
			if err := <-ended; err != nil {
				w.t.Errorf("a review that was being judged: %v", err)
			}
		}
	}
}

func TestOneNetworkGetsHalfOfTheConnections(t *testing.T) {
	h := newHolding()
	w := start(t, server.Options{MaxConnections: 4}, h.handle)
	end := w.hold(h, 1, 1)
	defer end()
	if err := w.serve(1); err == nil {
		t.Error("a third of four connections was served")
	}
	endOther := w.hold(h, 2)
	defer endOther()
	if got := w.refused("connections"); got == 0 {
		t.Error("no refusal is counted")
	}
}

func TestConnectionsAreBoundedInTotal(t *testing.T) {
	h := newHolding()
	w := start(t, server.Options{MaxConnections: 4}, h.handle)
	usage := func() float64 {
		got, _ := exposition.Value(w.registry, &metric.LimitUsage, map[string]string{"limit": "webhook_connections"})
		return got
	}
	if got := usage(); got != 0 {
		t.Errorf("%v of the connections are used by none", got)
	}
	end := w.hold(h, 1, 1, 2, 2)
	defer end()
	if err := w.serve(3); err == nil {
		t.Error("a fifth of four connections was served")
	}
	if got := usage(); got != 1 {
		t.Errorf("%v of the connections are used by all", got)
	}
	if got, _ := exposition.Value(w.registry, &metric.LimitUsage, map[string]string{"limit": "webhook_memory"}); got <= 0 || got >= 1 {
		t.Errorf("%v of the memory is used by four small reviews", got)
	}
}
