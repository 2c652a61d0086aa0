package metric

import "github.com/prometheus/client_golang/prometheus"

// Section is a part of the catalogue.
type Section struct {
	Title   string
	Metrics []*Definition
}

// Catalogue returns all metrics, by topic.
func Catalogue() []Section {
	return []Section{
		{"Locks", []*Definition{&Locks, &LockEvents, &HeldSeconds, &ReaperLag, &LateRenewals, &OperatorRenewals, &OperatorRenewalLeastLeft}},
		{"Acquiring and waiting", []*Definition{&Acquires, &AcquireDuration, &Waiters, &LongestWait, &FreeLockWaitedFor}},
		{"Jobs", []*Definition{&JobsWaiting, &JobsOldestWait, &JobsRunning}},
		{"The façade", []*Definition{
			&FacadeCalls, &FacadeCallDuration, &FacadeRefusedCalls, &FacadeRunningCalls, &FacadeWaitingCalls, &FacadeBodyBytes,
			&FacadeConnections, &FacadeEndedRequests, &FacadeClosedConnections, &FacadeSaturated, &FacadePeers,
		}},
		{"The webhook", []*Definition{&WebhookRefused, &WebhookOwnRequests, &WebhookOtherUsers}},
		{"Limits", []*Definition{&LimitUsage}},
		{"The watch of locks", []*Definition{&WatchClosed}},
		{"The API server", []*Definition{
			&APIRequests, &APIRequestDuration, &UnansweredWrites, &UnansweredGrants, &ClockDifference, &ClockUncertainty, &ClockFresh,
		}},
		{"Audit", []*Definition{&AuditDropped, &AuditBuffered, &AuditFailing}},
		{"The process", []*Definition{&IsLeader, &CertificateExpiry, &CertificateNotBefore, &BuildInfo}},
	}
}

// fromMillisecond are bounds from a millisecond to what waits for hours: a free lock is acquired in some
// milliseconds, and Jobs may wait for a day.
var fromMillisecond = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600, 14400, 86400}

// Of locks.
var (
	Locks = Definition{
		Name: "lock_operator_locks", Type: Gauge, Labels: []string{"namespace", "state"}, By: Leader,
		Values: map[string]string{"state": "`held`, or `expired`: not deleted yet"},
		Help:   "Locks that exist now. A namespace without locks has no series.",
	}
	LockEvents = Definition{
		Name: "lock_operator_lock_events_total", Type: Counter, Labels: []string{"event", "reason", "via"}, By: Recorders,
		Values: map[string]string{"event": "see [audit.md](audit.md#events)", "reason": "the same; empty for most events", "via": "`facade`, `admission` (direct writes), `controller`"},
		Help:   "Facts about locks, as in the audit. Direct writes count when they are admitted. An end that is recorded twice, as unconfirmed or admitted, counts twice.",
	}
	HeldSeconds = Definition{
		Name: "lock_operator_lock_held_seconds", Type: Histogram, Labels: []string{"reason"}, By: Recorders,
		Values:  map[string]string{"reason": "why the lock ended"},
		Help:    "How long locks were held.",
		Buckets: prometheus.ExponentialBuckets(0.001, 4, 14), // From a millisecond to about 18 hours.
	}
	ReaperLag = Definition{
		Name: "lock_operator_reaper_lag_seconds", Type: Gauge, By: Leader,
		Help: "For how long the oldest expired lock could have been deleted and has not been; 0 if there is none. The allowance for clocks is deducted.",
	}
	LateRenewals = Definition{
		Name: "lock_operator_late_renewals_total", Type: Counter, Labels: []string{"via"}, By: Recorders,
		Help: "Renewals that came when less than a fifth was left of the time since the grant or the renewal before. All renewals are lock_operator_lock_events_total with the event Renewed.",
	}
	OperatorRenewals = Definition{
		Name: "lock_operator_renewals_by_operator_total", Type: Counter, Labels: []string{"outcome"}, By: Controllers,
		Values: map[string]string{"outcome": "`renewed`; `changed`: another user or replica was faster, and the lock is judged anew; `failed`: it is tried again until the lock expires"},
		Help:   "Attempts to renew locks with the renewalPolicy Operator.",
	}
	OperatorRenewalLeastLeft = Definition{
		Name: "lock_operator_renewals_by_operator_least_left_ratio", Type: Gauge, By: Leader,
		Help: "The least part of its ttl that a lock has left which the operator is to renew; 1 if there is none. A renewal is due when two thirds are left.",
	}
)

