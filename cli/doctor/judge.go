package doctor

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// oldestMinor is the oldest version 1.x of Kubernetes that lock-operator supports (docs/design.md,
// section 19).
const oldestMinor = 34

// Judge says what the facts mean, in the order in which they build on each other.
func Judge(facts *Facts) []Finding {
	if facts.Kubernetes.Err != nil {
		return []Finding{failed("api server", "it does not answer: "+facts.Kubernetes.Err.Error(),
			"see that kubectl get namespaces works with the same --context, and ask those who run the cluster")}
	}
	foundations := []Finding{judgeKubernetes(facts), judgeClock(facts.Local, facts.Server), judgeDefinition(facts)}
	if !facts.isInstalled() {
		return foundations // All others follow from that.
	}
	if apierrors.IsNotFound(facts.Labels.Err) {
		return slices.Concat(
			foundations,
			[]Finding{failed("namespace", fmt.Sprintf("namespace %s does not exist, so rights and admission were not tried there", facts.Namespace),
				"name one that exists with -n: kubectl get namespaces")},
			judgeWebhooks(facts),
			judgeOperator(facts),
		)
	}
	return slices.Concat(
		foundations,
		judgeRights(facts),
		judgeWebhooks(facts),
		judgeAdmission(facts),
		judgeOperator(facts),
		judgeGuards(facts),
	)
}

func judgeKubernetes(facts *Facts) Finding {
	const check = "api server"
	info := facts.Kubernetes.Value
	minor, err := strconv.Atoi(strings.TrimRight(info.Minor, "+"))
	if err == nil && info.Major == "1" && minor < oldestMinor {
		return failed(check, fmt.Sprintf("Kubernetes is %s, and lock-operator needs 1.%d", info.GitVersion, oldestMinor),
			fmt.Sprintf("upgrade the cluster to 1.%d or later", oldestMinor))
	}
	return ok(check, "Kubernetes %s answers; this is kubectl-lock %s", info.GitVersion, facts.Program)
}

// toleratedDifference is how far clocks may differ before what people read and type is wrong. The
// difference is known to about a second.
const toleratedDifference = 3 * time.Second

func judgeClock(local, server time.Time) Finding {
	const check = "clock"
	difference := local.Sub(server)
	if difference.Abs() <= toleratedDifference {
		return ok(check, "this machine and the service agree on the time")
	}
	direction := "ahead of"
	if difference < 0 {
		direction = "behind"
	}
	return warning(check, fmt.Sprintf("the clock of this machine is %s %s that of the service; locks end by the latter",
		difference.Abs().Round(time.Second), direction),
		"set the clock of this machine, or have it synchronised; until then give a length of time with --until, and no time of day")
}

// neededFields are fields that this version of the service stores.
var neededFields = []string{"guards", "holderUID"}

// isInstalled reports whether the cluster knows Locks.
func (f *Facts) isInstalled() bool {
	return !apierrors.IsNotFound(f.Definition.Err) && (f.Definition.Err == nil || f.Served == nil)
}

func judgeDefinition(facts *Facts) Finding {
	const check, install = "type Lock", "apply config/crd of lock-operator: kubectl apply -k config/crd"
	definition := facts.Definition.Value
	switch err := facts.Definition.Err; {
	case apierrors.IsNotFound(err):
		return failed(check, "lock-operator is not installed: the cluster does not know Locks", "install it")
	case err != nil && facts.Served != nil:
		return failed(check, "lock-operator is not installed, or not wholly: the cluster does not serve Locks: "+facts.Served.Error(), "install it")
	case err != nil:
		return ok(check, "the cluster serves %s; you may not read its definition", v1alpha1.GroupVersion)
	case !definition.IsEstablished:
		return failed(check, "its definition is there and not established", "see why: kubectl describe crd locks.forrst.dev")
	case !slices.Contains(definition.Versions, v1alpha1.GroupVersion.Version):
		return failed(check, fmt.Sprintf("the cluster serves the versions %s, and not %s", strings.Join(definition.Versions, ", "), v1alpha1.GroupVersion.Version), install)
	}
	for _, field := range neededFields {
		if !slices.Contains(definition.Fields, field) {
			return failed(check, fmt.Sprintf("its definition is of an earlier version: it lacks spec.%s", field), install)
		}
	}
	return ok(check, "the cluster serves %s", v1alpha1.GroupVersion)
}

