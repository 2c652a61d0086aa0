//go:build !race

// The race detector makes allocations of its own.

package webhook_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"forrst.dev/lock-operator/lock/jobs"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/webhook"
	"forrst.dev/lock-operator/webhook/guard"
)

// review is the text of a review with the object, before and after, and more members of the request.
func review(operation admissionv1.Operation, object, more string) []byte {
	old := ""
	if operation != admissionv1.Create {
		old = `,"oldObject":` + object
	}
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","operation":%q,"name":"costly","namespace":"default",`+
		`"resource":{"group":"","version":"v1","resource":"configmaps"},"userInfo":{"username":"alice"%s},"object":%s%s}}`, operation, more, object, old)
}

// Forged reviews can have any content. Whatever it is, judging it must not take more memory than it is
// charged for, or many of them together would end the process.
func TestMemoryOfReviewsIsCharged(t *testing.T) {
	noon := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))
	cluster := newFakeCluster(t).Build()
	handlers := map[string]admission.Handler{
		webhook.LockPath: &webhook.LockAdmission{
			Client: cluster, LiveReader: cluster, Limits: rules.DefaultLimits(), Clock: noon, Authorizer: authorizerfactory.NewPrivilegedGroups(),
		},
		webhook.JobPath: &webhook.JobAdmission{Limits: jobs.Limits{MaxTTL: time.Hour}, Clock: noon},
		guard.Path:      &guard.Admission{Locks: cluster, LiveReader: cluster, Clock: noon, ClockSkewAllowance: new(time.Duration)},
	}
	many := func(value string, bytes int) string {
		return strings.TrimSuffix(strings.Repeat(value+",", bytes/(len(value)+1)), ",")
	}
	pairs := func(bytes int, prefix ...string) string {
		var text strings.Builder
		for number := 0; text.Len() < bytes; number++ {
			fmt.Fprintf(&text, `%q:"",`, strings.Join(prefix, "")+strconv.Itoa(number))
		}
		return strings.TrimSuffix(text.String(), ",")
	}
	lock := func(metadata, spec string) string {
		return `{"apiVersion":"forrst.dev/v1alpha1","kind":"Lock","metadata":{"name":"costly","namespace":"default"` + metadata + `},"spec":{"key":"costly"` + spec + `}}`
	}
	job := func(metadata, pods string) string {
		return `{"metadata":{"name":"costly","namespace":"default","labels":{"forrst.dev/lock":"true"},"annotations":{"forrst.dev/lock-key":"costly"}` + metadata +
			`},"spec":{"template":{"spec":{` + pods + `}}}}`
	}
	const small, large = 15 << 10, 128 << 10 // A Lock that is larger is not decoded when it is created.
	cases := map[string]struct {
		path, object, more string
	}{
		"a Lock with a long annotation":      {webhook.LockPath, lock(`,"annotations":{"a":"`+strings.Repeat("x", large-1000)+`"}`, ""), ""},
		"a Lock with many owners":            {webhook.LockPath, lock(`,"ownerReferences":[`+many("{}", small)+`]`, ""), ""},
		"a Lock with many finalizers":        {webhook.LockPath, lock(`,"finalizers":[`+many(`""`, small)+`]`, ""), ""},
		"a Lock with many managers":          {webhook.LockPath, lock(`,"managedFields":[`+many("{}", small)+`]`, ""), ""},
		"a Lock with many labels":            {webhook.LockPath, lock(`,"labels":{`+pairs(small)+`}`, ""), ""},
		"a Lock with many guards":            {webhook.LockPath, lock("", `,"guards":[`+many("{}", small)+`]`), ""},
		"a Lock that is not decoded":         {webhook.LockPath, lock(`,"ownerReferences":[`+many("{}", 400<<10)+`]`, ""), ""},
		"a Lock of a user with many groups":  {webhook.LockPath, lock("", ""), `,"groups":[` + many(`""`, large) + `]`},
		"a Job with many containers":         {webhook.JobPath, job("", `"containers":[`+many("{}", large)+`]`), ""},
		"a Job with many volumes":            {webhook.JobPath, job("", `"volumes":[`+many("{}", large)+`]`), ""},
		"a Job with many variables":          {webhook.JobPath, job("", `"containers":[{"env":[`+many("{}", large)+`]}]`), ""},
		"a Job with many rules":              {webhook.JobPath, strings.Replace(job("", ""), `"spec":{`, `"spec":{"podFailurePolicy":{"rules":[`+many("{}", large)+`]},`, 1), ""},
		"a Job with many owners":             {webhook.JobPath, job(`,"ownerReferences":[`+many("{}", large)+`]`, ""), ""},
		"a Job with many unknown names":      {webhook.JobPath, job(`,"annotations":{"forrst.dev/lock-key":"costly",`+pairs(large, "forrst.dev/lock-")+`}`, ""), ""},
		"a Job with a long text":             {webhook.JobPath, job("", `"containers":[{"args":["`+strings.Repeat("x", 3<<20)+`"]}]`), ""},
		"an object with many labels":         {guard.Path, `{"metadata":{"name":"a","labels":{` + pairs(large) + `}}}`, ""},
		"an object with many values":         {guard.Path, `{"metadata":{"name":"a"},"data":[` + many("{}", large) + `],"fence":"forrst.dev/fenced-by"}`, ""},
		"an object with a long text":         {guard.Path, `{"metadata":{"name":"a"},"fence":"forrst.dev/fenced-by","data":"` + strings.Repeat("x", 3<<20) + `"}`, ""},
		"an object of a user of many groups": {guard.Path, `{}`, `,"groups":[` + many(`""`, large) + `],"extra":{` + strings.ReplaceAll(pairs(large), `""`, `[]`) + `}`},
	}
	for name, test := range cases {
		for _, operation := range []admissionv1.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete} {
			t.Run(fmt.Sprint(name, ", ", operation), func(t *testing.T) {
				text := review(operation, test.object, test.more)
				if !json.Valid(text) {
					t.Fatalf("not JSON: %.300s", text)
				}
				served := &admission.Webhook{Handler: handlers[test.path]}
				judge := func() {
					body := append([]byte(nil), text...)
					asked := httptest.NewRequestWithContext(t.Context(), http.MethodPost, test.path, bytes.NewReader(body))
					asked.Header.Set("Content-Type", "application/json")
					served.ServeHTTP(discarding{}, asked)
				}
				taken := min(allocated(judge), allocated(judge), allocated(judge)) // Other goroutines allocate as well.
				charged := int64(len(text)) * webhook.ReviewCosts()[test.path].ByteCost
				t.Logf("%d bytes, %d allocated, %d charged: %d %%", len(text), taken, charged, 100*taken/charged)
				if taken > charged {
					t.Errorf("a review of %d bytes allocated %d, and is charged %d", len(text), taken, charged)
				}
			})
		}
	}
}

// allocated returns the bytes that the function allocates, also those that it could have freed.
func allocated(run func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// discarding is a response that goes nowhere.
type discarding struct{}

func (discarding) Header() http.Header            { return http.Header{} }
func (discarding) Write(text []byte) (int, error) { return io.Discard.Write(text) }
func (discarding) WriteHeader(int)                {}
