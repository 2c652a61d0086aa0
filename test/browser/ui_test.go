package browser_test

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/chromedp/chromedp"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/test/support/fixture"
)

// audience is that of the façade's callers.
const audience = "lock-operator.forrst.dev"

// openUI opens the page of the façade.
func openUI(url string) context.Context {
	GinkgoHelper()
	tab, closeTab := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	DeferCleanup(closeTab)
	Expect(chromedp.Do(tab, chromedp.Navigate(url+"/ui/"))).To(Succeed())
	return tab
}

// shown returns the text of a part of the page.
func shown(tab context.Context, selector string) func() (string, error) {
	return func() (string, error) {
		return chromedp.Run(tab, chromedp.Evaluate[string](`[...document.querySelectorAll("`+selector+`")].map(e => e.innerText).join("\n")`))
	}
}

// noting has the page note in each frame what such parts show, and returns what was noted. Some are there for a moment only.
func noting(tab context.Context, selector string) func() (string, error) {
	GinkgoHelper()
	Expect(chromedp.Run(tab, chromedp.Evaluate[bool](`(() => {
		const noted = (window.noted ??= {})["`+selector+`"] = new Set();
		const look = () => {
			for (const part of document.querySelectorAll("`+selector+`")) noted.add(part.innerText);
			requestAnimationFrame(look);
		};
		look();
		return true;
	})()`))).To(BeTrue())
	return func() (string, error) {
		return chromedp.Run(tab, chromedp.Evaluate[string](`[...window.noted["`+selector+`"]].join("\n")`))
	}
}

func click(tab context.Context, selector string) {
	GinkgoHelper()
	Expect(chromedp.Do(tab, chromedp.Click(chromedp.CSS(selector)))).To(Succeed())
}

func enter(tab context.Context, selector, text string) {
	GinkgoHelper()
	Expect(chromedp.Do(tab, chromedp.SendKeys(chromedp.CSS(selector), text))).To(Succeed())
}

// viewer returns a token of a service account with the rights in the default namespace.
func viewer(ctx context.Context, name string, verbs ...string) string {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Namespace: "default", Name: name}
	account := &corev1.ServiceAccount{ObjectMeta: meta}
	Expect(admin.Create(ctx, account)).To(Succeed())
	Expect(admin.Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"forrst.dev"}, Resources: []string{"locks"}, Verbs: verbs},
	}})).To(Succeed())
	Expect(admin.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: name}},
	})).To(Succeed())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
	Expect(admin.SubResource("token").Create(ctx, account, request)).To(Succeed())
	return request.Status.Token
}

var _ = Describe("The page", func() {
	It("shows a line, ends a lock by force, and goes on after a restart", func(ctx context.Context) {
		tab := openUI(served.url())
		Eventually(shown(tab, ".link")).WithTimeout(patience).Should(Equal("Live"))
		served.acquire(ctx, "page:a", `{"ttl_seconds":600,"reason":"first"}`)
		Eventually(shown(tab, ".lock")).WithTimeout(patience).Should(ContainSubstring("page:a"))
		granted := make(chan reply, 1)
		go func() {
			defer GinkgoRecover()
			granted <- served.acquire(ctx, "page:a", `{"ttl_seconds":600,"wait_seconds":50,"reason":"second"}`)
		}()
		Eventually(shown(tab, ".lock .dots")).WithTimeout(patience).Should(Equal("1"))
		click(tab, `.lock[data-key='page:a'] a`)
		Eventually(shown(tab, ".waiters li")).WithTimeout(patience).Should(ContainSubstring("second"))
		click(tab, ".danger .force")
		Eventually(shown(tab, "dialog")).WithTimeout(patience).Should(ContainSubstring("gets the lock next"))
		enter(tab, "#reason", "it is stuck")
		click(tab, "dialog .force")
		Eventually(granted).WithTimeout(patience).Should(Receive())
		Eventually(shown(tab, ".facts")).WithTimeout(patience).Should(ContainSubstring("second"))
		Eventually(shown(tab, ".timeline li")).WithTimeout(patience).Should(ContainSubstring("released after"))

		served.session.Kill().Wait(patience)
		Eventually(shown(tab, ".link")).WithTimeout(patience).Should(ContainSubstring("Connection lost"))
		served.start(ctx)
		Eventually(shown(tab, ".link")).WithTimeout(patience).Should(Equal("Live"))
		live, over := noting(tab, ".lock:not(.over)"), noting(tab, ".lock.over")
		served.acquire(ctx, "page:b", `{"ttl_seconds":5}`)
		Eventually(live).WithTimeout(patience).Should(ContainSubstring("page:b"))
		Eventually(over).WithTimeout(patience).Should(And(ContainSubstring("page:b"), ContainSubstring("expired")))
	})

	It("lets a viewer do what its roles allow, and no more", func(ctx context.Context) {
		address := fixture.FreeAddress(ctx)
		fixture.StartOperator(ctx, environment.Operator().Kubectl, "--components=facade", "--leader-elect=false",
			"--facade-auth=token", "--facade-bind-address="+address)
		reader := viewer(ctx, "page-reader", "get", "list", "watch")
		breaker := viewer(ctx, "page-breaker", "get", "list", "watch", "create", "force-release")
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+locks+"/page:c", strings.NewReader(`{"ttl_seconds":600}`))
		Expect(err).NotTo(HaveOccurred())
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer "+breaker)
		response, err := http.DefaultClient.Do(request)
		Expect(err).NotTo(HaveOccurred())
		Expect(response.Body.Close()).To(Succeed())
		Expect(response.StatusCode).To(Equal(http.StatusCreated))

		signIn := func(token string) context.Context {
			GinkgoHelper()
			tab := openUI("http://" + address)
			enter(tab, "#token", token)
			click(tab, "button.main")
			Eventually(shown(tab, ".lock")).WithTimeout(patience).Should(ContainSubstring("page:c"))
			click(tab, `.lock[data-key='page:c'] a`)
			return tab
		}
		tab := signIn(reader)
		Eventually(shown(tab, ".danger")).WithTimeout(patience).Should(ContainSubstring("You may not"))
		Consistently(shown(tab, ".danger button")).WithTimeout(300 * time.Millisecond).Should(BeEmpty())
		tab = signIn(breaker)
		Eventually(shown(tab, ".danger button")).WithTimeout(patience).ShouldNot(BeEmpty())
		click(tab, ".danger .force")
		enter(tab, "#reason", "the page's test")
		click(tab, "dialog .force")
		Eventually(shown(tab, ".state")).WithTimeout(patience).Should(ContainSubstring("Free"))
	})
})
