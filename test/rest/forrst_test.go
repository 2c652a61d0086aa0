package rest_test

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

// forrst calls a lock function of the Forrst door on the same listener, and returns its result.
func (c caller) forrst(ctx context.Context, function, arguments string) map[string]any {
	GinkgoHelper()
	result, code := c.callForrst(ctx, function, arguments)
	Expect(code).To(BeEmpty())
	return result
}

// callForrst is forrst for a call that may fail: code is that of its error. The function is one of the vendor's, or has its whole name.
func (c caller) callForrst(ctx context.Context, function, arguments string) (result map[string]any, code string) {
	GinkgoHelper()
	if !strings.HasPrefix(function, "urn:") {
		function = "urn:k8s:forrst:ext:atomic-lock:fn:" + function
	}
	body := fmt.Sprintf(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"1","call":{"function":%q,"arguments":%s}}`, function, arguments)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/forrst/"+namespace, strings.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	var envelope struct {
		Result map[string]any `json:"result"`
		Errors []struct {
			Code string `json:"code"`
		} `json:"errors"`
	}
	Expect(json.Unmarshal(text, &envelope)).To(Succeed())
	if len(envelope.Errors) > 0 {
		return nil, envelope.Errors[0].Code
	}
	Expect(envelope.Result).NotTo(BeNil(), "%s", text)
	return envelope.Result, ""
}

var _ = Describe("Both doors", func() {
	It("keep each other's callers out", func(ctx context.Context) {
		alice, bob := worker(ctx, "alice", everything...), worker(ctx, "bob", everything...)
		held := alice.do(ctx, http.MethodPost, "/k", `{"ttl_seconds":60}`).lock()
		Expect(bob.forrst(ctx, "status", `{"key":"lock:k"}`)).To(And(HaveKeyWithValue("locked", true), HaveKeyWithValue("holder", held.Holder)))
		Expect(alice.do(ctx, http.MethodDelete, "/k", "", "X-Lock-Token", held.LockToken).status).To(Equal(http.StatusNoContent))
		bob.forrst(ctx, "acquire", `{"key":"k","owner":"o","ttl":{"value":1,"unit":"minute"}}`)
		Expect(alice.do(ctx, http.MethodPost, "/k", `{"ttl_seconds":60}`).status).To(Equal(http.StatusLocked))
		Expect(alice.do(ctx, http.MethodPut, "/k", `{"ttl_seconds":60}`, "X-Lock-Token", held.LockToken).status).To(Equal(http.StatusGone))
	})
})
