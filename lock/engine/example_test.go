package engine_test

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
)

// report is the first example of docs/sdk.md.
func report(ctx context.Context, config *rest.Config, logger logr.Logger) error {
	backend, err := engine.NewDirect(config, "payments", logger)
	if err != nil {
		return err
	}
	backendEnded := make(chan error, 1)
	go func() { backendEnded <- backend.Start(ctx) }() // or manager.Add(backend) in an operator

	locks := lock.NewClient(backend, "payments")
	return locks.Do(ctx, "billing:report", func(ctx context.Context, held *lock.Held) error {
		return writeReport(ctx, held.FencingToken()) // an int64
	})
}

func writeReport(context.Context, int64) error { return nil }

func ExampleNewDirect() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	_ = report(ctx, &rest.Config{Host: "https://127.0.0.1:6443"}, logr.Discard())
}