// Of acquisitions.
var (
	Acquires = Definition{
		Name: "lock_operator_acquires_total", Type: Counter, Labels: []string{"door", "outcome"}, By: Engines,
		Values: map[string]string{
			"door": "`forrst`, `rest`, `job`",
			"outcome": "`granted`; `held`: it did not wait; `timeout`: held for the whole wait; `cancelled`: the caller has gone; `invalid`; " +
				"`refused`: by a quota, a policy or a full namespace; `limited`: by its turn or a full line; `unavailable`",
		},
		Help: "Requests for locks that have ended.",
	}
	AcquireDuration = Definition{
		Name: "lock_operator_acquire_duration_seconds", Type: Histogram, Labels: []string{"via", "waited"}, By: Engines,
		Values:  map[string]string{"via": "`facade`, `controller`", "waited": "`true` if another holder had the lock, or other callers waited for it, when the request came"},
		Help:    "Time from a request for a lock to its grant, of the requests that were granted.",
		Buckets: fromMillisecond,
	}
	Waiters = Definition{
		Name: "lock_operator_waiters", Type: Gauge, Labels: []string{"via", "namespace"}, By: Engines,
		Values: map[string]string{"via": "`facade`, `controller`: of Jobs, the first of each lock"},
		Help:   "Callers that wait for locks now in this replica. Where replicas of the façade share their lines, a caller counts at the home of its line alone, so the sum over replicas counts each once. A namespace without any has no series.",
	}
	LongestWait = Definition{
		Name: "lock_operator_longest_wait_seconds", Type: Gauge, Labels: []string{"via", "namespace"}, By: Engines,
		Help: "For how long the caller that waits longest has waited in this replica. A call of the façade waits for --facade-max-block at most; if its client calls again within 5 s under the same owner token, as the SDK does, the wait goes on. Between two such calls the caller does not count.",
	}
	FreeLockWaitedFor = Definition{
		Name: "lock_operator_free_lock_waited_for_seconds", Type: Gauge, Labels: []string{"via"}, By: Engines,
		Help: "For how long a lock has been free, as far as this replica knows, while callers wait for it; the largest such time, 0 if there is none. Milliseconds are normal.",
	}
)

// Of Jobs.
var (
	JobsWaiting = Definition{
		Name: "lock_operator_jobs_waiting", Type: Gauge, Labels: []string{"namespace"}, By: Leader,
		Help: "Jobs that wait for a lock now. A namespace without any has no series.",
	}
	JobsOldestWait = Definition{
		Name: "lock_operator_jobs_oldest_wait_seconds", Type: Gauge, Labels: []string{"namespace"}, By: Leader,
		Help: "For how long the Job that waits longest has waited. A namespace without waiting Jobs has no series.",
	}
	JobsRunning = Definition{
		Name: "lock_operator_jobs_running", Type: Gauge, Labels: []string{"namespace"}, By: Leader,
		Help: "Jobs under locks that may have pods now. A namespace without any has no series.",
	}
)

