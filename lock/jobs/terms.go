package jobs

import (
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"forrst.dev/lock-operator/api/v1alpha1"
)

// Policy says what happens to a Job when another holder has its lock.
type Policy string

const (
	// PolicyWait makes the Job wait for its turn.
	PolicyWait Policy = "wait"
	// PolicySkip completes the Job without running it.
	PolicySkip Policy = "skip"
	// PolicyFail fails the Job without running it.
	PolicyFail Policy = "fail"
)

const (
	// DefaultTTL is the ttl of a Job's lock if the Job sets none.
	DefaultTTL = 5 * time.Minute
	// DefaultMinTTL is the shortest ttl of a Job's lock unless configured otherwise: a change of
	// the operator's leader after a crash takes 17 s, and a running Job must not lose its lock.
	DefaultMinTTL = 30 * time.Second
	// maxWaitTimeout bounds the wait-timeout, so that sums of times cannot overflow.
	maxWaitTimeout = 366 * 24 * time.Hour
)

// Limits bounds the ttl of a Job's lock.
type Limits struct {
	// MinTTL and MaxTTL are the shortest and the longest accepted ttl. Zero means no bound.
	MinTTL, MaxTTL time.Duration
}

// Terms are the settings in a Job's annotations.
type Terms struct {
	// Scope, Function and Key identify the Job's lock; see [v1alpha1.LockSpec].
	Scope    v1alpha1.Scope
	Function string
	Key      string
	// TTL is the ttl of the lock.
	TTL time.Duration
	// Policy says what happens when another holder has the lock.
	Policy Policy
	// WaitTimeout is how long the Job waits at most; zero means without limit.
	WaitTimeout time.Duration
	// Priority orders the Jobs that wait, the highest first.
	Priority int32
}

// FullKey returns the full key of the Job's lock.
func (t Terms) FullKey() v1alpha1.FullKey { return v1alpha1.NewFullKey(t.Scope, t.Function, t.Key) }

// ParseTerms reads the annotations of a Job and reports each malformed one, with its path. An earlier release may have
// admitted the Job.
func ParseTerms(annotations map[string]string, limits Limits) (Terms, field.ErrorList) {
	return parseTerms(annotations, limits, v1alpha1.ValidateStoredKey)
}

// parseTerms is [ParseTerms] with the rule for key and function.
func parseTerms(annotations map[string]string, limits Limits, checkName func(string) error) (Terms, field.ErrorList) {
	parser := termsParser{annotations: annotations, checkName: checkName}
	unsetTTL := DefaultTTL
	if limits.MaxTTL != 0 {
		unsetTTL = min(unsetTTL, limits.MaxTTL)
	}
	terms := Terms{
		Scope:       v1alpha1.ScopeGlobal,
		Key:         annotations[v1alpha1.LockKeyAnnotation],
		Function:    annotations[v1alpha1.LockFunctionAnnotation],
		TTL:         parser.duration(v1alpha1.LockTTLAnnotation, unsetTTL),
		Policy:      PolicyWait,
		WaitTimeout: parser.duration(v1alpha1.LockWaitTimeoutAnnotation, 0),
		Priority:    parser.priority(),
	}
	if policy, ok := annotations[v1alpha1.LockPolicyAnnotation]; ok {
		terms.Policy = Policy(policy)
	}
	if scope, ok := annotations[v1alpha1.LockScopeAnnotation]; ok {
		terms.Scope = v1alpha1.Scope(scope)
	}
	parser.checkIdentity(&terms)
	parser.checkTTL(terms.TTL, limits)
	switch terms.Policy {
	case PolicyWait:
	case PolicySkip, PolicyFail:
		if terms.WaitTimeout != 0 {
			parser.refuse(v1alpha1.LockWaitTimeoutAnnotation, fmt.Sprintf("is for the policy %s only; a Job with the policy %s does not wait", PolicyWait, terms.Policy))
		}
	default:
		parser.problems = append(parser.problems, field.NotSupported(annotationPath(v1alpha1.LockPolicyAnnotation), terms.Policy,
			[]Policy{PolicyWait, PolicySkip, PolicyFail}))
	}
	if terms.WaitTimeout > maxWaitTimeout {
		parser.refuse(v1alpha1.LockWaitTimeoutAnnotation, "must be at most 8784h; leave it out to wait without end")
	}
	return terms, parser.problems
}

func annotationPath(name string) *field.Path {
	return field.NewPath("metadata", "annotations").Key(name)
}

// termsParser collects the mistakes in annotations.
type termsParser struct {
	annotations map[string]string
	// checkName reports what is wrong with a key or a function name.
	checkName func(name string) error
	problems  field.ErrorList
}

func (p *termsParser) refuse(name, reason string) {
	p.problems = append(p.problems, field.Invalid(annotationPath(name), p.annotations[name], reason))
}

func (p *termsParser) duration(name string, unset time.Duration) time.Duration {
	text, ok := p.annotations[name]
	if !ok {
		return unset
	}
	parsed, err := time.ParseDuration(text)
	if err != nil || parsed <= 0 {
		p.refuse(name, "must be a positive duration with units, such as 90s, 10m or 1h30m")
		return unset
	}
	return parsed
}

func (p *termsParser) priority() int32 {
	text, ok := p.annotations[v1alpha1.LockPriorityAnnotation]
	if !ok {
		return 0
	}
	parsed, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		p.refuse(v1alpha1.LockPriorityAnnotation, "must be an integer of 32 bits, such as 100 or -5")
	}
	return int32(parsed)
}

func (p *termsParser) checkIdentity(terms *Terms) {
	if _, ok := p.annotations[v1alpha1.LockKeyAnnotation]; !ok {
		p.problems = append(p.problems, field.Required(annotationPath(v1alpha1.LockKeyAnnotation), "names what the Job locks"))
	} else if err := p.checkName(terms.Key); err != nil {
		p.refuse(v1alpha1.LockKeyAnnotation, err.Error())
	}
	switch terms.Scope {
	case v1alpha1.ScopeGlobal:
		if terms.Function != "" {
			p.refuse(v1alpha1.LockFunctionAnnotation, "is for the scope Function only")
		}
	case v1alpha1.ScopeFunction:
		if terms.Function == "" {
			p.problems = append(p.problems, field.Required(annotationPath(v1alpha1.LockFunctionAnnotation), "names the function that the key belongs to"))
		} else if err := p.checkName(terms.Function); err != nil {
			p.refuse(v1alpha1.LockFunctionAnnotation, err.Error())
		}
	default:
		p.problems = append(p.problems, field.NotSupported(annotationPath(v1alpha1.LockScopeAnnotation), terms.Scope,
			[]v1alpha1.Scope{v1alpha1.ScopeGlobal, v1alpha1.ScopeFunction}))
	}
}

func (p *termsParser) checkTTL(ttl time.Duration, limits Limits) {
	switch {
	case ttl < limits.MinTTL:
		p.refuse(v1alpha1.LockTTLAnnotation, fmt.Sprintf("must be at least %s: the operator needs as long to change its leader", limits.MinTTL))
	case limits.MaxTTL != 0 && ttl > limits.MaxTTL:
		p.refuse(v1alpha1.LockTTLAnnotation, fmt.Sprintf("must be at most %s; the lock is renewed for as long as the Job runs", limits.MaxTTL))
	}
}
