package audit_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/webhook"
)

const (
	// places is how many admitted changes the webhook awaits at a time.
	places = 10_000
	// floodRate is how many malformed creates there are each second, and acts how many forced releases,
	// and acquisitions, there are beside them.
	floodRate = 200
	acts      = 100
	// fillers is how many forged reviews are under way at a time, and floodWidth how many creates: a busy machine has fewer.
	fillers    = 8
	floodWidth = 32
)

// flood creates malformed locks until ctx ends: admission refuses every third, and the API server refuses the
// others after admission.
type flood struct {
	namespace string
	begun     atomic.Int64
}

func (f *flood) create(ctx context.Context) {
	number := f.begun.Add(1)
	_ = flooder.Client.Create(ctx, fixture.Manifest(f.namespace, fmt.Sprint("malformed-", number), func(lock *v1alpha1.Lock) {
		if number%3 == 0 {
			lock.Spec.TTL = &v1alpha1.Duration{Duration: -time.Second}
		} else {
			lock.Labels = map[string]string{"not a label": "x"}
		}
	}))
}

// fill has creates admitted until all places are taken, by reviews with the certificate of the API server. Those
// of real creates may be too slow: an admitted change keeps its place for a minute.
func (f *flood) fill(ctx context.Context) {
	GinkgoHelper()
	files := environment.WebhookClient()
	certificate, err := tls.LoadX509KeyPair(files.Certificate, files.Key)
	Expect(err).NotTo(HaveOccurred())
	port := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{
			Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12,
			InsecureSkipVerify: true,
		},
		MaxIdleConnsPerHost: fillers,
	}}
	defer port.CloseIdleConnections()
	var forgers errgroup.Group
	for range fillers {
		forgers.Go(func() error {
			for number := f.begun.Add(1); number <= places+floodRate; number = f.begun.Add(1) {
				if err := forge(ctx, port, f.namespace, fmt.Sprint("forged-", number)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	Expect(forgers.Wait()).To(Succeed())
}

// forge has a create of a lock by the flooder reviewed that the API server does not know of.
func forge(ctx context.Context, port *http.Client, namespace, name string) error {
	review := fmt.Sprintf(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","operation":"CREATE","name":%[1]q,"namespace":%[2]q,`+
		`"resource":{"group":"forrst.dev","version":"v1alpha1","resource":"locks"},"userInfo":{"username":%[3]q},`+
		`"object":{"apiVersion":"forrst.dev/v1alpha1","kind":"Lock","metadata":{"name":%[1]q,"namespace":%[2]q},"spec":{"key":%[1]q}}}}`,
		name, namespace, flooder.Name)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, webhookURL+webhook.LockPath, strings.NewReader(review))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := port.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && !strings.Contains(string(text), `"allowed":true`) {
		err = fmt.Errorf("the review of %s was answered %d: %s", name, response.StatusCode, text)
	}
	return err
}

// goOn creates at the rate until ctx ends.
func (f *flood) goOn(ctx context.Context) {
	var creates errgroup.Group
	creates.SetLimit(floodWidth)
	defer func() { _ = creates.Wait() }()
	ticker := time.NewTicker(time.Second / floodRate)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			creates.TryGo(func() error {
				f.create(ctx)
				return nil
			})
		}
	}
}

var _ = Describe("A burst of malformed creates", func() {
	It("hides no forced release and no acquisition", func(ctx context.Context) {
		namespace := environment.Namespace(ctx, "audit-")
		locks := make([]*v1alpha1.Lock, acts)
		for number := range locks {
			locks[number] = fixture.Manifest(namespace, fmt.Sprint("forced-", number))
			Expect(worker.Client.Create(ctx, locks[number])).To(Succeed())
			locks[number].Annotations = map[string]string{v1alpha1.ForceReleaseReasonAnnotation: "it hangs"}
			Expect(administrator.Client.Update(ctx, locks[number])).To(Succeed())
		}
		malformed := &flood{namespace: namespace}
		malformed.fill(ctx)
		flooding, stop := context.WithCancel(ctx)
		var going sync.WaitGroup
		going.Go(func() { malformed.goOn(flooding) })
		DeferCleanup(going.Wait)
		DeferCleanup(stop)
		for number, each := range locks {
			Expect(administrator.Client.Delete(ctx, each)).To(Succeed())
			Expect(worker.Client.Create(ctx, fixture.Manifest(namespace, fmt.Sprint("acquired-", number)))).To(Succeed())
		}
		counts := func() map[audit.Event]int {
			counted := map[audit.Event]int{}
			for _, record := range recorded(func(r audit.Record) bool { return r.Namespace == namespace && r.Actor != flooder.Name }) {
				counted[record.Event]++
			}
			return counted
		}
		Eventually(counts).Should(Equal(map[audit.Event]int{
			audit.Granted: 2 * acts, audit.ForceReleaseAdmitted: acts, audit.ForceReleased: acts,
		}))
		stop()
		for _, cause := range []audit.Cause{audit.TooManyRefusals, audit.NotMade} {
			Eventually(func() []audit.Record {
				return recorded(func(r audit.Record) bool { return r.Event == audit.Omitted && r.Cause == cause })
			}).Should(ContainElement(And(HaveField("Actor", flooder.Name), HaveField("Namespace", namespace), HaveField("Count", BeNumerically(">", 0)))),
				"what is not on record singly is told")
		}
		Expect(client.IgnoreNotFound(administrator.Client.Delete(ctx, locks[0]))).To(Succeed())
	})
})
