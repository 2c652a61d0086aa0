package main

// rows are the whole dashboard. A query that has no series in quiet times ends with "or on () vector(0)".
var rows = []row{overview, doors, waiting, holders, jobs, health, processes}

var overview = row{"Overview", []panel{
	{title: "Locks that are held", kind: stat, unit: count, queries: []query{{`sum(lock_operator_locks{namespace=~"$namespace",state="held"}) or on () vector(0)`, ""}}},
	{title: "Callers that wait", kind: stat, unit: count, queries: []query{{`sum(lock_operator_waiters{namespace=~"$namespace"}) or on () vector(0)`, ""}}},
	{title: "Jobs that wait", kind: stat, unit: count, queries: []query{{`sum(lock_operator_jobs_waiting{namespace=~"$namespace"}) or on () vector(0)`, ""}}},
	{title: "Acquires granted", text: "Per second.", kind: stat, unit: perSecond, queries: []query{{`sum(rate(lock_operator_acquires_total{outcome="granted"}[$__rate_interval]))`, ""}}},
	{title: "Replicas that lead", text: "One, or the controllers are away.", kind: stat, unit: count, alarm: 2, queries: []query{{`sum(lock_operator_leader) or on () vector(0)`, ""}}},
	{title: "Alerts that fire", kind: stat, unit: count, warn: 1, alarm: 2, queries: []query{{`count(ALERTS{alertname=~"LockOperator.*",alertstate="firing"}) or on () vector(0)`, ""}}},
	{title: "Versions", text: "More than one while an upgrade is under way.", kind: table, width: 8, queries: []query{{`count by (version, revision, go_version) (lock_operator_build_info)`, ""}}},
	{title: "Locks by namespace", text: "The ten namespaces with the most.", kind: graph, unit: count, stacked: true, queries: []query{
		{`topk(10, sum by (namespace) (lock_operator_locks{namespace=~"$namespace"}))`, "{{namespace}}"}}},
	{title: "Grants and ends", text: "What happens to locks, by the facts that the audit has.", kind: graph, unit: perSecond, queries: []query{
		{`sum by (event) (rate(lock_operator_lock_events_total{event=~"Granted|TakenOver|HandedOn|Released|Expired|ForceReleased"}[$__rate_interval]))`, "{{event}}"}}},
}}

var doors = row{"Doors", []panel{
	{title: "Calls", text: "Answers of the façade by door.", kind: graph, unit: perSecond, queries: []query{
		{`sum by (door, function) (rate(lock_operator_facade_calls_total[$__rate_interval]))`, "{{door}} {{function}}"}}},
	{title: "Answers other than OK", text: "LOCK_ALREADY_HELD and lock-held are ordinary.", kind: graph, unit: perSecond, queries: []query{
		{`sum by (door, code) (rate(lock_operator_facade_calls_total{code!="OK"}[$__rate_interval])) or on () vector(0)`, "{{door}} {{code}}"}}},
	{title: "Time to an answer, 99 of 100", text: "Waiting for locks included.", kind: graph, unit: seconds, queries: []query{
		{`histogram_quantile(0.99, sum by (le, door, function) (rate(lock_operator_facade_call_duration_seconds_bucket[$__rate_interval]))) >= 0 or on () vector(0)`, "{{door}} {{function}}"}}},
	{title: "Acquires by outcome", kind: graph, unit: perSecond, queries: []query{
		{`sum by (door, outcome) (rate(lock_operator_acquires_total[$__rate_interval]))`, "{{door}} {{outcome}}"}}},
	{title: "Calls refused for a limit", kind: graph, unit: perSecond, queries: []query{
		{`sum by (limit) (rate(lock_operator_facade_refused_calls_total[$__rate_interval])) or on () vector(0)`, "{{limit}}"}}},
	{title: "Calls and connections now", kind: graph, unit: count, queries: []query{
		{`sum(lock_operator_facade_running_calls)`, "running"}, {`sum(lock_operator_facade_waiting_calls)`, "waiting"}, {`sum(lock_operator_facade_connections)`, "connections"}}},
	{title: "Connections closed, requests ended", text: "Before their time, because others needed their places.", kind: graph, unit: perSecond, queries: []query{
		{`sum by (reason) (rate(lock_operator_facade_closed_connections_total[$__rate_interval]))`, "closed: {{reason}}"},
		{`sum(rate(lock_operator_facade_ended_requests_total[$__rate_interval]))`, "ended requests"}}},
	{title: "Bytes of requests and answers", kind: graph, unit: size, queries: []query{{`sum by (pod) (lock_operator_facade_body_bytes)`, "{{pod}}"}}},
	{title: "Limits used up for", text: "0 if they are not.", kind: graph, unit: seconds, queries: []query{{`max by (limit) (lock_operator_facade_saturated_seconds)`, "{{limit}}"}}},
}}

