package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"forrst.dev/lock-operator/lock"
)

// FacadeFacts are what [Facade.Ask] has found out about a façade.
type FacadeFacts struct {
	URL string
	// Local and Server are clocks as in [Facts].
	Local, Server time.Time
	// Ready is the answer to its probe of readiness: the status, and why there is none. Saturated is
	// that of the probe of saturation, with its text.
	Ready     Answer[int]
	Saturated Answer[int]
	Shortage  string
	// NotAfter is when the certificate that it has shown ends. Zero without TLS.
	NotAfter time.Time
	// Listed is what became of a list of one lock.
	Listed error
}

// Facade is what [Facade.Ask] asks.
type Facade struct {
	URL string
	// HTTP trusts the certificate of the façade as the other commands do.
	HTTP *http.Client
	// List lists locks with the identity of the caller.
	List func(context.Context) error
	// Now is that of [Cluster].
	Now func() (local, server time.Time)
}

// maxProbeBytes is how much of an answer to a probe is read.
const maxProbeBytes = 4096

// Ask gathers the facts.
func (f Facade) Ask(ctx context.Context) *FacadeFacts {
	facts := &FacadeFacts{URL: f.URL}
	facts.Ready, _, facts.NotAfter = f.probe(ctx, "/readyz")
	if facts.Ready.Err == nil {
		facts.Saturated, facts.Shortage, _ = f.probe(ctx, "/readyz/saturation")
		facts.Listed = f.List(ctx)
	}
	facts.Local, facts.Server = f.Now()
	return facts
}

// probe also returns when the certificate of the façade ends; zero without TLS.
func (f Facade) probe(ctx context.Context, path string) (status Answer[int], text string, notAfter time.Time) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(f.URL, "/")+path, http.NoBody)
	if err != nil {
		return Answer[int]{Err: err}, "", time.Time{}
	}
	response, err := f.HTTP.Do(request)
	if err != nil {
		return Answer[int]{Err: err}, "", time.Time{}
	}
	defer func() { _ = response.Body.Close() }()
	if response.TLS != nil && len(response.TLS.PeerCertificates) > 0 {
		notAfter = response.TLS.PeerCertificates[0].NotAfter
	}
	content, _ := io.ReadAll(io.LimitReader(response.Body, maxProbeBytes))
	return Answer[int]{Value: response.StatusCode}, strings.TrimSpace(string(content)), notAfter
}

// JudgeFacade says what the facts mean.
func JudgeFacade(facts *FacadeFacts) []Finding {
	const check = "façade"
	if err := facts.Ready.Err; err != nil {
		do := "see that the address is right and a network path leads there"
		if strings.Contains(err.Error(), "x509") {
			do = "name the authority of its certificate by --certificate-authority"
		}
		return []Finding{failed(check, "it does not answer: "+err.Error(), do)}
	}
	findings := []Finding{judgeReadiness(facts), judgeClock(facts.Local, facts.Server)}
	if !facts.NotAfter.IsZero() {
		findings = append(findings, judgeServed(facts))
	}
	return append(findings, judgeList(facts.Listed))
}

func judgeReadiness(facts *FacadeFacts) Finding {
	const check = "façade"
	switch {
	case facts.Ready.Value == http.StatusNotFound:
		return failed(check, fmt.Sprintf("%s answers, and is no façade", facts.URL), "see that the address is right")
	case facts.Ready.Value != http.StatusOK:
		return failed(check, fmt.Sprintf("it is not ready (status %d)", facts.Ready.Value), "see its log; it is not ready while it starts and stops")
	case facts.Saturated.Err == nil && facts.Saturated.Value == http.StatusServiceUnavailable:
		return warning(check, "it is ready and at a limit of all callers: "+facts.Shortage, "add replicas")
	default:
		return ok(check, "%s is ready", facts.URL)
	}
}

func judgeServed(facts *FacadeFacts) Finding {
	const check, do = "certificate", "see why it is not renewed: the log of the controllers or, with cert-manager, kubectl get certificates -A"
	switch left := facts.NotAfter.Sub(facts.Server); {
	case left <= 0:
		return failed(check, "that of the façade has expired on "+day(facts.NotAfter), do)
	case left < shortValidity:
		return warning(check, "that of the façade expires on "+day(facts.NotAfter), do)
	default:
		return ok(check, "that of the façade is valid until %s", day(facts.NotAfter))
	}
}

func judgeList(err error) Finding {
	const check = "your rights"
	switch {
	case err == nil:
		return ok(check, "the façade knows you, and you may see locks")
	case errors.Is(err, lock.ErrUnauthenticated):
		return failed(check, "the façade does not know you: "+err.Error(),
			"name a file with a token for the audience lock-operator.forrst.dev by --token-file")
	case errors.Is(err, lock.ErrForbidden):
		return warning(check, err.Error(), "to see locks, have the cluster role lock-operator-view bound in the namespace")
	default:
		return failed(check, "a list of locks is not answered: "+err.Error(), "see the log of the façade; the API server may be away")
	}
}
