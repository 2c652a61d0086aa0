package jobs_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/jobs"
)

var limits = jobs.Limits{MinTTL: 30 * time.Second, MaxTTL: time.Hour}

func TestParseTerms(t *testing.T) {
	const prefix = "forrst.dev/lock-"
	cases := map[string]struct {
		annotations map[string]string
		want        jobs.Terms
		// wantFields are the paths of the expected problems.
		wantFields []string
	}{
		"a key alone has defaults for the rest": {
			annotations: map[string]string{"key": "billing:report"},
			want:        jobs.Terms{Scope: v1alpha1.ScopeGlobal, Key: "billing:report", TTL: 5 * time.Minute, Policy: jobs.PolicyWait},
		},
		"everything": {
			annotations: map[string]string{"key": "k", "scope": "Function", "function": "f", "ttl": "1m", "wait-timeout": "1h30m", "priority": "-5", "policy": "wait"},
			want: jobs.Terms{
				Scope: v1alpha1.ScopeFunction, Function: "f", Key: "k", TTL: time.Minute, Policy: jobs.PolicyWait,
				WaitTimeout: 90 * time.Minute, Priority: -5,
			},
		},
		"an invisible key of an earlier release": {
			annotations: map[string]string{"key": "k\u200b"},
			want:        jobs.Terms{Scope: v1alpha1.ScopeGlobal, Key: "k\u200b", TTL: 5 * time.Minute, Policy: jobs.PolicyWait},
		},
		"no key":                              {wantFields: []string{"key"}},
		"an empty key":                        {annotations: map[string]string{"key": ""}, wantFields: []string{"key"}},
		"a key with control characters":       {annotations: map[string]string{"key": "a\nb"}, wantFields: []string{"key"}},
		"an unknown scope":                    {annotations: map[string]string{"key": "k", "scope": "global"}, wantFields: []string{"scope"}},
		"scope Function without function":     {annotations: map[string]string{"key": "k", "scope": "Function"}, wantFields: []string{"function"}},
		"a function without its scope":        {annotations: map[string]string{"key": "k", "function": "f"}, wantFields: []string{"function"}},
		"a ttl without units":                 {annotations: map[string]string{"key": "k", "ttl": "300"}, wantFields: []string{"ttl"}},
		"a negative ttl":                      {annotations: map[string]string{"key": "k", "ttl": "-5m"}, wantFields: []string{"ttl"}},
		"a ttl that is too short":             {annotations: map[string]string{"key": "k", "ttl": "29s"}, wantFields: []string{"ttl"}},
		"a ttl that is too long":              {annotations: map[string]string{"key": "k", "ttl": "61m"}, wantFields: []string{"ttl"}},
		"an unknown policy":                   {annotations: map[string]string{"key": "k", "policy": "queue"}, wantFields: []string{"policy"}},
		"a wait-timeout without waiting":      {annotations: map[string]string{"key": "k", "policy": "skip", "wait-timeout": "1m"}, wantFields: []string{"wait-timeout"}},
		"a wait-timeout of nothing":           {annotations: map[string]string{"key": "k", "wait-timeout": "0s"}, wantFields: []string{"wait-timeout"}},
		"a wait-timeout of years":             {annotations: map[string]string{"key": "k", "wait-timeout": "9000h"}, wantFields: []string{"wait-timeout"}},
		"a priority that is no number":        {annotations: map[string]string{"key": "k", "priority": "high"}, wantFields: []string{"priority"}},
		"a priority of more than 32 bits":     {annotations: map[string]string{"key": "k", "priority": "2147483648"}, wantFields: []string{"priority"}},
		"several faults are reported at once": {annotations: map[string]string{"ttl": "x", "priority": "x"}, wantFields: []string{"ttl", "priority", "key"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			annotations := map[string]string{}
			for suffix, value := range test.annotations {
				annotations[prefix+suffix] = value
			}
			got, problems := jobs.ParseTerms(annotations, limits)
			var fields []string
			for _, problem := range problems {
				fields = append(fields, problem.Field)
			}
			var want []string
			for _, suffix := range test.wantFields {
				want = append(want, "metadata.annotations["+prefix+suffix+"]")
			}
			if diff := cmp.Diff(want, fields); diff != "" {
				t.Fatalf("problems (-want +got):\n%s\n%v", diff, problems)
			}
			if len(problems) > 0 {
				return
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("terms (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzParseTerms(f *testing.F) {
	f.Add("billing:report", "Global", "", "5m", "wait", "1h", "3")
	f.Add("", "Function", "f", "-1s", "skip", "9223372036854775807ns", "99999999999")
	f.Fuzz(func(t *testing.T, key, scope, function, ttl, policy, timeout, priority string) {
		terms, problems := jobs.ParseTerms(map[string]string{
			v1alpha1.LockKeyAnnotation: key, v1alpha1.LockScopeAnnotation: scope, v1alpha1.LockFunctionAnnotation: function,
			v1alpha1.LockTTLAnnotation: ttl, v1alpha1.LockPolicyAnnotation: policy,
			v1alpha1.LockWaitTimeoutAnnotation: timeout, v1alpha1.LockPriorityAnnotation: priority,
		}, limits)
		if len(problems) == 0 && (terms.TTL < limits.MinTTL || terms.TTL > limits.MaxTTL || terms.WaitTimeout < 0 || terms.FullKey().ObjectName() == "") {
			t.Errorf("accepted %+v", terms)
		}
	})
}
