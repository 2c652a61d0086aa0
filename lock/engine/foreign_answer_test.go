package engine_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/uuid"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/lock/apianswers"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
)

// A proxy may answer by itself a create that it has passed on.
func TestAGrantBehindTheAnswerOfAProxyIsFound(t *testing.T) {
	for _, code := range []int{http.StatusForbidden, http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			var stored v1alpha1.Lock
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					if err := json.NewDecoder(r.Body).Decode(&stored); err != nil {
						t.Error(err)
					}
					stored.UID, stored.ResourceVersion = "u", "1"
					http.Error(w, "by a proxy", code)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(&stored)
			}))
			defer server.Close()
			config := &rest.Config{Host: server.URL}
			config.Wrap(apianswers.RoundTripper)
			client, err := rest.HTTPClientFor(config)
			if err != nil {
				t.Fatal(err)
			}
			objects, err := engine.NewObjectClient(config, client)
			if err != nil {
				t.Fatal(err)
			}
			here := startWith(t, engine.Options{Objects: objects.Locks, Informer: newEtcd(), Limits: rules.DefaultLimits()})
			request := waiting(uuid.NewString(), 0)
			request.TTL = time.Hour
			granted, err := here.Acquire(t.Context(), "default", request)
			if err != nil || granted.UID != stored.UID {
				t.Errorf("got %v, %v", granted, err)
			}
		})
	}
}
