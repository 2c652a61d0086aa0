// Package certfile reads the certificate that a process serves from two files, waits for them if they are not
// there yet, and reads them again when they change. In a pod they are those of a Secret, which may be filled
// after the pod has started.
package certfile

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// DefaultInterval is how often the files are read. A kubelet takes longer to write them.
const DefaultInterval = 2 * time.Second

// Options configures [Files].
type Options struct {
	// Certificate and Key are the paths of the files, in PEM. Required.
	Certificate, Key string
	// Interval is how often they are read. Zero means [DefaultInterval].
	Interval time.Duration
	// OnChange is called with each certificate that differs from the one before, by the goroutine that reads.
	// Nil means not to be told.
	OnChange func(*tls.Certificate)
	// Clock waits. Nil means the real clock.
	Clock clock.WithTicker
	// Logger gets a message for each certificate, and for each reason why there is none. Zero discards.
	Logger logr.Logger
}

// Files is a certificate with its key in two files, which [Files.Load] or [Files.Start] reads. What cannot be
// read leaves the one that was read before. It takes the place of controller-runtime's certwatcher, which
// fails if there are no files when it starts. It is safe for concurrent use.
type Files struct {
	options Options

	mu               sync.Mutex
	certificate, key []byte
	parsed           *tls.Certificate
	failure          error
}

// New returns files that have not been read.
func New(options Options) *Files {
	options.Interval = cmp.Or(options.Interval, DefaultInterval)
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	return &Files{options: options, failure: errors.New("it was not read yet")}
}

// Load reads the files now. An error says why the certificate in them cannot be served; an earlier one still is.
func (f *Files) Load() error {
	changed, err := f.load()
	if changed != nil && f.options.OnChange != nil {
		f.options.OnChange(changed)
	}
	return err
}

// Start reads the files until ctx ends. It implements controller-runtime's manager.Runnable.
func (f *Files) Start(ctx context.Context) error {
	ticker := f.options.Clock.NewTicker(f.options.Interval)
	defer ticker.Stop()
	for {
		_ = f.Load() // It is logged, and kept for Ready.
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// NeedLeaderElection is false: every replica serves a certificate.
func (f *Files) NeedLeaderElection() bool { return false }

// GetCertificate returns the certificate, or an error if none could be read yet. It is for [tls.Config].
func (f *Files) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.parsed == nil {
		return nil, f.failure
	}
	return f.parsed, nil
}

// Ready returns an error until a certificate was read. It implements controller-runtime's healthz.Checker.
func (f *Files) Ready(*http.Request) error {
	_, err := f.GetCertificate(nil)
	return err
}

// Leaf returns the certificate that is served. Nil means that there is none.
func (f *Files) Leaf() *x509.Certificate {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.parsed == nil {
		return nil
	}
	return f.parsed.Leaf
}

// load returns the certificate if it differs from the one before.
func (f *Files) load() (changed *tls.Certificate, err error) {
	certificate, certificateErr := os.ReadFile(f.options.Certificate)
	key, keyErr := os.ReadFile(f.options.Key)
	err = errors.Join(certificateErr, keyErr)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && f.parsed != nil && bytes.Equal(certificate, f.certificate) && bytes.Equal(key, f.key) {
		f.failure = nil
		return nil, nil // It has not changed.
	}
	var parsed tls.Certificate
	if err == nil {
		// The files may be exchanged between the two reads. Then they do not fit until the next time.
		parsed, err = tls.X509KeyPair(certificate, key)
	}
	if err != nil {
		return nil, f.fail(fmt.Errorf("there is no certificate in %s yet: %w", f.options.Certificate, err))
	}
	f.certificate, f.key, f.parsed, f.failure = certificate, key, &parsed, nil
	f.options.Logger.Info("Read a certificate to serve", "file", f.options.Certificate, "notAfter", parsed.Leaf.NotAfter, "serial", parsed.Leaf.SerialNumber.Text(16))
	return &parsed, nil
}

// fail keeps the failure, and logs it unless it is that of the time before. It needs the mutex.
func (f *Files) fail(err error) error {
	if f.failure == nil || f.failure.Error() != err.Error() {
		message := "Waiting for the certificate to serve"
		if f.parsed != nil {
			message = "Could not read the certificate again, serving the former one"
		}
		f.options.Logger.Info(message, "file", f.options.Certificate, "error", err.Error())
	}
	f.failure = err
	return err
}
