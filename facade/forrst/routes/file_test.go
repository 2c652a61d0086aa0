package routes_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"

	"forrst.dev/lock-operator/facade/forrst/routes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// followed is a file that is followed inside a bubble of synctest.
type followed struct {
	*routes.File

	t    *testing.T
	path string

	mu  sync.Mutex
	log strings.Builder
}

func follow(t *testing.T, path string) *followed {
	t.Helper()
	f := &followed{t: t, path: path}
	logger := funcr.New(func(_, args string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.log.WriteString(args + "\n")
	}, funcr.Options{})
	var err error
	if f.File, err = routes.Open(path, nil, logger); err != nil {
		t.Fatal(err)
	}
	if f.NeedLeaderElection() {
		t.Error("every replica must route")
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return f
}

// want expects the function f to lead to a URL after some time, and so many lines to have
// been logged since the last time.
func (f *followed) want(url string, lines ...string) {
	f.t.Helper()
	time.Sleep(time.Minute) //nolint:forbidigo // Only the fake clock of the bubble moves.
	synctest.Wait()
	if got, _ := f.Find("f"); got.URL != url {
		f.t.Errorf("f leads to %q, want %q", got.URL, url)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	logged := strings.Split(strings.TrimSuffix(f.log.String(), "\n"), "\n")
	f.log.Reset()
	if len(lines) == 0 {
		lines = []string{""}
	}
	if len(logged) != len(lines) {
		f.t.Fatalf("logged %q, want %q", logged, lines)
	}
	for i, line := range lines {
		if !strings.Contains(logged[i], line) {
			f.t.Errorf("logged %q, want %q", logged[i], line)
		}
		// An error would come with a stack.
		if line != "" && !strings.HasPrefix(logged[i], `"level"=0`) {
			f.t.Errorf("logged %q as an error", logged[i])
		}
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func to(url string) string { return "routes:\n- functions: [f]\n  url: " + url + "\n" }

func TestAFileIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "routes.yaml")
	write(t, path, to("http://a"))
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, path)
		f.want("http://a")
		write(t, path, to("http://b"))
		f.want("http://b", "Routes have changed")
		write(t, path, to("ftp://c"))
		f.want("http://b", "line 3: url must begin with http:// or https:// and a host")
		f.want("http://b")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		f.want("http://b", "no such file")
		f.want("http://b")
		write(t, path, to("ftp://c"))
		f.want("http://b", "line 3: url must begin with")
		write(t, path, to("http://d"))
		f.want("http://d", "Routes have changed")
		write(t, path, "routes: []\n")
		f.want("", "Routes have changed")
	})
}

// A volume of a ConfigMap is a folder of symlinks to a symlink to a folder.
func TestAMountedConfigMapIsFollowed(t *testing.T) {
	volume := t.TempDir()
	update := func(version, content string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(volume, version), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(volume, version, "routes.yaml"), content)
		link := filepath.Join(volume, "..data_tmp")
		if err := os.Symlink(version, link); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link, filepath.Join(volume, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	update("..1", to("http://a"))
	path := filepath.Join(volume, "routes.yaml")
	if err := os.Symlink(filepath.Join("..data", "routes.yaml"), path); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, path)
		update("..2", to("http://b"))
		f.want("http://b", "Routes have changed")
		update("..3", to("http://c"))
		if err := os.RemoveAll(filepath.Join(volume, "..2")); err != nil {
			t.Fatal(err)
		}
		f.want("http://c", "Routes have changed")
	})
}

// An editor may be in the middle of writing a file.
func TestHalfAFileIsNotApplied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "routes.yaml")
	write(t, path, to("http://a"))
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, path)
		for _, half := range []string{"routes: []\n", "routes:\n", to("http://b"), "routes: [] # more\n"} {
			write(t, path, half)
			time.Sleep(500 * time.Millisecond) //nolint:forbidigo // Only the fake clock of the bubble moves.
			synctest.Wait()
			if got, _ := f.Find("f"); got.URL != "http://a" {
				t.Fatalf("f leads to %q while the file is changing", got.URL)
			}
		}
		write(t, path, to("http://c"))
		f.want("http://c", "Routes have changed")
	})
}

func TestTheFileMustBeGoodAtFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "routes.yaml")
	if _, err := routes.Open(path, nil, funcr.New(func(string, string) {}, funcr.Options{})); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a missing file: %v", err)
	}
	write(t, path, "routes: 7")
	if _, err := routes.Open(path, nil, funcr.New(func(string, string) {}, funcr.Options{})); err == nil || !strings.Contains(err.Error(), path+": line 1: routes must be a list") {
		t.Errorf("a bad file: %v", err)
	}
}
