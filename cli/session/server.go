package session

import (
	"net/http"

	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/cli/failure"
)

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
