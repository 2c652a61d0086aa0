package certfile_test

import (
	"context"
	"crypto/tls"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/util/cert"
	clocktesting "k8s.io/utils/clock/testing"

	"forrst.dev/lock-operator/certificates/certfile"
)

// folder is one with the files of a certificate, which may not be there.
type folder string

func (f folder) options() certfile.Options {
	return certfile.Options{Certificate: filepath.Join(string(f), "tls.crt"), Key: filepath.Join(string(f), "tls.key")}
}

// issue writes a new certificate with its key.
func (f folder) issue(t *testing.T) {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, "tls.crt", certificate)
	f.write(t, "tls.key", key)
}

func (f folder) write(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(string(f), name), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestACertificateThatComesLaterIsWaitedFor(t *testing.T) {
	in := folder(t.TempDir())
	changed := make(chan *tls.Certificate, 10)
	options := in.options()
	options.OnChange = func(changes *tls.Certificate) { changed <- changes }
	clock := clocktesting.NewFakeClock(time.Now())
	options.Clock = clock
	files := certfile.New(options)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- files.Start(ctx) }()
	for !clock.HasWaiters() {
		runtime.Gosched()
	}
	if err := files.Ready(nil); err == nil {
		t.Error("ready without a certificate")
	}
	if files.Leaf() != nil {
		t.Error("serves a certificate that it has not read")
	}
	for range 2 {
		in.issue(t)
		clock.Step(certfile.DefaultInterval)
		read := <-changed
		if got, err := files.GetCertificate(nil); err != nil || got != read {
			t.Errorf("%v, %v", got, err)
		}
		if err := files.Ready(nil); err != nil {
			t.Error(err)
		}
		if got := files.Leaf(); !got.Equal(read.Leaf) {
			t.Errorf("serves the certificate %s", got.SerialNumber)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestWhatCannotBeReadLeavesTheFormerCertificate(t *testing.T) {
	for name, change := range map[string]func(*testing.T, folder){
		"a broken certificate": func(t *testing.T, in folder) { t.Helper(); in.write(t, "tls.crt", []byte("broken")) },
		"a key of another": func(t *testing.T, in folder) {
			t.Helper()
			other := folder(t.TempDir())
			other.issue(t)
			in.take(t, other, "tls.key")
		},
		"no file":      func(t *testing.T, in folder) { t.Helper(); in.remove(t, "tls.crt") },
		"an empty key": func(t *testing.T, in folder) { t.Helper(); in.write(t, "tls.key", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			in := folder(t.TempDir())
			in.issue(t)
			var lines []string
			options := in.options()
			options.Logger = funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
			files := certfile.New(options)
			if err := files.Load(); err != nil {
				t.Fatal(err)
			}
			former, err := files.GetCertificate(nil)
			if err != nil {
				t.Fatal(err)
			}
			key, err := os.ReadFile(options.Key)
			if err != nil {
				t.Fatal(err)
			}
			change(t, in)
			for range 3 {
				if err := files.Load(); err == nil {
					t.Error("no error")
				}
			}
			if got, err := files.GetCertificate(nil); err != nil || got != former {
				t.Errorf("%v, %v", got, err)
			}
			if len(lines) != 2 {
				t.Errorf("want a line of the certificate, and one of the failure, got %q", lines)
			}
			if strings.Contains(strings.Join(lines, ""), strings.Split(string(key), "\n")[1]) {
				t.Error("the log has the key")
			}
		})
	}
}

func (f folder) take(t *testing.T, other folder, name string) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(string(other), name))
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, name, content)
}

func (f folder) remove(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(string(f), name)); err != nil {
		t.Fatal(err)
	}
}
