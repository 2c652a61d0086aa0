//go:build nightly || timing

package line_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/test/support/fixture"
)

// every is the time between two of many callers.
const every = 2 * time.Millisecond

// crowd are many who wait for one lock, which none of them gets, at the replicas that are not home to its line.
type crowd struct {
	installed *installation
	scraper   string
	home      *replica
	others    []*replica
	// empty is what the replicas used before the crowd came.
	empty map[*replica]footprint
	first *lock.Held
	leave context.CancelFunc
	all   sync.WaitGroup
}

// gather starts an installation, and returns when so many stand in one line of it.
func gather(ctx context.Context, number int) *crowd {
	GinkgoHelper()
	installed := install(ctx, 3)
	c := &crowd{installed: installed, scraper: scraperToken(ctx), empty: map[*replica]footprint{}}
	namespace := environment.Namespace(ctx, "line-")
	environment.AllowWorkers(ctx, namespace)
	token := tokenOf(ctx, namespace, fixture.Worker, audience)
	c.home, c.others = installed.home(namespace, "report")
	var err error
	c.first, err = installed.caller(ctx, c.home, namespace, token).Acquire(ctx, "report", lock.WithTTL(time.Hour), lock.WithoutRenewal())
	Expect(err).NotTo(HaveOccurred())
	for _, at := range installed.all {
		c.empty[at] = at.footprint(ctx, c.scraper)
	}
	leaving, leave := context.WithCancel(context.WithoutCancel(ctx))
	c.leave = leave
	DeferCleanup(c.disperse)
	transport := installed.transportOver2()
	// As many at a time as connections are made without delay.
	arriving := make(chan struct{}, 50)
	for waiter := range number {
		c.all.Go(func() {
			arriving <- struct{}{}
			go func() { <-time.After(100 * time.Millisecond); <-arriving }()
			waitFor(leaving, transport, c.others[waiter%len(c.others)], namespace, "report", token)
		})
	}
	Eventually(func() string {
		var told []string
		for _, at := range installed.all {
			told = append(told, fmt.Sprintf("%s: %.0f", at.name, at.footprint(ctx, c.scraper).waiters))
		}
		return strings.Join(told, ", ")
	}).WithTimeout(4 * time.Minute).WithPolling(time.Second).Should(ContainSubstring("%s: %d", c.home.name, number))
	return c
}

// disperse has all of them leave.
func (c *crowd) disperse() {
	c.leave()
	c.all.Wait()
}

// waitFor waits for a lock until ctx ends, which none of the crowd gets.
func waitFor(ctx context.Context, transport *http.Transport, at *replica, namespace, key, token string) {
	defer GinkgoRecover()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+at.address+"/v1/namespaces/"+namespace+"/locks/"+key,
		strings.NewReader(`{"ttl_seconds":60,"wait_seconds":3000}`))
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	response, err := transport.RoundTrip(request)
	if ctx.Err() != nil {
		return
	}
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }() // Its status is all there is to it.
	Fail(fmt.Sprintf("a waiter is answered %d", response.StatusCode))
}

// numberOf is the value of a variable of the environment, or the default.
func numberOf(variable string, otherwise int) int {
	GinkgoHelper()
	given, isGiven := os.LookupEnv(variable)
	if !isGiven {
		return otherwise
	}
	number, err := strconv.Atoi(given)
	Expect(err).NotTo(HaveOccurred(), variable)
	return number
}

// footprint is what the metrics of a replica say of its memory, and of those that wait in its lines.
type footprint struct{ waiters, inUse, resident float64 }

// scraperToken is one of an account that may read metrics.
func scraperToken(ctx context.Context) string {
	GinkgoHelper()
	namespace := environment.Namespace(ctx, "scraper-")
	environment.AllowWorkers(ctx, namespace)
	Expect(environment.Admin.Client.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "lock-operator-metrics"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: fixture.Worker}},
	})).To(Succeed())
	return tokenOf(ctx, namespace, fixture.Worker)
}

func (r *replica) footprint(ctx context.Context, token string) (found footprint) {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+r.metrics+"/metrics", http.NoBody)
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer "+token)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := client.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }() // Only read.
	Expect(response.StatusCode).To(Equal(http.StatusOK))
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	Expect(err).NotTo(HaveOccurred())
	sum := func(name string) (total float64) {
		family := families[name]
		if family == nil {
			family = &dto.MetricFamily{}
		}
		for _, series := range family.Metric {
			total += series.GetGauge().GetValue()
		}
		return total
	}
	return footprint{
		waiters: sum("lock_operator_waiters"), resident: sum("process_resident_memory_bytes"),
		inUse: sum("go_memstats_heap_alloc_bytes") + sum("go_memstats_stack_inuse_bytes"),
	}
}

// mend starts another replica in the place of those that are gone.
func (i *installation) mend(ctx context.Context) {
	GinkgoHelper()
	isGone := func(at *replica) bool { return at.process.ExitCode() != -1 }
	Eventually(func() bool { return slices.ContainsFunc(i.all, isGone) }).WithTimeout(patience).Should(BeTrue())
	i.all = slices.DeleteFunc(i.all, isGone)
	i.start(ctx)
	i.meet(ctx)
}
