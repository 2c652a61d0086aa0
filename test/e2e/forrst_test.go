package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const (
	lockExtension = "urn:forrst:ext:atomicLock"
	lockFunctions = "urn:cline:forrst:ext:atomic-lock:fn:"
)

// answer is what the façade answered.
type answer struct {
	Status     int       `json:"-"`
	Result     any       `json:"result"`
	Errors     []failure `json:"errors"`
	Extensions []struct {
		URN  string         `json:"urn"`
		Data map[string]any `json:"data"`
	} `json:"extensions"`
}

type failure struct {
	Code    string         `json:"code"`
	Message string         `json:"message"`
	Details map[string]any `json:"details"`
}

// post sends a body to the façade. Errors of the transport fail the spec.
func (c *cluster) post(ctx context.Context, body string) answer {
	GinkgoHelper()
	got, err := c.tryPost(ctx, body)
	Expect(err).NotTo(HaveOccurred())
	return got
}

func (c *cluster) tryPost(ctx context.Context, body string) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.facade+"/forrst", strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	got := answer{Status: response.StatusCode}
	err = json.NewDecoder(response.Body).Decode(&got)
	return got, err
}

// acquire takes a global lock and leaves it held.
func (c *cluster) acquire(ctx context.Context, key, owner string, ttlSeconds int) answer {
	GinkgoHelper()
	return c.post(ctx, acquireBody(key, owner, ttlSeconds, false))
}

func acquireBody(key, owner string, ttlSeconds int, autoRelease bool) string {
	return fmt.Sprintf(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"e2e","call":{"function":"forrst.ping"},"extensions":[
		{"urn":%q,"options":{"key":%q,"scope":"global","owner":%q,"ttl":{"value":%d,"unit":"second"},"auto_release":%t}}]}`,
		lockExtension, key, owner, ttlSeconds, autoRelease)
}

// call calls a function of the lock extension.
func (c *cluster) call(ctx context.Context, function string, arguments map[string]any) answer {
	GinkgoHelper()
	encoded, err := json.Marshal(arguments)
	Expect(err).NotTo(HaveOccurred())
	return c.post(ctx, fmt.Sprintf(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"e2e","call":{"function":%q,"version":"1.0.0","arguments":%s}}`,
		lockFunctions+function, encoded))
}

// beAcquired matches an answer that holds the lock and its fencing token.
func beAcquired() OmegaMatcher {
	return And(HaveField("Status", 200), HaveField("Extensions", HaveExactElements(
		HaveField("Data", HaveKeyWithValue("acquired", true)),
		And(HaveField("URN", "urn:k8s:forrst:ext:fencing"), HaveField("Data", HaveKeyWithValue("token", BeNumerically(">", 0)))))))
}

// failWith matches an answer with one error.
func failWith(status int, code string) OmegaMatcher {
	return And(HaveField("Status", status), HaveField("Result", BeNil()), HaveField("Errors", ConsistOf(HaveField("Code", code))))
}

// restAnswer is one of the REST door.
type restAnswer struct {
	Status int    `json:"-"`
	Token  string `json:"lock_token"`
	Body   []byte `json:"-"`
}

// rest sends a request to the REST door, with a body and a lock token unless they are empty.
func (c *cluster) rest(ctx context.Context, method, path, body, token string) restAnswer {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, method, c.facade+path, strings.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		request.Header.Set("X-Lock-Token", token)
	}
	response, err := c.http.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	got := restAnswer{Status: response.StatusCode}
	// The length of no answer is known with HTTP/1.1 only.
	if response.ContentLength != 0 && response.StatusCode != http.StatusNoContent {
		got.Body, err = io.ReadAll(response.Body)
		Expect(err).NotTo(HaveOccurred())
		Expect(json.Unmarshal(got.Body, &got)).To(Succeed())
	}
	return got
}
