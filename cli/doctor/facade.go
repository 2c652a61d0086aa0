package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"

	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/lock"
)

// maxProbeBytes is how much of an answer to a probe is read.
const maxProbeBytes = 4096

func examineFacade(ctx context.Context, s *session.Session) (Report, error) {
	const check = "façade"
	backend, err := s.Backend(ctx)
	if err != nil {
		return nil, err
	}
	server, _ := s.Server() // Only that of an API server may not be known.
	httpClient, err := s.FacadeHTTP()
	if err != nil {
		return nil, err
	}
	var report Report
	status, _, connection, err := probe(ctx, httpClient, server, "/readyz")
	if err != nil {
		what, do := failure.Contact(err)
		report.add(Fail, check, do, "%s: %v", what, err)
		return report, nil
	}
	saturation, limit, _, _ := probe(ctx, httpClient, server, "/readyz/saturation")
	switch {
	case status == http.StatusNotFound:
		report.add(Fail, check, "see that the address is right", "%s answers, and is no façade", server)
	case status != http.StatusOK:
		report.add(Fail, check, "see its log; it is not ready while it starts and stops", "it is not ready (status %d)", status)
	case saturation == http.StatusServiceUnavailable:
		report.add(Warn, check, "add replicas", "it is ready and at a limit of all callers: %s", limit)
	default:
		report.add(OK, check, "", "%s is ready", server)
	}
	// An owner token that no lock has: the answer is short.
	_, err = backend.List(ctx, s.Namespace(), lock.Filter{Owner: lock.NewOwner()})
	report.judgeClock(s.Clock.Now(), s.Now())
	if connection != nil {
		report.judgeValidity("that of the façade", connection.PeerCertificates[0].NotAfter, s.Now())
	}
	report.judgeList(err)
	return report, nil
}

// probe returns the status and the text of a probe. Connection is nil without TLS.
func probe(ctx context.Context, httpClient *http.Client, server, path string) (status int, text string, connection *tls.ConnectionState, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(server, "/")+path, http.NoBody)
	if err != nil {
		return 0, "", nil, err
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return 0, "", nil, err
	}
	defer func() { _ = response.Body.Close() }()
	content, _ := io.ReadAll(io.LimitReader(response.Body, maxProbeBytes))
	return response.StatusCode, strings.TrimSpace(string(content)), response.TLS, nil
}

// judgeList says what the error of a list of locks tells of the caller's rights.
func (r *Report) judgeList(err error) {
	const check = "your rights"
	switch {
	case err == nil:
		r.add(OK, check, "", "the façade knows you, and you may see locks")
	case errors.Is(err, lock.ErrUnauthenticated):
		r.add(Fail, check, "name a file with a token for the audience lock-operator.forrst.dev by --token-file", "the façade does not know you: %v", err)
	case errors.Is(err, lock.ErrForbidden):
		r.add(Warn, check, "to see locks, have the cluster role lock-operator-view bound in the namespace", "%v", err)
	default:
		r.add(Fail, check, "see the log of the façade; the API server may be away", "a list of locks is not answered: %v", err)
	}
}
