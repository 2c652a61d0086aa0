package access_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/auth"
	"forrst.dev/lock-operator/facade/access"
	"forrst.dev/lock-operator/lock"
)

// reviewer is an API server that answers access reviews, and counts them.
type reviewer struct {
	allows func(authorizationv1.ResourceAttributes) bool
	count  atomic.Int64
}

func (r *reviewer) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(request.Body).Decode(&review); err != nil || review.Spec.ResourceAttributes == nil {
		http.Error(w, "no review of a resource", http.StatusBadRequest)
		return
	}
	r.count.Add(1)
	review.Status.Allowed = r.allows(*review.Spec.ResourceAttributes)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// control returns what both doors of a façade ask, whose reviews the reviewer answers.
func (r *reviewer) control(t *testing.T) *access.Control {
	t.Helper()
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	reviews, err := auth.New(config, server.Client(), auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	control, err := access.New(access.Options{Access: reviews})
	if err != nil {
		t.Fatal(err)
	}
	return control
}

// Names cost nothing where a Role has none: the answer about all locks is the one that is remembered.
func TestTheNumberOfReviewsDoesNotGrowWithTheKeys(t *testing.T) {
	const keys = 50
	mine := v1alpha1.FullKeyOf("key-7").ObjectName()
	for name, test := range map[string]struct {
		allows  func(authorizationv1.ResourceAttributes) bool
		reviews int64
		refused int
	}{
		"a right to all locks": {allows: func(right authorizationv1.ResourceAttributes) bool {
			return right.Name == "" && right.Verb == "create" && right.Namespace == "payments" &&
				right.Group == "forrst.dev" && right.Resource == "locks"
		}, reviews: 1},
		"a right to one lock": {allows: func(right authorizationv1.ResourceAttributes) bool { return right.Name == mine },
			reviews: 1 + keys, refused: keys - 1},
	} {
		t.Run(name, func(t *testing.T) {
			reviews := &reviewer{allows: test.allows}
			control := reviews.control(t)
			caller := &access.Caller{User: &user.DefaultInfo{Name: "alice"}, Namespace: "payments", IsAuthenticated: true}
			refused := 0
			for index := range keys {
				err := control.Authorize(t.Context(), caller, access.VerbCreate, func() v1alpha1.FullKey {
					return v1alpha1.FullKeyOf(fmt.Sprint("key-", index))
				})
				switch {
				case errors.Is(err, lock.ErrForbidden):
					refused++
				case err != nil:
					t.Fatal(err)
				}
			}
			if got := reviews.count.Load(); got != test.reviews || refused != test.refused {
				t.Errorf("%d reviews, %d refused; want %d and %d", got, refused, test.reviews, test.refused)
			}
		})
	}
}
