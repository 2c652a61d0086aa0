package guard_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A sender that the server of the webhook has not verified may have invented the user and the object.
func TestRefusalsNameNoLockToSendersThatAreNotVerified(t *testing.T) {
	lock := guarded(t, "deploy:web")
	update := request(t, admissionv1.Update, configMaps, settings(), settings())
	update.Name, update.UserInfo.Username = "settings", bob
	for name, test := range map[string]struct {
		live client.Reader
		code int32
		want string
	}{
		"a guard":                       {want: "it is guarded by a lock, which users who may read locks find with kubectl get locks", code: http.StatusForbidden},
		"a lock that could not be read": {live: away{}, want: "could not be found out: try again", code: http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, []client.Object{lock}, []client.Object{lock})
			if test.live != nil {
				w.admission.LiveReader = test.live
			}
			answer := w.admission.Handle(t.Context(), update)
			text, err := json.Marshal(answer)
			if err != nil {
				t.Fatal(err)
			}
			for _, secret := range []string{lock.Name, "deploy", alice, "deployer", "2026", "token-a", "rollout"} {
				if strings.Contains(string(text), secret) {
					t.Errorf("%q is told: %s", secret, text)
				}
			}
			if answer.Allowed || answer.Result.Code != test.code || !strings.Contains(answer.Result.Message, test.want) {
				t.Errorf("got %s", text)
			}
		})
	}
}

// away is an API server that does not answer.
type away struct{ client.Reader }

// Get implements [client.Reader].
func (away) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return errors.New("no answer about " + key.String())
}