// Of the façade.
var (
	FacadeCalls = Definition{
		Name: "lock_operator_facade_calls_total", Type: Counter, Labels: []string{"door", "function", "code"}, By: Facade,
		Values: map[string]string{
			"door":     "`forrst`, `rest`",
			"function": "the class of the function: `lock`, `vendor` (acquire, renew, list), `system`, `routed`, `unknown` where none was found; of `rest` the operation",
			"code":     "the code of the first error, or `OK`; `OTHER` stands for codes that are not standard; of `rest` the last part of the problem's type",
		},
		Help: "Answers.",
	}
	FacadeCallDuration = Definition{
		Name: "lock_operator_facade_call_duration_seconds", Type: Histogram, Labels: []string{"door", "function"}, By: Facade,
		Help:    "Time from the receipt of a call to its answer, waiting included.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120},
	}
	FacadeRefusedCalls = Definition{
		Name: "lock_operator_facade_refused_calls_total", Type: Counter, Labels: []string{"door", "limit"}, By: Facade,
		Values: map[string]string{"limit": "`in_flight`, `body_bytes`, `lists` or `streams`, each also with `_per_caller` and `_per_namespace`; " +
			"`rate_per_caller`, `rate_per_namespace`; `turns`; `auth_failures`; `stopping`"},
		Help: "Calls that were refused for a limit.",
	}
	FacadeRunningCalls = Definition{
		Name: "lock_operator_facade_running_calls", Type: Gauge, By: Facade,
		Help: "Calls that run now, of all doors together.",
	}
	FacadeWaitingCalls = Definition{
		Name: "lock_operator_facade_waiting_calls", Type: Gauge, By: Facade,
		Help: "Calls that wait for a lock now, or whose connections hold one, of all doors together.",
	}
	FacadeBodyBytes = Definition{
		Name: "lock_operator_facade_body_bytes", Type: Gauge, By: Facade,
		Help: "Bytes that are kept now of requests and of the answers of routed functions.",
	}
	FacadeConnections = Definition{
		Name: "lock_operator_facade_connections", Type: Gauge, By: Facade,
		Help: "Connections that are open now.",
	}
	FacadeEndedRequests = Definition{
		Name: "lock_operator_facade_ended_requests_total", Type: Counter, By: Facade,
		Help: "Requests without an authenticated caller that were ended because others needed their places.",
	}
	FacadeClosedConnections = Definition{
		Name: "lock_operator_facade_closed_connections_total", Type: Counter, Labels: []string{"reason"}, By: Facade,
		Values: map[string]string{"reason": "`evicted`, it made room for another; `refused`, it found no room"},
		Help:   "Connections that were closed before their time.",
	}
	FacadeSaturated = Definition{
		Name: "lock_operator_facade_saturated_seconds", Type: Gauge, Labels: []string{"limit"}, By: Facade,
		Values: map[string]string{"limit": "`in_flight`"},
		Help:   "For how long a limit of all callers together has been used up; 0 if it is not.",
	}
	FacadePeers = Definition{
		Name: "lock_operator_facade_peers", Type: Gauge, Labels: []string{"state"}, By: Facade,
		Values: map[string]string{"state": "`ready`; `connected`: ready, and this replica reaches it; `known`: ready, with this replica itself, and absent without --peers-bind-address"},
		Help:   "Other replicas of the façade that this one shares lines with. 0 without --peers-bind-address.",
	}
)

// Of the webhook.
var (
	WebhookRefused = Definition{
		Name: "lock_operator_webhook_refused_total", Type: Counter, Labels: []string{"reason"}, By: Webhook,
		Values: map[string]string{"reason": "`certificate`, `connections`, `size`, `memory`, `format` (the review is not JSON), `requests`"},
		Help: "Connections, reviews and requests for reviews that were refused unjudged. Reviews that their client gave up are not among them. " +
			"With --webhook-client-ca, `certificate` counts clients that are not the API server; if it grows while direct writes fail, an API server lacks its certificate.",
	}
	WebhookOwnRequests = Definition{
		Name: "lock_operator_webhook_own_requests_total", Type: Counter, By: Webhook,
		Help: "Requests of the operator itself that reached the webhook. More than 0 means that a match condition does not exempt the operator.",
	}
	WebhookOtherUsers = Definition{
		Name: "lock_operator_webhook_other_users_exempted", Type: Gauge, By: Webhook,
		Help: "Match conditions that exempted another user than those of the operator when the replica started, or for Jobs another than that of the controllers. More than 0 means that the writes of that user bypass admission.",
	}
)

// LimitUsage tells how much of each limit is used.
var LimitUsage = Definition{
	Name: "lock_operator_limit_usage_ratio", Type: Gauge, Labels: []string{"limit"}, By: Bounded,
	Values: map[string]string{"limit": "façade, of all callers together: `in_flight`, `connections`, `body_bytes`, `lists`, `streams`; " +
		"`line_per_lock`, `line_per_namespace`, `line_per_caller`: of the lock, the namespace and the caller with the most that wait; " +
		"webhook: `webhook_connections`, `webhook_memory`; `locks_per_namespace`, `jobs_per_namespace`: of the fullest namespace; every process: `audit_buffer`"},
	Help: "How much of a limit is used now, from 0 to 1; 0 also for one that is not set. Rates, and the shares of a caller, a namespace or an address that are not named here, have none: refusals show them. Lines may exceed theirs: a caller that another replica has let wait keeps its place when its line moves.",
}

// WatchClosed tells of the watch of locks.
var WatchClosed = Definition{
	Name: "lock_operator_watch_closed_seconds", Type: Gauge, Labels: []string{"engine"}, By: Everywhere,
	Values: map[string]string{"engine": "`lock-engine` of the façade, `job-lock-engine` of the controllers, `webhook-lock-watch`"},
	Help:   "For how long no watch has been open; 0 while one is, and during the first list for up to a minute. Waiting callers are still served within two seconds, at the cost of about two reads a second for each key that is waited for, 200 a second at most.",
}

