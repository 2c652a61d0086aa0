package traces_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/peers"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/lock/line"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

const facadeAudience = "locks"

// pair is a façade of two replicas that share lines: Alice's door and Bob's.
type pair struct {
	alices, bobs string
	programs     []*gexec.Session
}

// startPair starts two replicas. Each names itself in its spans.
func startPair(ctx context.Context) *pair {
	GinkgoHelper()
	folder := GinkgoT().TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(folder, name)
		Expect(os.WriteFile(path, content, 0o600)).To(Succeed())
		return path
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: testenv.OperatorNamespace, Name: testenv.Installed("lock-operator")}}
	certificate, key, err := cert.GenerateSelfSignedCertKey(account.Name+"."+account.Namespace+".svc", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	Expect(err).NotTo(HaveOccurred())
	// Other specs leave the webhook's configuration behind: only the operator's own account is not reviewed.
	identity := environment.Operator()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{peers.Audience}}}
	Expect(environment.Admin.Client.SubResource("token").Create(ctx, account, request)).To(Succeed())
	certFile, keyFile, token := write("tls.crt", certificate), write("tls.key", key), write("token", []byte(request.Status.Token))
	addresses := map[string]string{alicesReplica: fixture.FreeAddress(ctx), bobsReplica: fixture.FreeAddress(ctx)}
	var members strings.Builder
	for name, address := range addresses {
		fmt.Fprintf(&members, "%s: %s\n", name, address)
	}
	file := write("members", []byte(members.String()))
	started := &pair{alices: fixture.FreeAddress(ctx), bobs: fixture.FreeAddress(ctx)}
	for name, door := range map[string]string{alicesReplica: started.alices, bobsReplica: started.bobs} {
		GinkgoT().Setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id="+name)
		started.programs = append(started.programs, fixture.StartOperator(ctx, identity.Kubectl,
			"--components=facade", "--metrics-bind-address=0", "--audit-log=", "--leader-election-namespace="+account.Namespace,
			"--facade-bind-address="+door, "--facade-tls-cert-file="+certFile, "--facade-tls-key-file="+keyFile,
			"--facade-audiences="+facadeAudience, "--facade-shutdown-delay=0s",
			"--peers-bind-address="+addresses[name], "--peers-service="+account.Name, "--peers-file="+file, "--peers-replica="+name,
			"--peers-token-file="+token, "--peers-authority-file="+certFile))
	}
	for _, program := range started.programs {
		Eventually(program.Err).WithContext(ctx).WithTimeout(patience).Should(gbytes.Say("Sharing lines.*" + alicesReplica + ".*" + bobsReplica))
	}
	return started
}

const alicesReplica, bobsReplica = "facade-a", "facade-b"

// keysAt returns so many keys whose lines have the home.
func keysAt(home string, count int) (keys []string) {
	for i := 0; len(keys) < count; i++ {
		key := fmt.Sprintf("key-%d", i)
		if line.HomeOf(types.NamespacedName{Namespace: namespace, Name: v1alpha1.FullKeyOf(key).ObjectName()}, []string{alicesReplica, bobsReplica}) == home {
			keys = append(keys, key)
		}
	}
	return keys
}

// traceOf returns the identifier of a trace: its letter, and the number of the round at its end.
func traceOf(all string, round int) string { return all[1:] + strconv.Itoa(round) }

// at returns a caller with a service account of its own at a replica.
func at(ctx context.Context, door, name, traceID string) caller {
	GinkgoHelper()
	who := worker(ctx, "https://"+door, name, traceID, everything...)
	who.token = tokenOf(ctx, name, facadeAudience)
	return who
}

// stands reports whether a caller stands in the line of the lock.
func stands(ctx context.Context, who caller, path string) bool {
	GinkgoHelper()
	status, answer := who.do(ctx, http.MethodGet, path+"/waiters", "", "Traceparent", "")
	Expect(status).To(Equal(http.StatusOK), "%s", answer)
	var listed wire.Waiters
	Expect(json.Unmarshal(answer, &listed)).To(Succeed())
	return len(listed.Waiters) == 1
}

var _ = Describe("Replicas that share lines", func() {
	for _, home := range []string{alicesReplica, bobsReplica} {
		for _, test := range []struct{ of, acquisition, query, name string }{
			{of: "a call that does not wait", acquisition: `{"ttl_seconds":60}`, name: "rest release"},
			{of: "a call that may wait", acquisition: `{"ttl_seconds":60,"wait_seconds":30}`, name: "rest release"},
			{of: "a call that does not wait, by force", acquisition: `{"ttl_seconds":60}`, query: "?force=true&reason=stuck", name: "rest force_release"},
		} {
			It("link the wait of a caller at one to the release at the other, of the grant to "+test.of+": home is "+home, func(ctx context.Context) {
				received := collect(ctx, "grpc")
				replicas := startPair(ctx)
				alice, bob := at(ctx, replicas.alices, "alice", ofAlice), at(ctx, replicas.bobs, "bob", ofBob)
				// The word about a release is sent ahead of it, and seldom comes after it.
				keys := keysAt(home, 4)
				var secrets []string
				for round, key := range keys {
					path := "/v1/namespaces/" + namespace + "/locks/" + key
					alice.traceID, bob.traceID = ofAlice, traceOf(ofBob, round)
					status, answer := alice.do(ctx, http.MethodPost, path, test.acquisition)
					Expect(status).To(Equal(http.StatusCreated), "%s", answer)
					tokenOfAlice := tokenIn(answer)

					granted := make(chan string, 1)
					go func() {
						defer GinkgoRecover()
						defer close(granted)
						status, answer := bob.do(ctx, http.MethodPost, path, `{"ttl_seconds":60,"wait_seconds":30}`)
						Expect(status).To(Equal(http.StatusCreated), "%s", answer)
						granted <- tokenIn(answer)
					}()
					Eventually(func() bool { return stands(ctx, bob, path) }).WithContext(ctx).WithTimeout(patience).Should(BeTrue())

					alice.traceID = traceOf(ofCarol, round)
					headers := []string{"X-Lock-Token", tokenOfAlice}
					if test.query != "" {
						headers = nil // A forced release needs no proof.
					}
					status, answer = alice.do(ctx, http.MethodDelete, path+test.query, "", headers...)
					Expect(status).To(Equal(http.StatusNoContent), "%s", answer)
					secrets = append(secrets, tokenOfAlice, <-granted)
				}
				for _, program := range replicas.programs {
					program.Terminate().Wait(patience)
				}

				linked := 0
				for round := range keys {
					released := treeOf(received, traceOf(ofCarol, round)).only(test.name)
					Expect(released.Resource).To(HaveKeyWithValue("service.instance.id", alicesReplica))
					waited := treeOf(received, traceOf(ofBob, round))
					Expect(waited.only("rest acquire").Resource).To(HaveKeyWithValue("service.instance.id", bobsReplica))
					wait := waited.only("wait")
					Expect(wait.Resource).To(HaveKeyWithValue("service.instance.id", home), "the home hands the lock on")
					Expect(hex.EncodeToString(wait.GetParentSpanId())).To(Equal(hex.EncodeToString(waited.only("rest acquire").GetSpanId())))
					if len(wait.GetLinks()) > 0 {
						expectLink(wait, released)
						linked++
					}
				}
				Expect(linked).To(BeNumerically(">", 0))
				for _, secret := range secrets {
					Expect(strings.Contains(string(received.Bytes()), secret)).To(BeFalse(), "a lock token was sent")
				}
			})
		}
	}
})
