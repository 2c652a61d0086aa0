package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/zap/zapcore"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"forrst.dev/lock-operator/auth"
)

// The library that reviews tokens logs by itself when the API server is away.
func TestAFailedTokenReviewIsLoggedByTheLogger(t *testing.T) {
	var out bytes.Buffer
	// It stays the logger of the tests that follow, whose goroutines log at the same time.
	setLoggers(newLogger(&zap.Options{DestWriter: zapcore.Lock(zapcore.AddSync(&out))}))
	t.Cleanup(klog.ClearLogger)
	away := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(away.Close)
	reviewer, err := auth.New(&rest.Config{Host: away.URL}, away.Client(), auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	request.Header.Set("Authorization", "Bearer secret-token")
	if _, err := reviewer.Authenticate(request); err == nil {
		t.Error("a token that was not reviewed is accepted")
	}
	klog.Flush()
	if text := out.String(); !strings.Contains(text, "Failed to make webhook authenticator request") || strings.Contains(text, "secret-token") {
		t.Errorf("the logger has %q", text)
	}
}