// Of the API server.
var (
	APIRequests = Definition{
		Name: "lock_operator_api_requests_total", Type: Counter, Labels: []string{"verb", "resource", "code"}, By: Everywhere,
		Values: map[string]string{"verb": "`get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `other`", "resource": "such as `locks`; `other` for other kinds of --holder-kinds, and for paths without a resource", "code": "the status, or `none` without an answer"},
		Help:   "Requests to the API server.",
	}
	APIRequestDuration = Definition{
		Name: "lock_operator_api_request_duration_seconds", Type: Histogram, Labels: []string{"verb", "resource"}, By: Everywhere,
		Help:    "Time from a request to the API server to the header of its answer. Watches are not counted.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}
	UnansweredWrites = Definition{
		Name: "lock_operator_unanswered_writes_total", Type: Counter, Labels: []string{"via", "operation", "outcome"}, By: Engines,
		Values: map[string]string{
			"operation": "`acquire`, `hand_off`, `renew`, `release`",
			"outcome":   "what reading back showed: `happened`, `not_happened`, or `unknown`: the API server did not answer in time. `late`: an acquire that was one of the last two has happened after all, and its grant is being ended",
		},
		Help: "Writes to the API server whose answer was lost.",
	}
	UnansweredGrants = Definition{
		Name: "lock_operator_unanswered_grants", Type: Gauge, Labels: []string{"via"}, By: Engines,
		Help: "Grants of which it is not known whether they happened, and which the engine looks for in the background.",
	}
	ClockDifference = Definition{
		Name: "lock_operator_clock_difference_seconds", Type: Gauge, By: Everywhere,
		Help: "How much the time of the API server is ahead of the local clock, as far as answers show. The operator corrects it.",
	}
	ClockUncertainty = Definition{
		Name: "lock_operator_clock_uncertainty_seconds", Type: Gauge, By: Everywhere,
		Help: "How far the corrected clock can be ahead of the API server's. No lock is taken from its holder before this has passed.",
	}
	ClockFresh = Definition{
		Name: "lock_operator_clock_fresh", Type: Gauge, By: Everywhere,
		Help: "1 if an answer of the API server was compared with the clock in the last 20 seconds, else 0.",
	}
)

// Of the audit.
var (
	AuditDropped = Definition{
		Name: "lock_operator_audit_records_dropped_total", Type: Counter, Labels: []string{"cause"}, By: Everywhere,
		Values: map[string]string{"cause": "see [audit.md](audit.md#what-is-omitted)"},
		Help:   "Audit records that were not written. Every cause except too_many_refusals is a gap in the audit.",
	}
	AuditBuffered = Definition{
		Name: "lock_operator_audit_buffered_records", Type: Gauge, By: Everywhere,
		Help: "Audit records that wait to be written.",
	}
	AuditFailing = Definition{
		Name: "lock_operator_audit_failing", Type: Gauge, By: Everywhere,
		Help: "1 while audit records cannot be written, else 0. They are buffered meanwhile.",
	}
)

// Of the process.
var (
	IsLeader = Definition{
		Name: "lock_operator_leader", Type: Gauge, By: Controllers,
		Help: "1 on the replica whose controllers act, else 0.",
	}
	CertificateExpiry = Definition{
		Name: "lock_operator_certificate_expiry_timestamp_seconds", Type: Gauge, Labels: []string{"certificate"}, By: Everywhere,
		Values: map[string]string{"certificate": "`facade`, `webhook`, `controllers` (their port of metrics), `authority`"},
		Help:   "When the certificate ends that this process serves, or the authority that it signs certificates with, in seconds since 1970.",
	}
	CertificateNotBefore = Definition{
		Name: "lock_operator_certificate_not_before_timestamp_seconds", Type: Gauge, Labels: []string{"certificate"}, By: Everywhere,
		Help: "When the validity of the same certificate begins, in seconds since 1970. For one that the operator issues this is an hour before the issue.",
	}
	BuildInfo = Definition{
		Name: "lock_operator_build_info", Type: Gauge, Labels: []string{"version", "revision", "go_version"}, By: Everywhere,
		Help: "1, with the version, the revision of the source, and the version of Go.",
	}
)
