package installation_test

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shareLines has callers of different replicas of the façade wait for one lock, and asks each replica who waits.
func (c *cluster) shareLines(t *testing.T) {
	t.Helper()
	c.shareLinesBy(t, c.authority(t, "ConfigMap", "lock-operator-authority"))
}

func (c *cluster) shareLinesBy(t *testing.T, authority *x509.CertPool) {
	t.Helper()
	c.kubectlRun(t, "", "create", "serviceaccount", "waiter")
	_, err := c.client.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "waiter"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "lock-operator-edit"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "waiter", Namespace: "default"}},
	}, metav1.CreateOptions{})
	check(t, err)
	t.Cleanup(func() { c.kubectlRun(t, "", "delete", "serviceaccount/waiter", "rolebinding/waiter") })
	doors := &doors{t: t, authority: authority, token: c.token(t, "default", "waiter", "lock-operator.forrst.dev")}
	// A replica is behind the Service of the façade a moment before or after the others find it.
	await(t, func() error {
		doors.all = c.endpoints(t, "lock-operator-facade", "facade")
		if peers := c.endpoints(t, "lock-operator-facade-peers", "peers"); len(peers) < 2 || len(doors.all) != len(peers) {
			return fmt.Errorf("replicas at %q, which find each other at %q", doors.all, peers)
		}
		return nil
	})

	status, body := doors.call(0, http.MethodPost, "", `{"ttl_seconds":300}`, "")
	if status != http.StatusCreated {
		t.Fatalf("the lock is refused with %d: %s", status, body)
	}
	var held struct {
		LockToken string `json:"lock_token"`
	}
	check(t, json.Unmarshal([]byte(body), &held))
	var waiting sync.WaitGroup
	for index := range doors.all {
		waiting.Go(func() {
			if status, body := doors.call(index, http.MethodPost, "", `{"ttl_seconds":1,"wait_seconds":60}`, ""); status != http.StatusCreated {
				t.Errorf("the caller of replica %d is answered %d: %s", index, status, body)
			}
		})
		// Each replica tells of the callers of all, whichever is home to the line.
		for each := range doors.all {
			await(t, func() error {
				status, body := doors.call(each, http.MethodGet, "/waiters", "", "")
				if count := strings.Count(body, `"place"`); status != http.StatusOK || count != index+1 {
					return fmt.Errorf("replica %d tells with %d of %d callers, want %d: %s", each, status, count, index+1, body)
				}
				return nil
			})
		}
	}
	if status, body := doors.call(len(doors.all)-1, http.MethodDelete, "", "", held.LockToken); status != http.StatusNoContent {
		t.Errorf("the release is answered %d: %s", status, body)
	}
	waiting.Wait()
}

// doors are those of all replicas of the façade.
type doors struct {
	t         *testing.T
	authority *x509.CertPool
	token     string
	all       []string
}

// call sends a request about one lock to a replica.
func (d *doors) call(replica int, method, path, body, lockToken string) (int, string) {
	client := &http.Client{Transport: trusting(d.authority, "lock-operator-facade."+namespace+".svc")}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(d.t.Context(), method, "https://"+d.all[replica]+"/v1/namespaces/default/locks/shared"+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	request.Header.Set("Authorization", "Bearer "+d.token)
	request.Header.Set("Content-Type", "application/json")
	if lockToken != "" {
		request.Header.Set("X-Lock-Token", lockToken)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(answer)
}
