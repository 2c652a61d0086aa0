package process_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/metric"
	"forrst.dev/lock-operator/test/support/fixture"
)

// namespaces is how many one round of the load has, each with its own caller.
const namespaces = 6

// garbage are paths, methods and bodies that callers may send.
var garbage = []struct{ method, path, body string }{
	{http.MethodPost, "/forrst", `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"a","call":{"function":"made-up-%s","arguments":{}}}`},
	{http.MethodPost, "/forrst", `{"protocol":{"name":"other-%s","version":"9"},"id":"a"}`},
	{http.MethodPost, "/forrst", "not JSON %s"},
	{http.MethodPost, "/v1/namespaces/no-such-%s/locks/key", `{"ttl_seconds":60}`},
	{"MADEUP", "/v1/%s", ""},
	{http.MethodGet, "/v2/%s?watch=%[1]s", ""},
	{http.MethodGet, "/openapi.json?x=%s", ""},
	{http.MethodGet, "/readyz/%s", ""},
	{http.MethodDelete, "/v1/namespaces/default/locks/%s", ""},
}

// load takes, waits for, renews and ends locks in namespaces of its own, through every door, and sends garbage.
// During is called while all that is under way; load returns when it is cleaned up.
func load(ctx context.Context, round string, during func(names []string)) {
	GinkgoHelper()
	var names, tokens []string
	for range namespaces {
		name := environment.Namespace(ctx, "load-"+round+"-")
		environment.AllowWorkers(ctx, name)
		names, tokens = append(names, name), append(tokens, tokenOf(ctx, name, fixture.Worker, audience))
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	var callers sync.WaitGroup
	for i, name := range names {
		path := "/v1/namespaces/" + name + "/locks/"
		for key := range 10 {
			Eventually(func() int { // The API server takes a moment to know the rights.
				return call(ctx, http.MethodPost, fmt.Sprintf("%s%s-%d", path, round, key), tokens[i], `{"ttl_seconds":60}`)
			}).Should(Or(Equal(http.StatusCreated), Equal(http.StatusConflict)))
		}
		callers.Go(func() {
			call(waiting, http.MethodPost, path+round+"-0", tokens[i], `{"ttl_seconds":60,"wait_seconds":60}`)
		})
		forrst := `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"a","call":{"function":"urn:k8s:forrst:ext:atomic-lock:fn:acquire","arguments":{"key":"%s"}}}`
		call(ctx, http.MethodPost, "/forrst", tokens[i], fmt.Sprintf(forrst, "forrst-"+round))
		call(ctx, http.MethodPost, "/forrst", tokens[i], fmt.Sprintf(forrst, "forrst-"+round))
		call(ctx, http.MethodPost, path+"brief-"+round, tokens[i], `{"ttl_seconds":1}`)
		for number := range 5 {
			for _, sent := range garbage {
				made := fmt.Sprintf("%s-%d-%d", round, i, number)
				call(ctx, sent.method, strings.ReplaceAll(sent.path, "%s", made), tokens[i], strings.ReplaceAll(sent.body, "%s", made))
				call(ctx, http.MethodPost, "/v1/namespaces/"+made+"/locks/x", "token-"+made, "{}")
			}
		}
		manifest := fixture.Manifest(name, "direct-"+round)
		Expect(environment.Admin.Client.Create(ctx, manifest)).To(Succeed())
		Expect(environment.Admin.Client.Create(ctx, fixture.Manifest(name, "direct-"+round))).NotTo(Succeed())
		Expect(environment.Admin.Client.Create(ctx, lockedJob(name, "job-"+round, "direct-"+round))).To(Succeed())
		Expect(environment.Admin.Client.Create(ctx, lockedJob(name, "running-"+round, "job-"+round))).To(Succeed())
	}
	during(names)
	stop()
	callers.Wait()
	for _, name := range names {
		succeed(ctx, name, "running-"+round)
		Expect(environment.Admin.Client.DeleteAllOf(ctx, lockedJob(name, "", ""), client.InNamespace(name), client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		var locks v1alpha1.LockList
		Expect(environment.Admin.Client.List(ctx, &locks, client.InNamespace(name))).To(Succeed())
		for i := range locks.Items {
			end(ctx, &locks.Items[i])
		}
		Eventually(func() ([]v1alpha1.Lock, error) {
			err := environment.Admin.Client.List(ctx, &locks, client.InNamespace(name))
			for i := range locks.Items {
				end(ctx, &locks.Items[i])
			}
			return locks.Items, err
		}).Should(BeEmpty())
		Expect(client.IgnoreNotFound(environment.Admin.Client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))).To(Succeed())
	}
}

// seriesOf returns all series, with the names and values of their labels.
func seriesOf(families map[string]*dto.MetricFamily) map[string]bool {
	series := map[string]bool{}
	for name, family := range families {
		for _, of := range family.GetMetric() {
			labels := make([]string, 0, len(of.GetLabel()))
			for _, label := range of.GetLabel() {
				labels = append(labels, label.GetName()+"="+label.GetValue())
			}
			series[name+"{"+strings.Join(labels, ",")+"}"] = true
		}
	}
	return series
}

// usedLines returns how much is used of each limit of callers that wait.
func usedLines(ctx context.Context) map[string]float64 {
	GinkgoHelper()
	used := map[string]float64{}
	for _, series := range mustScrape(ctx)[metric.LimitUsage.Name].GetMetric() {
		if limit := series.GetLabel()[0].GetValue(); strings.HasPrefix(limit, "line_") {
			used[limit] = series.GetGauge().GetValue()
		}
	}
	return used
}

var _ = Describe("The metrics of the operator", Ordered, func() {
	BeforeAll(startMeasured)

	It("have series of namespaces while these have locks, waiters and Jobs, and no more series after many of them", func(ctx context.Context) {
		about := func(names []string) func(ctx context.Context) []string {
			return func(ctx context.Context) []string {
				return slices.DeleteFunc(slices.Collect(maps.Keys(seriesOf(mustScrape(ctx)))), func(series string) bool {
					return !slices.ContainsFunc(names, func(name string) bool { return strings.Contains(series, name) })
				})
			}
		}
		var before map[string]bool
		for _, round := range []string{"round-a", "round-b", "round-c"} {
			var all []string
			load(ctx, round, func(names []string) {
				all = names
				for _, of := range []*metric.Definition{&metric.Locks, &metric.Waiters, &metric.LongestWait, &metric.JobsWaiting, &metric.JobsOldestWait, &metric.JobsRunning} {
					Eventually(about(names)).WithContext(ctx).Should(ContainElement(HavePrefix(of.Name+"{")), "a positive control")
				}
				Eventually(usedLines).WithContext(ctx).Should(And(HaveLen(3), HaveEach(BeNumerically(">", 0))))
			})
			Eventually(about(all)).WithContext(ctx).Should(BeEmpty(), "no series is about a namespace that has nothing")
			Eventually(usedLines).WithContext(ctx).Should(And(HaveLen(3), HaveEach(BeZero())))
			after := seriesOf(mustScrape(ctx))
			switch round {
			case "round-a":
				before = after
			default:
				for series := range after {
					Expect(series).NotTo(Or(ContainSubstring(round), ContainSubstring("made-up")), "no series is about what a caller has sent")
				}
				// A status or an outcome that had not come up yet is no growth.
				Expect(len(after)).To(BeNumerically("<=", len(before)+len(before)/20))
			}
		}
		Expect(len(before)).To(BeNumerically("<", 2000))
	})

	// After the load, since a metric may have no series without it.
	It("are those of the catalogue", func(ctx context.Context) {
		declared := map[string]*metric.Definition{}
		for _, section := range metric.Catalogue() {
			for _, of := range section.Metrics {
				declared[of.Name] = of
			}
		}
		mustScrape(ctx)
		for name, family := range reported {
			if !strings.HasPrefix(name, "lock_operator_") {
				continue
			}
			of := declared[name]
			Expect(of).NotTo(BeNil(), "%s is not declared", name)
			Expect(strings.ToLower(family.GetType().String())).To(Equal(string(of.Type)), name)
			Expect(family.GetHelp()).To(Equal(of.Help))
			for _, series := range family.GetMetric() {
				for _, label := range series.GetLabel() {
					Expect(of.Labels).To(ContainElement(label.GetName()), name)
				}
				Expect(series.GetLabel()).To(HaveLen(len(of.Labels)), name)
			}
		}
		for name := range declared {
			if reported[name] == nil {
				Fail(name + " is declared, and not reported after such a load")
			}
		}
	})
})
