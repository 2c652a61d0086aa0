package doctor

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/lock"
)

// FacadeFacts are what [AskFacade] has found out about a façade.
type FacadeFacts struct {
	URL string
	// Local and Server are clocks as in [Facts].
	Local, Server time.Time
	// Ready and Saturated are the answers to the probes of readiness and of saturation.
	Ready, Saturated Answer[Probe]
	// Listed is the error of a list of one lock.
	Listed error
}

// Probe is the answer to a probe: its status and text, and when the certificate of the façade ends, which is zero without TLS.
type Probe struct {
	Status   int
	Text     string
	NotAfter time.Time
}

// maxProbeBytes is how much of an answer to a probe is read.
const maxProbeBytes = 4096

// AskFacade gathers the facts of the façade of a session.
func AskFacade(ctx context.Context, s *session.Session) (*FacadeFacts, error) {
	backend, err := s.Backend(ctx)
	if err != nil {
		return nil, err
	}
	server, err := s.Server()
	if err != nil {
		return nil, err
	}
	httpClient, err := s.FacadeHTTP()
	if err != nil {
		return nil, err
	}
	facts := &FacadeFacts{URL: server}
	facts.Ready = probe(ctx, httpClient, server, "/readyz")
	if facts.Ready.Err == nil {
		facts.Saturated = probe(ctx, httpClient, server, "/readyz/saturation")
		// An owner token that no lock has: the answer is short.
		_, facts.Listed = backend.List(ctx, s.Namespace(), lock.Filter{Owner: lock.NewOwner()})
	}
	facts.Local, facts.Server = s.Clock.Now(), s.Now()
	return facts, nil
}

func probe(ctx context.Context, httpClient *http.Client, server, path string) (answer Answer[Probe]) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(server, "/")+path, http.NoBody)
	if err != nil {
		return Answer[Probe]{Err: err}
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return Answer[Probe]{Err: err}
	}
	defer func() { _ = response.Body.Close() }()
	if response.TLS != nil && len(response.TLS.PeerCertificates) > 0 {
		answer.Value.NotAfter = response.TLS.PeerCertificates[0].NotAfter
	}
	content, _ := io.ReadAll(io.LimitReader(response.Body, maxProbeBytes))
	answer.Value.Status, answer.Value.Text = response.StatusCode, strings.TrimSpace(string(content))
	return answer
}

// JudgeFacade says what the facts mean.
func JudgeFacade(facts *FacadeFacts) Report {
	const check = "façade"
	report := &Report{}
	if err := facts.Ready.Err; err != nil {
		what, do := failure.Contact(err)
		report.fail(check, do, "%s: %v", what, err)
		return *report
	}
	ready, saturated := facts.Ready.Value, facts.Saturated
	switch {
	case ready.Status == http.StatusNotFound:
		report.fail(check, "see that the address is right", "%s answers, and is no façade", facts.URL)
	case ready.Status != http.StatusOK:
		report.fail(check, "see its log; it is not ready while it starts and stops", "it is not ready (status %d)", ready.Status)
	case saturated.Err == nil && saturated.Value.Status == http.StatusServiceUnavailable:
		report.warn(check, "add replicas", "it is ready and at a limit of all callers: %s", saturated.Value.Text)
	default:
		report.ok(check, "%s is ready", facts.URL)
	}
	report.judgeClock(facts.Local, facts.Server)
	if !ready.NotAfter.IsZero() {
		report.judgeValidity("certificate", "that of the façade", ready.NotAfter, facts.Server)
	}
	report.judgeList(facts.Listed)
	return *report
}

func (r *Report) judgeList(err error) {
	const check = "your rights"
	switch {
	case err == nil:
		r.ok(check, "the façade knows you, and you may see locks")
	case errors.Is(err, lock.ErrUnauthenticated):
		r.fail(check, "name a file with a token for the audience lock-operator.forrst.dev by --token-file", "the façade does not know you: %v", err)
	case errors.Is(err, lock.ErrForbidden):
		r.warn(check, "to see locks, have the cluster role lock-operator-view bound in the namespace", "%v", err)
	default:
		r.fail(check, "see the log of the façade; the API server may be away", "a list of locks is not answered: %v", err)
	}
}
