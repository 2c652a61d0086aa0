package auth_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/facade/forrst/wire"
)

const (
	ping    = "urn:cline:forrst:fn:ping"
	release = "urn:cline:forrst:ext:atomic-lock:fn:release"
	status  = "urn:cline:forrst:ext:atomic-lock:fn:status"
)

var _ = Describe("A façade with bearer tokens", Ordered, func() {
	var home, other, worker, rival, foreign string

	BeforeAll(func(ctx context.Context) {
		home, other = createNamespace(ctx, "worker", "rival"), createNamespace(ctx, "stranger")
		worker, rival, foreign = token(ctx, home, "worker"), token(ctx, home, "rival"), token(ctx, other, "stranger")
		Eventually(func() string { return call(ctx, worker, wire.List, `{}`).outcome() }).WithTimeout(patience).Should(Equal("200"))
	})

	It("refuses callers without a valid token", func(ctx context.Context) {
		for name, presented := range map[string]string{
			"none":              "",
			"garbage":           "garbage",
			"a forged one":      worker[:len(worker)-8] + "AAAAAAAA",
			"one of elsewhere":  token(ctx, home, "worker", "https://elsewhere.example"),
			"one with a space":  worker + " x",
			"two with a comma":  worker + "," + worker,
			"an unsigned claim": "eyJhbGciOiJub25lIn0.eyJzdWIiOiJzeXN0ZW06YWRtaW4ifQ.",
		} {
			got := call(ctx, presented, ping, `{}`)
			Expect(got.outcome()).To(Equal("401 UNAUTHORIZED"), name)
			Expect(got.Header.Get("WWW-Authenticate")).To(Equal("Bearer"), name)
		}
		By("looking for tokens in the Authorization header only")
		Expect(post(ctx, "/forrst?access_token="+worker, "", ping, `{}`).outcome()).To(Equal("401 UNAUTHORIZED"))
		By("letting no caller act as another")
		Expect(call(ctx, worker, ping, `{}`, "Impersonate-User: system:admin").outcome()).To(Equal("400 INVALID_REQUEST"))
	})

	It("stamps the caller as the holder, and refuses the lock to other callers", func(ctx context.Context) {
		got := call(ctx, worker, wire.Acquire, `{"key":"own","owner":"secret-owner","holder":"root"}`)
		Expect(got.outcome()).To(Equal("200"))
		Expect(string(got.Result)).To(ContainSubstring(`"holder":"system:serviceaccount:` + home + `:worker"`))

		By("refusing another identity that knows the owner token")
		for _, function := range []string{release, wire.Release, wire.Renew} {
			got := call(ctx, rival, function, `{"key":"own","owner":"secret-owner"}`)
			Expect(got.outcome()).To(Equal("403 LOCK_OWNERSHIP_MISMATCH"), function)
			Expect(string(got.Errors[0].Details)).NotTo(ContainSubstring("secret-owner"))
		}
		Expect(string(call(ctx, rival, wire.Status, `{"key":"own"}`).Result)).NotTo(ContainSubstring("secret-owner"))
		Expect(string(call(ctx, rival, wire.List, `{"owner":"secret-owner"}`).Result)).To(Equal(`{"locks":[]}`))

		By("letting the holder go on")
		Expect(call(ctx, worker, wire.Renew, `{"key":"own","owner":"secret-owner"}`).outcome()).To(Equal("200"))
		Expect(call(ctx, worker, release, `{"key":"own","owner":"secret-owner"}`).outcome()).To(Equal("200"))
		Expect(logged.String()).NotTo(Or(ContainSubstring("secret-owner"), ContainSubstring(worker)))
	})

	It("gives a caller without the right one answer, whether or not the lock is held", func(ctx context.Context) {
		Expect(call(ctx, worker, wire.Acquire, `{"key":"there","owner":"o"}`).outcome()).To(Equal("200"))
		for function, arguments := range map[string]string{
			wire.Acquire: `{"key":"KEY"}`, wire.Renew: `{"key":"KEY","owner":"o"}`, wire.Status: `{"key":"KEY"}`, wire.List: `{}`,
			release: `{"key":"KEY","owner":"o"}`, status: `{"key":"KEY"}`, wire.ForceRelease: `{"key":"KEY","reason":"r"}`,
		} {
			there := post(ctx, "/forrst/"+home, foreign, function, strings.ReplaceAll(arguments, "KEY", "there"))
			absent := call(ctx, foreign, function, strings.ReplaceAll(arguments, "KEY", "absent"), "Forrst-Namespace: "+home)
			Expect(there.outcome()).To(Equal("403 FORBIDDEN"), function)
			Expect(there.Errors).To(Equal(absent.Errors), function)
		}
		Expect(string(call(ctx, worker, status, `{"key":"there"}`).Result)).To(ContainSubstring(`"locked":true`))
		By("keeping the same key of another namespace apart")
		Expect(call(ctx, foreign, wire.Acquire, `{"key":"there"}`).outcome()).To(Equal("200"))
	})

	It("names what is wrong with a namespace", func(ctx context.Context) {
		Expect(post(ctx, "/forrst/"+home, worker, wire.List, `{}`, "Forrst-Namespace: "+other).outcome()).To(Equal("400 INVALID_ARGUMENTS"))
		Expect(call(ctx, worker, wire.List, `{}`, "Forrst-Namespace: Not_A_Name").outcome()).To(Equal("400 INVALID_ARGUMENTS"))
		Expect(post(ctx, "/forrst/"+home, worker, wire.List, `{}`, "Forrst-Namespace: "+home).outcome()).To(Equal("200"))
	})

	It("forces a release for callers with the verb force-release", func(ctx context.Context) {
		Expect(call(ctx, worker, wire.Acquire, `{"key":"stuck"}`).outcome()).To(Equal("200"))
		Expect(call(ctx, rival, wire.ForceRelease, `{"key":"stuck","reason":"r"}`).outcome()).To(Equal("403 FORBIDDEN"))
		grant(ctx, home, home, "rival", "force-release")
		Eventually(func() string {
			return call(ctx, rival, wire.ForceRelease, `{"key":"stuck","reason":"r"}`).outcome()
		}).WithTimeout(patience).Should(Equal("200"))

		By("asking them for a reason")
		Expect(call(ctx, worker, wire.Acquire, `{"key":"stuck"}`).outcome()).To(Equal("200"))
		for _, arguments := range []string{`{"key":"stuck"}`, `{"key":"stuck","reason":" "}`} {
			Expect(call(ctx, rival, wire.ForceRelease, arguments).outcome()).To(Equal("400 INVALID_ARGUMENTS"))
		}
		Expect(string(call(ctx, worker, status, `{"key":"stuck"}`).Result)).To(ContainSubstring(`"locked":true`))
	})

	It("refuses a caller seconds after its right or its identity is gone", func(ctx context.Context) {
		// The API server keeps what it knows of a token for ten seconds.
		Expect(admin.RbacV1().RoleBindings(home).Delete(ctx, "rival-create-get-list", metav1.DeleteOptions{})).To(Succeed())
		Eventually(func() string { return call(ctx, rival, wire.List, `{}`).outcome() }).WithTimeout(4 * patience).Should(Equal("403 FORBIDDEN"))
		Expect(admin.CoreV1().ServiceAccounts(home).Delete(ctx, "rival", metav1.DeleteOptions{})).To(Succeed())
		Eventually(func() string { return call(ctx, rival, ping, `{}`).outcome() }).WithTimeout(4 * patience).Should(Equal("401 UNAUTHORIZED"))
	})

	It("refuses every caller while the API server is away", func(ctx context.Context) {
		Expect(environment.APIServer().Stop()).To(Succeed())
		Eventually(func() string { return call(ctx, worker, ping, `{}`).outcome() }).WithTimeout(patience).Should(Equal("503 UNAVAILABLE"))
		Expect(call(ctx, "unknown", ping, `{}`).outcome()).To(Equal("503 UNAVAILABLE"))
		Expect(environment.APIServer().Start()).To(Succeed())
		Eventually(func() string { return call(ctx, worker, wire.List, `{}`).outcome() }).WithTimeout(patience).Should(Equal("200"))
	})
})
