package main

import (
	"context"
	"errors"
	"io"
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

func TestDownWithoutAClusterIsFine(t *testing.T) {
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
