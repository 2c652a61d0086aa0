package lab

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/test/bench/contender"
)

// scrapeEvery is more often than a Prometheus usually does.
const scrapeEvery = 5 * time.Second

// Scraper reads metrics as a Prometheus does, and forgets them.
type Scraper struct {
	// Addresses must not change after Start.
	Addresses []string
	// Scrapes counts what was read.
	Scrapes atomic.Int64

	token   string
	client  *http.Client
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// NewScraper returns a scraper and gives the caller of the benchmarks the right to read metrics.
func NewScraper(ctx context.Context, admin *rest.Config) (*Scraper, error) {
	clientset, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return nil, err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bench-metrics"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "lock-operator-metrics"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: contender.Namespace, Name: userName}},
	}
	if _, err := clientset.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	token, err := clientset.CoreV1().ServiceAccounts(contender.Namespace).CreateToken(ctx, userName, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return &Scraper{token: token.Status.Token, cancel: func() {}, client: &http.Client{
		Timeout: StartTimeout,
		// The process signs its certificate itself.
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}}, nil
}

// Start reads the metrics until Stop.
func (s *Scraper) Start(ctx context.Context) {
	ctx, s.cancel = context.WithCancel(ctx)
	for _, address := range s.Addresses {
		s.running.Go(func() {
			ticker := time.NewTicker(scrapeEvery)
			defer ticker.Stop()
			for {
				if s.scrape(ctx, address) == http.StatusOK {
					s.Scrapes.Add(1)
				}
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
				}
			}
		})
	}
}

// scrape returns the status of the answer, or zero.
func (s *Scraper) scrape(ctx context.Context, address string) int {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/metrics", http.NoBody)
	if err != nil {
		return 0
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	response, err := s.client.Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body) // an answer that is cut off is none
	return response.StatusCode
}

// Stop ends it.
func (s *Scraper) Stop() {
	s.cancel()
	s.running.Wait()
	s.client.CloseIdleConnections()
}
