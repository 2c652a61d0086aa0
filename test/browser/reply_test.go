package browser_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"forrst.dev/lock-operator/facade/rest/wire"
)

// reply is an answer of the façade.
type reply struct {
	status int
	text   string
	lock   wire.Lock
	// at is when it had been received.
	at time.Time
}

func sendTo(ctx context.Context, url, method, body, token string) reply {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("X-Lock-Token", token)
	}
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	got := reply{status: response.StatusCode, text: string(text), at: time.Now()}
	if len(text) > 0 {
		Expect(json.Unmarshal(text, &got.lock)).To(Succeed(), got.text)
	}
	return got
}

// expiry is when the lock of the reply expires.
func (r reply) expiry() time.Time {
	GinkgoHelper()
	at, err := time.Parse(time.RFC3339Nano, r.lock.ExpiresAt)
	Expect(err).NotTo(HaveOccurred())
	return at
}
