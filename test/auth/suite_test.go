// Package auth_test proves that the façade lets each caller do what RBAC allows and no more,
// with tokens and rights of a real API server.
package auth_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"forrst.dev/lock-operator/auth"
	"forrst.dev/lock-operator/facade/forrst"
	"forrst.dev/lock-operator/facade/forrst/forward"
	"forrst.dev/lock-operator/facade/forrst/routes"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testfacade"
)

const (
	// shortTTL is for how long the façade remembers an answer.
	shortTTL = time.Second
	// patience has room for a slow machine.
	patience = 30 * time.Second
)

func TestAuth(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Authentication and authorization")
}

var (
	environment *fixture.Cluster
	admin       kubernetes.Interface
	url         string
	// logged is everything that the façade has logged.
	logged *logRecorder
	// service is what functions "r.…" are routed to.
	service *routedService
)

// routedService answers every call, and keeps the headers of the last one.
type routedService struct {
	*httptest.Server
	last atomic.Pointer[http.Header]
}

func newRoutedService() *routedService {
	s := &routedService{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.last.Store(&r.Header)
		_, _ = w.Write([]byte(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"1","result":true}`))
	}))
	DeferCleanup(s.Close)
	return s
}

func (s *routedService) routing() *forrst.Routing {
	GinkgoHelper()
	table, err := routes.Parse([]byte("routes:\n- functions: ['r.*']\n  url: " + s.URL + "\n"))
	Expect(err).NotTo(HaveOccurred())
	client := forward.NewClient(nil)
	DeferCleanup(client.Close)
	return &forrst.Routing{Routes: table, Client: client}
}

var _ = BeforeSuite(func(ctx context.Context) {
	environment = fixture.Start(ctx)
	var err error
	admin, err = kubernetes.NewForConfig(environment.Admin.Config)
	Expect(err).NotTo(HaveOccurred())
	logged = &logRecorder{}
	service = newRoutedService()
	url = environment.StartFacade(ctx, "", func(settings *testfacade.Settings) {
		settings.Access = fixture.Access(environment.Operator().Config, auth.Options{TokenTTL: shortTTL, AllowTTL: shortTTL, DenyTTL: shortTTL})
		settings.Logger = logged.logger()
		settings.Routing = service.routing()
	})
})

// createNamespace creates a namespace with service accounts that may use its locks.
func createNamespace(ctx context.Context, accounts ...string) string {
	GinkgoHelper()
	namespace := environment.Namespace(ctx, "auth-")
	for _, account := range accounts {
		_, err := admin.CoreV1().ServiceAccounts(namespace).Create(ctx,
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		grant(ctx, namespace, namespace, account, "create", "get", "list")
	}
	return namespace
}

// grant lets a service account of one namespace do the verbs on the locks of another.
func grant(ctx context.Context, namespace, accountNamespace, account string, verbs ...string) {
	GinkgoHelper()
	name := account + "-" + strings.Join(verbs, "-")
	_, err := admin.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"forrst.dev"}, Resources: []string{"locks"}, Verbs: verbs}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = admin.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: accountNamespace, Name: account}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// token returns a token of a service account, for the audiences.
func token(ctx context.Context, namespace, account string, audiences ...string) string {
	GinkgoHelper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	issued, err := admin.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return issued.Status.Token
}

// answer is what the façade answered.
type answer struct {
	Status     int             `json:"-"`
	Header     http.Header     `json:"-"`
	Result     json.RawMessage `json:"result"`
	Errors     []problem       `json:"errors"`
	Extensions json.RawMessage `json:"extensions"`
}

type problem struct {
	Code    string          `json:"code"`
	Message string          `json:"message"`
	Details json.RawMessage `json:"details"`
}

// outcome is the status with the code of the error, if any.
func (a answer) outcome() string {
	if len(a.Errors) == 0 {
		return fmt.Sprint(a.Status)
	}
	return fmt.Sprint(a.Status, " ", a.Errors[0].Code)
}

// call calls a function with arguments in JSON. Headers are "Name: value".
func call(ctx context.Context, token, function, arguments string, headers ...string) answer {
	GinkgoHelper()
	return post(ctx, "/forrst", token, function, arguments, headers...)
}

func post(ctx context.Context, path, token, function, arguments string, headers ...string) answer {
	GinkgoHelper()
	body := fmt.Sprintf(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"1","call":{"function":%q,"version":"1.0.0","arguments":%s}}`,
		function, arguments)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+path, strings.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Add(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	got := answer{Status: response.StatusCode, Header: response.Header}
	Expect(json.NewDecoder(response.Body).Decode(&got)).To(Succeed())
	return got
}
