package lab

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"forrst.dev/lock-operator/test/bench/contender"
)

func TestEcho(t *testing.T) {
	for path, want := range map[string]string{
		"/forrst":   `{"call":{"arguments":{"n":1}},"id":"7","protocol":{"name":"forrst","version":"0.1.0"}}`,
		servicePath: `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"7","result":{"n":1}}`,
	} {
		body := `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"7","call":{"arguments":{"n":1}}}`
		recorder := httptest.NewRecorder()
		answerEcho(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body)))
		if got := strings.TrimSpace(recorder.Body.String()); got != want || recorder.Code != http.StatusOK {
			t.Errorf("%s: %d, %s, want %s", path, recorder.Code, got, want)
		}
	}
}

func TestEchoEndsWithItsInput(t *testing.T) {
	in, hangUp := io.Pipe()
	address, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- RunEcho(in, out) }()
	var line [64]byte
	length, err := address.Read(line[:])
	if err != nil {
		t.Fatal(err)
	}
	connection, err := contender.DialFacade(t.Context(), strings.TrimSpace(string(line[:length])))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if err := connection.Call(t.Context(), connection.Request([]byte(`{"a":1}`)), []byte(`{"a":1}`)); err != nil {
		t.Error(err)
	}
	go func() { _, _ = io.Copy(io.Discard, address) }()
	_ = hangUp.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
