package facade_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// example is a request with its answer from the page of the atomic lock extension, as
// a file in testdata/seed.
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
	Request  json.RawMessage `json:"request"`
	Status   int             `json:"status"`
	Response any             `json:"response"`
	// Left are the full keys of the objects that exist afterwards. Expired ones count.
	Left []string `json:"left"`
}

func TestExamplesOfTheExtensionPage(t *testing.T) {
	files, err := filepath.Glob("testdata/seed/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
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
				function("billing.generateReport", result(`{"report_id":"rp_abc"}`)))
			for _, held := range example.Held {
				f.clock.SetTime(held.Acquired)
				f.hold(held.Key, held.Owner, held.TTL.Duration)
			}
			f.clock.SetTime(example.Now)

			got := f.post(string(example.Request))
			var response any
			if err := json.Unmarshal([]byte(got.body), &response); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(example.Response, response); diff != "" || got.status != example.Status {
				t.Errorf("%s: status %d, want %d (-want +got):\n%s", example.Section, got.status, example.Status, diff)
			}
			f.wantHeld(example.Left...)
		})
	}
}