// quantiles are those of the time from a request to its grant.
func quantiles(of string) []query {
	var queries []query
	for _, quantile := range []string{"0.5", "0.95", "0.99"} {
		queries = append(queries, query{
			"histogram_quantile(" + quantile + ", sum by (le, via) (rate(lock_operator_acquire_duration_seconds_bucket{waited=\"" + of + "\"}[$__rate_interval]))) >= 0 or on () vector(0)",
			"{{via}} " + quantile,
		})
	}
	return queries
}

var waiting = row{"Waiting and hand-offs", []panel{
	{title: "Callers that wait", kind: graph, unit: count, stacked: true, queries: []query{
		{`sum by (namespace, via) (lock_operator_waiters{namespace=~"$namespace"}) or on () vector(0)`, "{{namespace}} {{via}}"}}},
	{title: "Longest wait", text: "A call of the façade waits for --facade-max-block at most.", kind: graph, unit: seconds, queries: []query{
		{`max by (namespace, via) (lock_operator_longest_wait_seconds{namespace=~"$namespace"}) or on () vector(0)`, "{{namespace}} {{via}}"}}},
	{title: "A free lock is waited for", text: "For how long. Milliseconds are normal.", kind: graph, unit: seconds, queries: []query{
		{`max by (via) (lock_operator_free_lock_waited_for_seconds)`, "{{via}}"}}},
	{title: "Time to acquire a free lock", kind: graph, unit: seconds, queries: quantiles("false")},
	{title: "Time to acquire a held lock", text: "Waiting included.", kind: graph, unit: seconds, queries: quantiles("true")},
	{title: "Hand-offs and waits in vain", kind: graph, unit: perSecond, queries: []query{
		{`sum by (via) (rate(lock_operator_lock_events_total{event="HandedOn"}[$__rate_interval]))`, "handed off ({{via}})"},
		{`sum by (door) (rate(lock_operator_acquires_total{outcome="timeout"}[$__rate_interval]))`, "in vain ({{door}})"}}},
}}

