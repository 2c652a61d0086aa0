package forrst_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/facade/forrst/wire"
)

// example is a request with its answer as a file: those from the page of the atomic lock
// extension are in testdata/seed, those from the rest of the protocol in testdata/digest.
type example struct {
	// Section names the part of the page.
	Section string `json:"section"`
	// Now is when the request arrives.
	Now time.Time `json:"now"`
	// Held are the locks that were acquired before, all of them global.
	Held []struct {
		Key      string          `json:"key"`
		Owner    string          `json:"owner"`
		Acquired time.Time       `json:"acquired"`
		TTL      metav1.Duration `json:"ttl"`
	} `json:"held"`
	Request json.RawMessage `json:"request"`
	// Body is a request that is not JSON.
	Body     string `json:"body"`
	Status   int    `json:"status"`
	Response any    `json:"response"`
	// Left are the full keys of the objects that exist afterwards. Expired ones count.
	Left []string `json:"left"`
}

func TestExamples(t *testing.T) {
	files, err := filepath.Glob("testdata/*/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var example example
			if err := json.Unmarshal(text, &example); err != nil {
				t.Fatal(err)
			}
			f := newFixture(t,
				function("payments.charge", result(`{"charge_id":"ch_abc","status":"succeeded"}`)),
				function("stock.reserve", result(`{"reserved":1}`)),
				function("billing.generateReport", result(`{"report_id":"rp_abc"}`)))
			for _, held := range example.Held {
				f.clock.SetTime(held.Acquired)
				f.hold(held.Key, held.Owner, held.TTL.Duration)
			}
			f.clock.SetTime(example.Now)

			got := f.post(example.Body + string(example.Request))
			response := withoutFencing(t, got.body)
			if diff := cmp.Diff(example.Response, response); diff != "" || got.status != example.Status {
				t.Errorf("%s: status %d, want %d (-want +got):\n%s", example.Section, got.status, example.Status, diff)
			}
			f.wantHeld(example.Left...)
		})
	}
}

// withoutFencing decodes an answer and leaves out what the page does not know.
func withoutFencing(tb testing.TB, body string) any {
	tb.Helper()
	var response map[string]any
	if err := json.Unmarshal([]byte(body), &response); err != nil {
		tb.Fatal(err)
	}
	entries, ok := response["extensions"].([]any)
	if !ok {
		return response
	}
	response["extensions"] = slices.DeleteFunc(entries, func(entry any) bool {
		members, ok := entry.(map[string]any)
		return ok && members["urn"] == wire.FencingURN
	})
	return response
}
