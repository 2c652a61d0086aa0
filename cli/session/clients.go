package session

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/cli/durations"
	"forrst.dev/lock-operator/cli/failure"
	facadeclient "forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/apianswers"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

// What the sample of config/samples/facade/pod.yaml mounts.
const (
	projectedTokenFile     = "/var/run/secrets/lock-operator/token"
	projectedAuthorityFile = "/var/run/secrets/lock-operator/ca.crt"
)

// Scheme has the types that commands read and write.
var Scheme = func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	return scheme
}()

// RESTConfig returns how to reach the API server. It is an error to ask for it in a
// session with a façade, or whose options have a client.
func (s *Session) RESTConfig() (*rest.Config, error) {
	switch {
	case s.UsesFacade():
		return nil, failure.New(failure.Usage, "this needs an API server, and --server names a façade",
			"leave out --server, and choose the cluster with --context or --kubeconfig")
	case s.options.Cluster != nil:
		return nil, errors.New("the client of this session was given, and no way to an API server")
	}
	config, err := s.config.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	// The API server protects itself by priority and fairness; a list of many pages
	// would wait for the client's own limit.
	config.QPS = -1
	config.UserAgent = "kubectl-lock"
	config.WarningHandler = rest.NewWarningWriter(s.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	config.Wrap(apianswers.RoundTripper)
	config.Wrap(s.serverTime.RoundTripper)
	return config, nil
}

// Cluster returns the client of the API server, for locks and all other objects. It asks
// for the API's resources when they are first used. In a session with a façade the error
// says that the command needs an API server.
func (s *Session) Cluster() (client.WithWatch, error) {
	switch {
	case s.options.Cluster != nil:
		return s.options.Cluster, nil
	case s.cluster != nil:
		return s.cluster, nil
	}
	config, err := s.RESTConfig()
	if err != nil {
		return nil, err
	}
	s.cluster, err = client.NewWithWatch(config, client.Options{Scheme: Scheme})
	return s.cluster, err
}

// User returns who the caller is for the API server.
func (s *Session) User(ctx context.Context) (rules.User, error) {
	cluster, err := s.Cluster()
	if err != nil {
		return rules.User{}, err
	}
	var review authenticationv1.SelfSubjectReview
	if err := cluster.Create(ctx, &review); err != nil {
		return rules.User{}, fmt.Errorf("find out who you are: %w", err)
	}
	user := review.Status.UserInfo
	if user.Username == "" {
		return rules.User{}, errors.New("the API server does not say who you are")
	}
	return rules.User{Name: user.Username, UID: user.UID}, nil
}

// Backend returns the locks of the façade or of the API server, with the
// user's own identity. It lives until [Session.Close]. The namespace of its methods is
// [Session.Namespace].
func (s *Session) Backend(ctx context.Context) (lock.Backend, error) {
	switch {
	case s.options.Locks != nil:
		return s.options.Locks, nil
	case s.backend != nil:
		return s.backend, nil
	}
	var err error
	if s.UsesFacade() {
		s.backend, err = s.facade()
	} else {
		s.backend, err = s.direct(ctx)
	}
	return s.backend, err
}

// direct returns an engine that runs until the session is closed. It outlives ctx, since
// a command gives its lock back after ctx has ended.
func (s *Session) direct(ctx context.Context) (lock.Backend, error) {
	config, err := s.RESTConfig()
	if err != nil {
		return nil, err
	}
	direct, err := engine.NewDirect(config, s.Namespace(), logr.Discard())
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.running.Go(func() { _ = direct.Start(running) })
	return direct, nil
}

func (s *Session) facade() (lock.Backend, error) {
	httpClient, err := s.FacadeHTTP()
	if err != nil {
		return nil, err
	}
	options := []facadeclient.Option{
		facadeclient.WithHTTPClient(httpClient),
		facadeclient.WithNamespace(*s.config.Namespace),
		facadeclient.WithWatch(),
	}
	if path := s.facadeTokenFile(); path != "" {
		options = append(options, facadeclient.WithBearerTokenFile(path))
	}
	timeout, err := s.requestTimeout()
	if err != nil {
		return nil, err
	}
	if timeout > 0 {
		options = append(options, facadeclient.WithTimeout(timeout))
	}
	backend, err := facadeclient.New(s.server, options...)
	if err != nil {
		return nil, failure.New(failure.Usage, err.Error(), "name the façade by a URL such as http://127.0.0.1:8080")
	}
	return backend, nil
}

// Server returns the URL of the façade or of the API server, which keeps apart what is about locks of
// several clusters.
func (s *Session) Server() (string, error) {
	switch {
	case s.UsesFacade():
		return s.server, nil
	case s.options.Cluster != nil:
		return "", nil
	}
	config, err := s.RESTConfig()
	if err != nil {
		return "", err
	}
	return config.Host, nil
}

// FacadeHTTP returns a client that trusts the façade as the flags say. It sends no token.
func (s *Session) FacadeHTTP() (*http.Client, error) {
	config := rest.TLSClientConfig{CAFile: *s.config.CAFile, ServerName: *s.config.TLSServerName, Insecure: *s.config.Insecure}
	if config.CAFile == "" && !config.Insecure && exists(projectedAuthorityFile) {
		config.CAFile = projectedAuthorityFile
	}
	transport, err := rest.TransportFor(&rest.Config{Host: s.server, TLSClientConfig: config})
	if err != nil {
		return nil, failure.Usagef("the connection to the façade: %v", err)
	}
	return &http.Client{Transport: s.serverTime.RoundTripper(transport)}, nil
}

// facadeTokenFile returns where the token for the façade is. Empty means nowhere.
func (s *Session) facadeTokenFile() string {
	if s.tokenFile == "" && exists(projectedTokenFile) {
		return projectedTokenFile
	}
	return s.tokenFile
}

func (s *Session) requestTimeout() (time.Duration, error) {
	text := *s.config.Timeout
	if text == "" || text == "0" {
		return 0, nil
	}
	timeout, err := durations.Parse(text)
	if err != nil || timeout <= 0 {
		return 0, failure.Usagef("--request-timeout is %q, which is no duration such as 5s", text)
	}
	return timeout, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