var holders = row{"Holders", []panel{
	{title: "Locks, held and expired", text: "An expired lock is taken over by the next caller, or deleted by the reaper.", kind: graph, unit: count, queries: []query{
		{`sum by (state) (lock_operator_locks{namespace=~"$namespace"})`, "{{state}}"}}},
	{title: "Ends by reason", kind: graph, unit: perSecond, queries: []query{
		{`sum by (reason) (rate(lock_operator_lock_events_total{event=~"Released|Expired|ForceReleased"}[$__rate_interval]))`, "{{reason}}"}}},
	{title: "Expirations and forced ends", text: "Signs of holders that crash, hang or never release.", kind: graph, unit: perSecond, queries: []query{
		{`sum(rate(lock_operator_lock_events_total{event="Expired"}[$__rate_interval])) or on () vector(0)`, "expired"},
		{`sum(rate(lock_operator_lock_events_total{event="TakenOver"}[$__rate_interval])) or on () vector(0)`, "taken over"},
		{`sum(rate(lock_operator_lock_events_total{event="ForceReleased"}[$__rate_interval])) or on () vector(0)`, "forced"},
		{`sum(rate(lock_operator_lock_events_total{event="Released",reason="HolderGone"}[$__rate_interval])) or on () vector(0)`, "holder has ended"}}},
	{title: "Time held, 95 of 100", kind: graph, unit: seconds, queries: []query{
		{`histogram_quantile(0.95, sum by (le, reason) (rate(lock_operator_lock_held_seconds_bucket[$__rate_interval]))) >= 0 or on () vector(0)`, "{{reason}}"}}},
	{title: "Renewals", kind: graph, unit: perSecond, queries: []query{
		{`sum by (via) (rate(lock_operator_lock_events_total{event="Renewed"}[$__rate_interval]))`, "{{via}}"},
		{`sum(rate(lock_operator_late_renewals_total[$__rate_interval])) or on () vector(0)`, "late"}}},
	{title: "Renewals by the operator", text: "Of locks that are held as long as their manifests stand.", kind: graph, unit: perSecond, queries: []query{
		{`sum by (outcome) (rate(lock_operator_renewals_by_operator_total[$__rate_interval])) or on () vector(0)`, "{{outcome}}"}}},
	{title: "Least time left to renew", text: "Of all locks that the operator renews: the least part of its ttl that one has left. Below two thirds, a renewal is due.", kind: graph, unit: share, queries: []query{
		{`min(lock_operator_renewals_by_operator_least_left_ratio) or on () vector(1)`, "least left"}}},
	{title: "Refusals", text: "By admission, by guards, and of the façade for a right.", kind: graph, unit: perSecond, queries: []query{
		{`sum by (event, reason) (rate(lock_operator_lock_events_total{event=~"Refused|WriteRefused"}[$__rate_interval])) or on () vector(0)`, "{{event}} {{reason}}"}}},
}}

var jobs = row{"Jobs under locks", []panel{
	{title: "Jobs that wait", kind: graph, unit: count, stacked: true, queries: []query{
		{`sum by (namespace) (lock_operator_jobs_waiting{namespace=~"$namespace"}) or on () vector(0)`, "{{namespace}}"}}},
	{title: "Jobs that run", text: "Those that may have pods.", kind: graph, unit: count, stacked: true, queries: []query{
		{`sum by (namespace) (lock_operator_jobs_running{namespace=~"$namespace"}) or on () vector(0)`, "{{namespace}}"}}},
	{title: "Longest wait of a Job", kind: graph, unit: seconds, queries: []query{
		{`max by (namespace) (lock_operator_jobs_oldest_wait_seconds{namespace=~"$namespace"}) or on () vector(0)`, "{{namespace}}"}}},
	{title: "Locks of Jobs", kind: graph, unit: perSecond, queries: []query{
		{`sum by (outcome) (rate(lock_operator_acquires_total{door="job"}[$__rate_interval]))`, "{{outcome}}"}}},
}}

