package webhook

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// operatorCondition is the match condition of config/webhook that exempts the operator.
const operatorCondition = "not-the-operator"

var (
	// unequalUser is a comparison that exempts one user, in a condition of any name.
	unequalUser = regexp.MustCompile(`request\.userInfo\.username\s*!=\s*(?:'[^']*'|"[^"]*")`)
	// listedUsers is a list of users, which in [operatorCondition] exempts them all.
	listedUsers = regexp.MustCompile(`request\.userInfo\.username\s+in\s*\[[^\]]*\]`)
	quoted      = regexp.MustCompile(`'[^']*'|"[^"]*"`)
)

// exemptionLogPeriod is the shortest interval between two logged errors about own requests.
const exemptionLogPeriod = time.Minute

// ExemptionOptions configures an [Exemption]. All fields are required.
type ExemptionOptions struct {
	// User is the user name of the operator.
	User string
	// Reader reads webhook configurations from the API server.
	Reader client.Reader
	// Clock limits how often the same error is logged.
	Clock clock.PassiveClock
	// Registerer takes the metrics.
	Registerer prometheus.Registerer
	Logger     logr.Logger
}

// Exemption admits the requests of the operator itself unchanged, because the operator
// applies the rules of admission before it writes. The webhook configuration should exempt
// them already: otherwise the operator's writes fail while the webhook is down. If it
// does not, that is logged at the start and with the first such request. That it exempts another
// user, whose writes then bypass admission, is logged at the start. A nil Exemption exempts
// no request. Safe for concurrent use.
type Exemption struct {
	options    ExemptionOptions
	requests   prometheus.Counter
	otherUsers prometheus.Gauge

	mu     sync.Mutex
	logged time.Time
}

// NewExemption returns an exemption and registers its metrics. To check the webhook
// configurations, add it to a manager.
func NewExemption(options ExemptionOptions) (*Exemption, error) {
	exemption := &Exemption{
		options: options,
		requests: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lock_operator_webhook_own_requests_total",
			Help: "Requests of the operator that reached its own webhook because the webhook configuration does not exempt them.",
		}),
		otherUsers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lock_operator_webhook_other_users_exempted",
			Help: "Match conditions, at the start of the replica, that exempt another user than the operator from the webhook.",
		}),
	}
	for _, metric := range []prometheus.Collector{exemption.requests, exemption.otherUsers} {
		if err := options.Registerer.Register(metric); err != nil {
			return nil, fmt.Errorf("register the metrics of the webhook: %w", err)
		}
	}
	return exemption, nil
}

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,verbs=list

// Start logs an error for each webhook of the operator whose configuration does not exempt
// the operator, and for each match condition that exempts another user. It implements
// controller-runtime's manager.Runnable.
func (e *Exemption) Start(ctx context.Context) error {
	var configurations admissionregistrationv1.MutatingWebhookConfigurationList
	if err := e.options.Reader.List(ctx, &configurations); err != nil {
		e.options.Logger.Error(err, "Could not check that the webhook configurations exempt the operator and no other user")
		return nil
	}
	for _, configuration := range configurations.Items {
		for _, webhook := range configuration.Webhooks {
			if callsAdmission(webhook.ClientConfig) {
				e.check(webhook.MatchConditions, e.options.Logger.WithValues(
					"configuration", configuration.Name, "webhook", webhook.Name, "expression", e.expression()))
			}
		}
	}
	return nil
}

func (e *Exemption) check(conditions []admissionregistrationv1.MatchCondition, logger logr.Logger) {
	if !e.isIn(conditions) {
		logger.Error(nil, "The webhook configuration does not exempt the operator: its writes fail while the webhook is down; "+
			"set the expression of the match condition "+operatorCondition)
	}
	for _, condition := range conditions {
		if others := e.othersIn(condition); len(others) > 0 {
			e.otherUsers.Inc()
			logger.Error(nil, "The webhook configuration exempts another user than the operator: admission neither judges nor audits the writes of that user; "+
				"correct the match condition", "condition", condition.Name, "found", condition.Expression, "exemptUsers", others)
		}
	}
}

// othersIn returns the users other than the operator that the condition exempts.
func (e *Exemption) othersIn(condition admissionregistrationv1.MatchCondition) []string {
	exempting := unequalUser.FindAllString(condition.Expression, -1)
	if condition.Name == operatorCondition {
		exempting = append(exempting, listedUsers.FindAllString(condition.Expression, -1)...)
	}
	var others []string
	for _, user := range quoted.FindAllString(strings.Join(exempting, " "), -1) {
		if user = user[1 : len(user)-1]; user != e.options.User {
			others = append(others, user)
		}
	}
	return others
}

// NeedLeaderElection is false: every replica serves the webhook.
func (e *Exemption) NeedLeaderElection() bool { return false }

// callsAdmission reports whether the webhook is served by [LockAdmission] or [JobAdmission].
func callsAdmission(config admissionregistrationv1.WebhookClientConfig) bool {
	var address string
	switch {
	case config.URL != nil:
		address = *config.URL
	case config.Service != nil && config.Service.Path != nil:
		address = *config.Service.Path
	}
	return strings.HasSuffix(address, LockPath) || strings.HasSuffix(address, JobPath)
}

// isIn reports whether one of the conditions names the operator's user.
func (e *Exemption) isIn(conditions []admissionregistrationv1.MatchCondition) bool {
	return slices.ContainsFunc(conditions, func(condition admissionregistrationv1.MatchCondition) bool {
		return strings.Contains(condition.Expression, "'"+e.options.User+"'") || strings.Contains(condition.Expression, `"`+e.options.User+`"`)
	})
}

// expression is the match condition that exempts the operator.
func (e *Exemption) expression() string {
	return fmt.Sprintf("request.userInfo.username != '%s'", e.options.User)
}

// of returns the handler with the operator's own requests exempted.
func (e *Exemption) of(path string, handler admission.Handler) admission.Handler {
	if e == nil {
		return handler
	}
	return admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		if request.UserInfo.Username != e.options.User {
			return handler.Handle(ctx, request)
		}
		e.requests.Inc()
		if e.isLogDue() {
			e.options.Logger.Error(nil, "Admitted a request of the operator itself, which the webhook configuration should exempt; "+
				"set the expression of the match condition "+operatorCondition,
				"path", path, "resource", request.Resource.Resource, "expression", e.expression())
		}
		return admission.Allowed("")
	})
}

func (e *Exemption) isLogDue() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.options.Clock.Now()
	if !e.logged.IsZero() && now.Sub(e.logged) < exemptionLogPeriod {
		return false
	}
	e.logged = now
	return true
}
