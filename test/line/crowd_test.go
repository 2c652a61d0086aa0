package line_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
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

const (
	// crowd is how many wait for one lock at the replicas that are not home to its line. LINE_CROWD sets another number.
	crowd = 2_000
	// silence is for how long they must cost the API server nothing.
	silence = 30 * time.Second
	// perWaiter is what one may take of the memory of the replica that it has called, and perPlace of that of the home.
	perWaiter, perPlace = 24 << 10, 1 << 10
)

var _ = Describe("A crowd that waits", func() {
	It("costs the API server nothing, and little memory", func(ctx context.Context) {
		// The heap is then little more than what is in use.
		GinkgoT().Setenv("GOGC", "10")
		number := numberOf("LINE_CROWD", crowd)
		installed := install(ctx, 3)
		installed.startControllers(ctx)
		scraper := scraperToken(ctx)
		namespace := environment.Namespace(ctx, "line-")
		environment.AllowWorkers(ctx, namespace)
		token := tokenOf(ctx, namespace, fixture.Worker, audience)
		home, others := installed.home(namespace, "report")
		first, err := installed.caller(ctx, home, namespace, token).Acquire(ctx, "report", lock.WithTTL(time.Hour), lock.WithoutRenewal())
		Expect(err).NotTo(HaveOccurred())
		empty := map[*replica]footprint{}
		for _, at := range installed.all {
			empty[at] = at.footprint(ctx, scraper)
		}

		leaving, leave := context.WithCancel(ctx)
		var all sync.WaitGroup
		defer all.Wait()
		defer leave()
		transport := installed.transportOver2()
		// As many at a time as connections are made without delay.
		arriving := make(chan struct{}, 50)
		for waiter := range number {
			all.Go(func() {
				arriving <- struct{}{}
				go func() { <-time.After(100 * time.Millisecond); <-arriving }()
				waitFor(leaving, transport, others[waiter%len(others)], namespace, "report", token)
			})
		}
		Eventually(func() string {
			var told []string
			for _, at := range installed.all {
				told = append(told, fmt.Sprintf("%s: %.0f", at.name, at.footprint(ctx, scraper).waiters))
			}
			return strings.Join(told, ", ")
		}).WithTimeout(4 * time.Minute).WithPolling(time.Second).Should(ContainSubstring("%s: %d", home.name, number))
		Eventually(func(g Gomega) { // What their arrival cost has ended.
			before := installed.made()
			<-time.After(3 * time.Second)
			g.Expect(installed.made()).To(Equal(before))
		}).WithTimeout(time.Minute).Should(Succeed())

		// Each queue reads its lock once a minute, and at once if its watch is late: so not in each such time.
		Eventually(func() requests {
			before := installed.made()
			<-time.After(silence)
			return installed.made().since(before)
		}).WithTimeout(4 * silence).Should(Equal(requests{}))

		share := float64(number) / float64(len(others))
		var places, edges []float64
		for _, at := range installed.all {
			now := at.least(ctx, scraper)
			live, resident := now.inUse-empty[at].inUse, now.resident-empty[at].resident
			if at == home {
				GinkgoWriter.Printf("home: %.0f bytes in use for each place, %.0f resident\n", live/float64(number), resident/float64(number))
				places = append(places, live/float64(number))
				continue
			}
			GinkgoWriter.Printf("edge: %.0f bytes in use for each waiter, %.0f resident\n", live/share, resident/share)
			edges = append(edges, resident/share)
		}
		Expect(places).To(HaveEach(BeNumerically("<=", perPlace)))
		Expect(edges).To(HaveEach(BeNumerically("<=", perWaiter)))
		leave()
		all.Wait()
		Expect(first.Release(ctx)).To(Succeed())
	})
})

// transportOver2 has a few connections with HTTP/2 to each replica.
func (i *installation) transportOver2() *http.Transport {
	GinkgoHelper()
	roots := x509.NewCertPool()
	Expect(roots.AppendCertsFromPEM(i.authority)).To(BeTrue())
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	DeferCleanup(transport.CloseIdleConnections)
	return transport
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

// least is the smallest footprint within some seconds: the others have what is not collected yet.
func (r *replica) least(ctx context.Context, token string) footprint {
	GinkgoHelper()
	least := r.footprint(ctx, token)
	for range 10 {
		<-time.After(500 * time.Millisecond)
		now := r.footprint(ctx, token)
		least.inUse, least.resident = min(least.inUse, now.inUse), min(least.resident, now.resident)
	}
	return least
}
