package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDownEndsTheHolder(t *testing.T) {
	dir := stateDir(t.TempDir())
	holder := runHelper(t, "claim", string(dir))
	if err := waitFor(t.Context(), "the holder", func(context.Context) error {
		pid, _, err := dir.holder()
		if pid != holder.Process.Pid {
			err = errors.Join(err, errors.New("it has not claimed the folder"))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}

	if err := down(options{dir: string(dir)}, io.Discard); err != nil {
		t.Fatal(err)
	}
	if _, held, err := dir.holder(); held || err != nil {
		t.Errorf("held = %v, error = %v", held, err)
	}
}

func TestDownWithoutAClusterSucceeds(t *testing.T) {
	for name, dir := range map[string]string{
		"no folder":       filepath.Join(t.TempDir(), "none"),
		"an empty folder": t.TempDir(),
	} {
		t.Run(name, func(t *testing.T) {
			var output strings.Builder
			if err := down(options{dir: dir}, &output); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(output.String(), "No development cluster is up") {
				t.Errorf("output = %q", &output)
			}
		})
	}
}

func TestUpRefusesAClusterWithOtherOptions(t *testing.T) {
	opts := options{dir: t.TempDir(), auth: authNone, facade: "127.0.0.1:8080"}
	dir := stateDir(opts.dir)
	claim, err := dir.claim()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = claim.Close() }()
	running := announcement{PID: os.Getpid(), Facade: "http://127.0.0.1:8080", Options: opts.chosen()}
	if err := running.save(dir); err != nil {
		t.Fatal(err)
	}

	var output strings.Builder
	if err := up(opts, &output); err != nil || !strings.Contains(output.String(), "is ready") {
		t.Errorf("the same options: error = %v, output = %q", err, &output)
	}
	output.Reset()
	other := opts
	other.auth, other.facade, other.routes = authToken, "127.0.0.1:9090", "/routes.yaml"
	const want = `it runs with other options: AUTH is "none", not "token", FACADE_ADDR is "127.0.0.1:8080", not "127.0.0.1:9090", ` +
		`ROUTES is "", not "/routes.yaml"; end it with "make dev-down" first`
	if err := up(other, &output); err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
	if strings.Contains(output.String(), "is ready") {
		t.Errorf("output = %q", &output)
	}
}
