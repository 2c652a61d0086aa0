package observability_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	startTimeout = 2 * time.Minute
	pollInterval = 100 * time.Millisecond
	// scrapeInterval is short so that the test needs not run for long.
	scrapeInterval = time.Second
)

// A cluster is a development cluster with a Prometheus.
type cluster struct {
	Facade     string `json:"facade"`
	Kubeconfig string `json:"kubeconfig"`
	Kubectl    string `json:"kubectl"`
	Prometheus string `json:"prometheus"`
}

// startCluster starts what "make run OBSERVE=1" does, until the test ends.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "dev")
	var output bytes.Buffer
	command := exec.Command(root+"/bin/devcluster", "run", "--dir", dir, "--facade-addr", "127.0.0.1:0",
		"--operator", root+"/bin/lock-operator", "--config", root+"/config", "--binaries", os.Getenv("KUBEBUILDER_ASSETS"),
		"--observe", "--scrape-interval", scrapeInterval.String())
	command.Stdout, command.Stderr = &output, &output
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = command.Wait() // Its output says how it ended.
	}()
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	started := &cluster{}
	waitUntil(t, startTimeout, "the cluster", func() error {
		select {
		case <-ended:
			t.Fatalf("the cluster ended: %s", &output)
		default:
		}
		content, err := os.ReadFile(filepath.Join(dir, "cluster.json"))
		if err != nil {
			return err
		}
		return json.Unmarshal(content, started)
	})
	return started
}

// waitUntil polls until there is no error.
func waitUntil(t *testing.T, timeout time.Duration, what string, check func() error) {
	t.Helper()
	deadline := time.After(timeout)
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-deadline:
			t.Fatalf("%s: %v", what, err)
		case <-ticker.C:
		}
	}
}

// shell runs a script with kubectl as an administrator, in the root of the module.
func (c *cluster) shell(ctx context.Context, script string) (string, error) {
	command := exec.CommandContext(ctx, "bash", "-eu", "-o", "pipefail", "-c", script)
	command.Dir = root
	command.Env = append(os.Environ(), "PATH="+filepath.Dir(c.Kubectl)+string(os.PathListSeparator)+os.Getenv("PATH"), "KUBECONFIG="+c.Kubeconfig)
	output, err := command.CombinedOutput()
	return string(output), err
}

// A series is what Prometheus answers for one set of labels.
type series struct {
	Metric map[string]string
	// points are in the order of their times.
	points []point
}

type point struct {
	at    time.Time
	value float64
}

// query evaluates a query at the present.
func (c *cluster) query(ctx context.Context, query string) ([]series, error) {
	return c.ask(ctx, "query", url.Values{"query": {query}})
}

// queryRange evaluates a query for the time before now, once per step.
func (c *cluster) queryRange(ctx context.Context, query string, since, now time.Time, step time.Duration) ([]series, error) {
	return c.ask(ctx, "query_range", url.Values{
		"query": {query}, "start": {since.UTC().Format(time.RFC3339)}, "end": {now.UTC().Format(time.RFC3339)}, "step": {step.String()},
	})
}

func (c *cluster) ask(ctx context.Context, endpoint string, parameters url.Values) ([]series, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Prometheus+"/api/v1/"+endpoint+"?"+parameters.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			Result []struct {
				Metric map[string]string `json:"metric"`
				Value  sample            `json:"value"`
				Values []sample          `json:"values"`
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("%s: %s", parameters.Get("query"), answer.Error)
	}
	var found []series
	for _, result := range answer.Data.Result {
		values := result.Values
		if result.Value != (sample{}) {
			values = []sample{result.Value}
		}
		s := series{Metric: result.Metric}
		for _, value := range values {
			s.points = append(s.points, point(value))
		}
		found = append(found, s)
	}
	return found, nil
}

// A sample is a pair of Unix seconds and a number as text.
type sample point

func (s *sample) UnmarshalJSON(content []byte) error {
	var at float64
	var text string
	if err := json.Unmarshal(content, &[]any{&at, &text}); err != nil {
		return err
	}
	value, err := strconv.ParseFloat(text, 64)
	s.at, s.value = time.UnixMilli(int64(at*1000)), value
	return err
}

// name is the legend of a series.
func (s *series) name(legend string) string {
	for label, value := range s.Metric {
		legend = strings.ReplaceAll(legend, "{{"+label+"}}", value)
	}
	return strings.TrimSpace(legend)
}
