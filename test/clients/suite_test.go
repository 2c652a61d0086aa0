// Package clients_test proves that the clients in other languages than Go keep their promises with the operator's own program on
// an API server, with and without authentication. Their tests are in their own languages, in clients/; a control server lets them
// do to the façade what they cannot do as its callers.
package clients_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

const (
	// patience bounds what must happen, on a busy machine.
	patience = 10 * time.Minute
	// audience is that of the tokens for the façade.
	audience = "lock-operator.forrst.dev"
)

func TestClients(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(patience)
	RunSpecs(t, "Clients in other languages")
}

var environment *fixture.Cluster

var _ = BeforeSuite(func(ctx context.Context) { environment = fixture.Start(ctx) })

// facade is a process with a façade for one namespace, and what the control server does to it.
type facade struct {
	namespace, address string
	flags              []string
	process            *gexec.Session
	// tokenFile has the bearer token of callers, and validToken what belongs into it. Both are empty without authentication.
	tokenFile, validToken string
}

// startFacade starts a façade with or without authentication, and with more flags.
func startFacade(ctx context.Context, isAuthenticated bool, more ...string) *facade {
	GinkgoHelper()
	f := &facade{namespace: environment.Namespace(ctx, "clients-"), address: fixture.FreeAddress(ctx)}
	f.flags = []string{
		"--components=facade,controller", "--leader-elect=false", "--metrics-bind-address=0", "--audit-log=", "--leader-election-namespace=" + testenv.OperatorNamespace,
		"--facade-bind-address=" + f.address, "--facade-shutdown-delay=0s", "--facade-max-block=2s", "--facade-max-rate-per-caller=0",
	}
	if isAuthenticated {
		f.tokenFile = filepath.Join(GinkgoT().TempDir(), "token")
		f.validToken = callerToken(ctx, f.namespace)
		f.writeToken(f.validToken)
	} else {
		f.flags = append(f.flags, "--facade-auth=none", "--facade-namespace="+f.namespace)
	}
	f.flags = append(f.flags, more...)
	f.start(ctx)
	return f
}

// callerToken returns a token for the façade of a service account that has every right on the locks of the namespace.
func callerToken(ctx context.Context, namespace string) string {
	GinkgoHelper()
	environment.CallerToken(ctx, namespace, "caller", "create", "get", "list", "watch", "prioritize", "force-release")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "caller"}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
	Expect(environment.Admin.Client.SubResource("token").Create(ctx, account, request)).To(Succeed())
	return request.Status.Token
}

func (f *facade) writeToken(token string) {
	GinkgoHelper()
	// As a kubelet does it, so that no reader finds half of a token.
	next := f.tokenFile + ".next"
	Expect(os.WriteFile(next, []byte(token+"\n"), 0o600)).To(Succeed())
	Expect(os.Rename(next, f.tokenFile)).To(Succeed())
}

func (f *facade) start(ctx context.Context) {
	GinkgoHelper()
	f.process = fixture.StartOperator(ctx, environment.Operator().Kubectl, f.flags...)
}

// keys are those of the Lock objects that are there.
func (f *facade) keys(ctx context.Context) []string {
	GinkgoHelper()
	var locks v1alpha1.LockList
	Expect(environment.Admin.Client.List(ctx, &locks, client.InNamespace(f.namespace))).To(Succeed())
	keys := []string{}
	for i := range locks.Items {
		keys = append(keys, locks.Items[i].Spec.Key)
	}
	return keys
}