// roles are the cluster roles that bring verbs, by what they are for.
var roles = []struct {
	role, purpose string
	verbs         []string
}{
	{"lock-operator-view", "see locks", []string{"get", "list", "watch"}},
	{"lock-operator-edit", "take and release locks", []string{"create", "update", "delete"}},
}

func judgeRights(facts *Facts) []Finding {
	const check = "your rights"
	if err := facts.Rights.Err; err != nil {
		return []Finding{skipped(check, "they could not be asked for: %v", err)}
	}
	user := "you"
	if facts.Self.Err == nil {
		user = facts.Self.Value.Username
	}
	allowed := map[string]bool{}
	for _, right := range facts.Rights.Value {
		allowed[right.Verb] = right.IsAllowed
	}
	var findings []Finding
	for _, role := range roles {
		missing := slices.DeleteFunc(slices.Clone(role.verbs), func(verb string) bool { return allowed[verb] })
		if len(missing) > 0 {
			findings = append(findings, warning(check,
				fmt.Sprintf("%s may not %s locks in namespace %s", user, strings.Join(missing, ", "), facts.Namespace),
				fmt.Sprintf("to %s, have the cluster role %s bound in that namespace", role.purpose, role.role)))
		}
	}
	if len(findings) > 0 {
		return findings
	}
	force := "and not end those of other holders"
	if allowed["force-release"] {
		force = "and end those of other holders"
	}
	return []Finding{ok(check, "%s may see, take and release locks in namespace %s, %s", user, facts.Namespace, force)}
}

// judgeGuards says whether the namespace has opted in to guards.
func judgeGuards(facts *Facts) []Finding {
	const check = "guards"
	if facts.Validating.Err != nil {
		return []Finding{skipped(check, "you may not read the webhook configurations")}
	}
	configured := guardWebhooks(facts.Validating.Value)
	switch {
	case len(configured) == 0:
		return []Finding{ok(check, "they are not installed, so kubectl lock freeze has no effect here")}
	case len(configured) > 1:
		return []Finding{warning(check, fmt.Sprintf("%d webhook configurations ask about guarded objects", len(configured)), "delete those of former installations")}
	}
	var findings []Finding
	if locks := lockWebhooks(facts.Mutating.Value); len(locks) != 1 || !bytes.Equal(locks[0].ClientConfig.CABundle, configured[0].ClientConfig.CABundle) {
		findings = judgeCertificate(check, configured[0].ClientConfig, facts.Server)
	}
	switch {
	case facts.Labels.Err != nil:
		return append(findings, ok(check, "they are installed; you may not read whether namespace %s has opted in", facts.Namespace))
	case facts.Labels.Value[v1alpha1.GuardsLabel] != v1alpha1.GuardsEnabled:
		return append(findings, ok(check, "they are installed, and namespace %s has not opted in: kubectl label namespace %[1]s %s=%s",
			facts.Namespace, v1alpha1.GuardsLabel, v1alpha1.GuardsEnabled))
	case isUncalled(facts.Admitted.Err, lockWebhook), isUncalled(facts.Guarded, guardWebhook):
		return append(findings, failed(check, fmt.Sprintf("they are in force in namespace %s, where every write of a listed resource fails while the webhook does not answer", facts.Namespace),
			"bring the webhook back; docs/runbooks.md says what to do until then"))
	default:
		return append(findings, ok(check, "they are installed, and in force in namespace %s", facts.Namespace))
	}
}
