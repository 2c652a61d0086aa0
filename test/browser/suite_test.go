package browser_test

import (
	"context"
	"net/http"
	"os"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/test/support/fixture"
)

func TestBrowser(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "A browser")
}

var (
	environment *fixture.Cluster
	admin       client.Client
	served      *operator
	browser     context.Context
)

var _ = BeforeSuite(func(ctx context.Context) {
	program := os.Getenv("CHROMIUM")
	Expect(program).NotTo(BeEmpty(), "CHROMIUM must name a Chromium; make browser-test finds one")
	environment = fixture.Start(ctx)
	admin = environment.Admin.Client
	browser = startBrowser(program) //nolint:fatcontext // It lives as long as the suite.
})

// A spec may end the process that another has started.
var _ = BeforeEach(func(ctx context.Context) {
	served = &operator{address: fixture.FreeAddress(ctx)}
	served.start(ctx)
})

// operator is the operator's own program with its façade, which asks for no credentials.
type operator struct {
	address string
	session *gexec.Session
}

func (o *operator) start(ctx context.Context) {
	GinkgoHelper()
	o.session = fixture.StartOperator(ctx, environment.Operator().Kubectl, "--components=facade,controller", "--leader-elect=false",
		"--clock-skew-allowance=0s", // There is one clock.
		"--facade-auth=none", "--facade-bind-address="+o.address)
}

func (o *operator) url() string { return "http://" + o.address }

// locks is the path of the locks that are watched.
const locks = "/v1/namespaces/default/locks"

// call sends a request to the façade, and returns the answer with its body closed.
func (o *operator) call(ctx context.Context, method, path, body, token string) reply {
	GinkgoHelper()
	return sendTo(ctx, o.url()+path, method, body, token)
}

// acquire acquires a lock that is free.
func (o *operator) acquire(ctx context.Context, key, body string) reply {
	GinkgoHelper()
	got := o.call(ctx, http.MethodPost, locks+"/"+key, body, "")
	Expect(got.status).To(Equal(http.StatusCreated), got.text)
	return got
}
