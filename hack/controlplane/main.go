package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	wanted := recipe{readyMade: os.Getenv("KUBEBUILDER_ASSETS")}
	flag.StringVar(&wanted.module, "module", "hack/controlplane", "folder of the module that pins the versions")
	flag.StringVar(&wanted.kubernetes, "kubernetes", "", "version of Kubernetes in place of the pinned one, such as 1.34.4")
	out := flag.String("out", "bin/k8s", "folder to hold the binaries; it is replaced as a whole")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := provide(ctx, wanted, *out)
	if err != nil && ctx.Err() != nil {
		err = errors.New("interrupted; Go's build cache keeps the compiled packages")
	}
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "control-plane: %v\n", err)
		os.Exit(1)
	}
}

// provide puts the binaries into the out folder, unless the ready-made ones are complete. If
// those lack kube-controller-manager, as envtest's folder does, provide builds that binary and
// kube-scheduler and links the others into the out folder.
func provide(ctx context.Context, wanted recipe, out string) error {
	if err := wanted.validate(); err != nil {
		return err
	}
	if assets := wanted.readyMade; assets != "" {
		if _, err := os.Stat(filepath.Join(assets, "kube-controller-manager")); err == nil {
			fmt.Printf("control-plane: using the binaries in %s (KUBEBUILDER_ASSETS); nothing is built\n", assets)
			return nil
		}
		fmt.Printf("control-plane: using the binaries in %s (KUBEBUILDER_ASSETS) and building kube-controller-manager and kube-scheduler\n", assets)
	}

	key, err := wanted.key()
	if err != nil {
		return err
	}
	if isComplete(out, key) {
		return nil
	}

	unlock, err := lockBeside(ctx, out)
	if err != nil {
		return err
	}
	defer unlock()
	// Another build may have finished while this one waited for its turn.
	if isComplete(out, key) {
		return nil
	}

	started := time.Now()
	workshop := beside(out, "building")
	if err := os.RemoveAll(workshop); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(workshop) }()

	finished, err := build(ctx, wanted, workshop)
	if err != nil {
		return err
	}
	if err := writeStamp(finished, key); err != nil {
		return err
	}
	if err := replaceFolder(out, finished); err != nil {
		return err
	}
	fmt.Printf("control-plane: %s holds the binaries, built in %s\n", out, time.Since(started).Round(time.Second))
	return nil
}