// serveControl serves what tests do to the façade, on loopback: GET /locks lists the keys of the Lock objects that are left, POST
// /kill ends the façade at once, /stop in good order, /start starts it anew, and /token?valid= replaces the bearer token.
func (f *facade) serveControl(ctx context.Context) (url string) {
	GinkgoHelper()
	handle := func(do func() any) http.HandlerFunc {
		return func(writer http.ResponseWriter, _ *http.Request) {
			failure := InterceptGomegaFailure(func() {
				if answer := do(); answer != nil {
					Expect(json.NewEncoder(writer).Encode(answer)).To(Succeed())
				}
			})
			if failure != nil {
				http.Error(writer, failure.Error(), http.StatusInternalServerError)
			}
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /locks", handle(func() any { return f.keys(ctx) }))
	mux.HandleFunc("POST /kill", handle(func() any { f.process.Kill().Wait(patience); return nil }))
	mux.HandleFunc("POST /stop", handle(func() any { f.process.Terminate().Wait(patience); return nil }))
	mux.HandleFunc("POST /start", handle(func() any { f.start(ctx); return nil }))
	mux.HandleFunc("POST /token/valid", handle(func() any { f.writeToken(f.validToken); return nil }))
	mux.HandleFunc("POST /token/invalid", handle(func() any { f.writeToken("expired"); return nil }))
	server := httptest.NewServer(mux)
	DeferCleanup(server.Close)
	return server.URL
}

var _ = Describe("The TypeScript client", func() {
	DescribeTable("passes its tests", func(ctx context.Context, isAuthenticated bool) {
		folder := installed(ctx)
		f := startFacade(ctx, isAuthenticated)
		command := exec.CommandContext(ctx, "node", "--test", "--test-concurrency=1", "dist/test/")
		command.Dir = folder
		command.Env = append(os.Environ(),
			"LOCK_URL=http://"+f.address, "LOCK_NAMESPACE="+f.namespace, "LOCK_TOKEN_FILE="+f.tokenFile, "LOCK_CONTROL="+f.serveControl(ctx),
			"LOCK_CERTIFICATES="+certificates())
		run(command)
	},
		Entry("without authentication", false),
		Entry("with bearer tokens", true),
	)

	It("is packed with nothing but its program, its types and its texts", func(ctx context.Context) {
		command := exec.CommandContext(ctx, "npm", "pack", "--dry-run", "--json", "--ignore-scripts")
		command.Dir = installed(ctx)
		text, err := command.Output()
		Expect(err).NotTo(HaveOccurred())
		var packed []struct{ Files []struct{ Path string } }
		Expect(json.Unmarshal(text, &packed)).To(Succeed(), "%s", text)
		var others []string
		for _, file := range packed[0].Files {
			isBuilt := strings.HasPrefix(file.Path, "dist/src/") && (strings.HasSuffix(file.Path, ".js") || strings.HasSuffix(file.Path, ".d.ts"))
			if !isBuilt {
				others = append(others, file.Path)
			}
		}
		Expect(others).To(ConsistOf("LICENSE", "README.md", "package.json"))
	})
})

// certificates returns a folder with two certificates for loopback, each of its own authority, and their keys.
func certificates() string {
	GinkgoHelper()
	folder := GinkgoT().TempDir()
	for _, name := range []string{"first", "second"} {
		certificate, key, err := certutil.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(filepath.Join(folder, name+".crt"), certificate, 0o600)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(folder, name+".key"), key, 0o600)).To(Succeed())
	}
	return folder
}

// installed returns the folder of the client, compiled, with what that takes from the registry of npm. Without Node the spec is
// skipped; in CI that is a failure.
func installed(ctx context.Context) string {
	GinkgoHelper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			Expect(os.Getenv("CI")).To(BeEmpty(), "%s is not installed", program)
			Skip(program + " is not installed")
		}
	}
	folder, err := filepath.Abs("../../clients/typescript")
	Expect(err).NotTo(HaveOccurred())
	if !isNewer(filepath.Join(folder, "node_modules", ".package-lock.json"), filepath.Join(folder, "package-lock.json")) {
		install := exec.CommandContext(ctx, "npm", "ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund")
		install.Dir = folder
		run(install)
	}
	// What an earlier version has left would run, too.
	Expect(os.RemoveAll(filepath.Join(folder, "dist"))).To(Succeed())
	compile := exec.CommandContext(ctx, "node_modules/.bin/tsc")
	compile.Dir = folder
	run(compile)
	return folder
}

// isNewer reports whether a file exists and is not older than another one.
func isNewer(file, than string) bool {
	made, err := os.Stat(file)
	if err != nil {
		return false
	}
	other, err := os.Stat(than)
	return err == nil && !made.ModTime().Before(other.ModTime())
}

func run(command *exec.Cmd) {
	GinkgoHelper()
	session, err := gexec.Start(command, GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	Eventually(session).WithTimeout(patience).Should(gexec.Exit())
	Expect(session.ExitCode()).To(BeZero(), "%s\n%s", session.Out.Contents(), session.Err.Contents())
}
