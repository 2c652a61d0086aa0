package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	// probeInterval is short because a user waits for the sum of all waits.
	probeInterval = 50 * time.Millisecond
	// probeTimeout bounds one request. An API server that starts on a busy machine answers late.
	probeTimeout = 30 * time.Second
	// readyTimeout bounds the wait for one component. It is far longer than a component
	// needs: the supervisor notices at once when a component ends.
	readyTimeout = 5 * time.Minute
)

// waitForOK waits until a GET of the URL returns 200.
func waitForOK(ctx context.Context, client *http.Client, what, url string) error {
	return waitFor(ctx, what, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode == http.StatusOK {
			return nil
		}
		body, _ := io.ReadAll(io.LimitReader(response.Body, 512))
		return fmt.Errorf("GET %s: %s: %s", url, response.Status, strings.TrimSpace(string(body)))
	})
}

// waitFor calls the check until it succeeds, readyTimeout is over or the context ends. At
// the end of the context it returns the context's cause.
func waitFor(ctx context.Context, what string, check func(context.Context) error) error {
	deadline := time.NewTimer(readyTimeout)
	defer deadline.Stop()
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline.C:
			return fmt.Errorf("%s is not ready after %s: %w", what, readyTimeout, err)
		case <-ticker.C:
		}
	}
}