var health = row{"Health of the operator", []panel{
	{title: "Watch closed for", kind: graph, unit: seconds, queries: []query{{`max by (pod, engine) (lock_operator_watch_closed_seconds)`, "{{pod}} {{engine}}"}}},
	{title: "Replicas that share lines", text: "Others that a replica of the façade knows, and those that it reaches. Both are 0 with one replica.", kind: graph, unit: count, queries: []query{
		{`max(lock_operator_facade_peers{state="ready"})`, "known"}, {`min(lock_operator_facade_peers{state="connected"})`, "reached by each"}}},
	{title: "Clock of the API server, less the local one", kind: graph, unit: seconds, queries: []query{
		{`lock_operator_clock_difference_seconds`, "{{pod}}"}, {`lock_operator_clock_uncertainty_seconds`, "{{pod}} uncertainty"}}},
	{title: "Clocks compared lately", text: "By replicas; those without requests for 20 s compare theirs before they need the time.", kind: graph, unit: count, queries: []query{
		{`sum(lock_operator_clock_fresh)`, "compared"}, {`count(lock_operator_clock_fresh)`, "all"}}},
	{title: "The reaper is behind by", kind: graph, unit: seconds, queries: []query{{`max(lock_operator_reaper_lag_seconds)`, "lag"}}},
	{title: "Requests to the API server", kind: graph, unit: perSecond, queries: []query{
		{`sum by (verb, resource) (rate(lock_operator_api_requests_total[$__rate_interval]))`, "{{verb}} {{resource}}"}}},
	{title: "Failed requests to the API server", text: "429, 5xx, or no answer.", kind: graph, unit: perSecond, queries: []query{
		{`sum by (verb, resource, code) (rate(lock_operator_api_requests_total{code=~"5..|429|none"}[$__rate_interval])) or on () vector(0)`, "{{verb}} {{resource}} {{code}}"}}},
	{title: "Time of requests, 99 of 100", kind: graph, unit: seconds, queries: []query{
		{`histogram_quantile(0.99, sum by (le, verb, resource) (rate(lock_operator_api_request_duration_seconds_bucket[$__rate_interval]))) >= 0 or on () vector(0)`, "{{verb}} {{resource}}"}}},
	{title: "Unanswered writes", text: "How many, and how they ended.", kind: graph, unit: perSecond, queries: []query{
		{`sum by (operation, outcome) (rate(lock_operator_unanswered_writes_total[$__rate_interval])) or on () vector(0)`, "{{operation}} {{outcome}}"},
		{`sum(lock_operator_unanswered_grants)`, "grants that are looked for"}}},
	{title: "Use of limits", text: "1 is all of it.", kind: graph, unit: share, queries: []query{{`max by (limit) (lock_operator_limit_usage_ratio)`, "{{limit}}"}}},
	{title: "Reviews refused unjudged", kind: graph, unit: perSecond, queries: []query{
		{`sum by (reason) (rate(lock_operator_webhook_refused_total[$__rate_interval])) or on () vector(0)`, "{{reason}}"}}},
	{title: "Exemptions of the webhook", text: "Both are 0, or a match condition is wrong.", kind: graph, unit: count, queries: []query{
		{`sum(increase(lock_operator_webhook_own_requests_total[$__rate_interval]))`, "own requests"},
		{`max(lock_operator_webhook_other_users_exempted)`, "other users exempted"}}},
	{title: "Certificates expire in", kind: graph, unit: seconds, queries: []query{
		{`min by (certificate) (lock_operator_certificate_expiry_timestamp_seconds) - time()`, "{{certificate}}"}}},
	{title: "Lifetime of certificates that is left", text: "They are renewed at a third.", kind: graph, unit: share, queries: []query{
		{`min by (certificate) ((lock_operator_certificate_expiry_timestamp_seconds - time()) / (lock_operator_certificate_expiry_timestamp_seconds - lock_operator_certificate_not_before_timestamp_seconds))`, "{{certificate}}"}}},
	{title: "Audit", text: "Records that wait to be written, and those that are lost each second.", kind: graph, unit: count, queries: []query{
		{`sum by (pod) (lock_operator_audit_buffered_records)`, "{{pod}} wait"},
		{`sum by (cause) (rate(lock_operator_audit_records_dropped_total[$__rate_interval]))`, "lost: {{cause}}"},
		{`max(lock_operator_audit_failing)`, "failing"}}},
}}

var processes = row{"Processes", []panel{
	{title: "Memory", kind: graph, unit: size, queries: []query{
		{`process_resident_memory_bytes and on (instance, pod) lock_operator_build_info`, "{{pod}}"}}},
	{title: "Processors", kind: graph, unit: count, queries: []query{
		{`rate(process_cpu_seconds_total[$__rate_interval]) and on (instance, pod) lock_operator_build_info`, "{{pod}}"}}},
	{title: "Goroutines", kind: graph, unit: count, queries: []query{{`go_goroutines and on (instance, pod) lock_operator_build_info`, "{{pod}}"}}},
}}
