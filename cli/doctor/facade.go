package doctor

import (
	"context"
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
	ready, _, err := probe(ctx, httpClient, server, "/readyz")
	if err != nil {
		what, do := failure.Contact(err)
		report.add(Fail, check, do, "%s: %v", what, err)
		return report, nil
	}
	saturated, limit, err := probe(ctx, httpClient, server, "/readyz/saturation")
	switch {
	case ready.StatusCode == http.StatusNotFound:
		report.add(Fail, check, "see that the address is right", "%s answers, and is no façade", server)
	case ready.StatusCode != http.StatusOK:
		report.add(Fail, check, "see its log; it is not ready while it starts and stops", "it is not ready (status %d)", ready.StatusCode)
	case err == nil && saturated.StatusCode == http.StatusServiceUnavailable:
		report.add(Warn, check, "add replicas", "it is ready and at a limit of all callers: %s", limit)
	default:
		report.add(OK, check, "", "%s is ready", server)
	}
	// An owner token that no lock has: the answer is short.
	_, err = backend.List(ctx, s.Namespace(), lock.Filter{Owner: lock.NewOwner()})
	report.judgeClock(s.Clock.Now(), s.Now())
	if ready.TLS != nil {
		report.judgeValidity("that of the façade", ready.TLS.PeerCertificates[0].NotAfter, s.Now())
	}
	report.judgeList(err)
	return report, nil
}

// probe returns the answer to a probe, and its text.
func probe(ctx context.Context, httpClient *http.Client, server, path string) (response *http.Response, text string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(server, "/")+path, http.NoBody)
	if err != nil {
		return nil, "", err
	}
	response, err = httpClient.Do(request)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = response.Body.Close() }()
	content, _ := io.ReadAll(io.LimitReader(response.Body, maxProbeBytes))
	return response, strings.TrimSpace(string(content)), nil
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
