package client_test

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	facadeclient "forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
)

// inLine is the example of docs/sdk.md.
func inLine(ctx context.Context, config *rest.Config, logger logr.Logger) (*lock.Client, error) {
	direct, err := engine.NewDirect(config, "payments", logger)
	if err != nil {
		return nil, err
	}
	go func() { _ = direct.Start(ctx) }() // its waits fail if it ends

	facade, err := facadeclient.New("https://lock-operator-facade.forrst-system.svc",
		facadeclient.WithBearerTokenFile("/var/run/secrets/lock-operator/token"))
	if err != nil {
		return nil, err
	}
	return lock.NewClient(facadeclient.InLine(direct, facade), "payments"), nil
}

func ExampleInLine() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	locks, err := inLine(ctx, &rest.Config{Host: "https://127.0.0.1:6443"}, logr.Discard())
	if err != nil {
		panic(err)
	}
	fmt.Println(locks.Namespace())
	// Output: payments
}
