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

	"forrst.dev/lock-operator/lock/metric"
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
	// LockUsers are the user names of the operator's processes, all of which write Locks.
	LockUsers []string
	// JobUser is the one of the controllers, which alone write Jobs.
	JobUser string
	// Reader reads webhook configurations from the API server.
	Reader client.Reader
	// Clock limits how often the same error is logged.
	Clock clock.PassiveClock
	// Registerer takes the metrics.
	Registerer prometheus.Registerer
	Logger     logr.Logger
}

// Exemption admits the requests of the operator itself unchanged, because the operator
// applies the rules of admission before it writes: those about Locks of each of its users, those about
// Jobs of one. The webhook configuration should exempt
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
		options:    options,
		requests:   metric.WebhookOwnRequests.Counter(),
		otherUsers: metric.WebhookOtherUsers.Gauge(),
	}
	if err := metric.Register(options.Registerer, exemption.requests, exemption.otherUsers); err != nil {
		return nil, fmt.Errorf("the webhook: %w", err)
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
			if users := e.usersOf(addressOf(webhook.ClientConfig)); len(users) > 0 {
				e.check(webhook.MatchConditions, users, e.options.Logger.WithValues(
					"configuration", configuration.Name, "webhook", webhook.Name, "expression", exempting(users)))
			}
		}
	}
	return nil
}

func (e *Exemption) check(conditions []admissionregistrationv1.MatchCondition, users []string, logger logr.Logger) {
	if judged := slices.DeleteFunc(slices.Clone(users), func(user string) bool { return isIn(conditions, user) }); len(judged) > 0 {
		logger.Error(nil, "The webhook configuration does not exempt the operator: its writes fail while the webhook is down; "+
			"set the expression of the match condition "+operatorCondition, "users", judged)
	}
	for _, condition := range conditions {
		others := slices.DeleteFunc(exemptBy(condition), func(user string) bool { return slices.Contains(users, user) })
		if len(others) > 0 {
			e.otherUsers.Inc()
			logger.Error(nil, "The webhook configuration exempts another user than the operator: admission neither judges nor audits the writes of that user; "+
				"correct the match condition", "condition", condition.Name, "found", condition.Expression, "exemptUsers", others)
		}
	}
}

// exemptBy returns the users that the condition exempts.
func exemptBy(condition admissionregistrationv1.MatchCondition) []string {
	comparisons := unequalUser.FindAllString(condition.Expression, -1)
	if condition.Name == operatorCondition {
		comparisons = append(comparisons, listedUsers.FindAllString(condition.Expression, -1)...)
	}
	users := quoted.FindAllString(strings.Join(comparisons, " "), -1)
	for i, user := range users {
		users[i] = user[1 : len(user)-1]
	}
	return users
}

// NeedLeaderElection is false: every replica serves the webhook.
func (e *Exemption) NeedLeaderElection() bool { return false }

// addressOf returns the URL or the path that the API server calls.
func addressOf(config admissionregistrationv1.WebhookClientConfig) string {
	switch {
	case config.URL != nil:
		return *config.URL
	case config.Service != nil && config.Service.Path != nil:
		return *config.Service.Path
	}
	return ""
}

// usersOf returns the users that are exempt at the address: none if neither [LockAdmission] nor
// [JobAdmission] serves it.
func (e *Exemption) usersOf(address string) []string {
	switch {
	case strings.HasSuffix(address, LockPath):
		return e.options.LockUsers
	case strings.HasSuffix(address, JobPath):
		return []string{e.options.JobUser}
	}
	return nil
}

// isIn reports whether one of the conditions names the user.
func isIn(conditions []admissionregistrationv1.MatchCondition, user string) bool {
	return slices.ContainsFunc(conditions, func(condition admissionregistrationv1.MatchCondition) bool {
		return strings.Contains(condition.Expression, "'"+user+"'") || strings.Contains(condition.Expression, `"`+user+`"`)
	})
}

// exempting is the match condition that exempts the users.
func exempting(users []string) string {
	if len(users) == 1 {
		return fmt.Sprintf("request.userInfo.username != '%s'", users[0])
	}
	return fmt.Sprintf("!(request.userInfo.username in ['%s'])", strings.Join(users, "', '"))
}

// of returns the handler with the operator's own requests exempted.
func (e *Exemption) of(path string, handler admission.Handler) admission.Handler {
	if e == nil {
		return handler
	}
	users := e.usersOf(path)
	return admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		if !slices.Contains(users, request.UserInfo.Username) {
			return handler.Handle(ctx, request)
		}
		e.requests.Inc()
		if e.isLogDue() {
			e.options.Logger.Error(nil, "Admitted a request of the operator itself, which the webhook configuration should exempt; "+
				"set the expression of the match condition "+operatorCondition,
				"path", path, "resource", request.Resource.Resource, "expression", exempting(users))
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
