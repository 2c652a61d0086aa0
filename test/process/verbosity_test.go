package process_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/facade/forrst/wire"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/audit"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

// bodyMarker is in the bodies of requests, and in nothing that the operator has to tell.
const bodyMarker = "marker-of-a-body"

// account returns a namespace and the token of its service account, which may use its locks, and force
// releases.
func account(ctx context.Context) (namespace, token string) {
	GinkgoHelper()
	namespace = environment.Namespace(ctx, "verbosity-")
	environment.AllowWorkers(ctx, namespace)
	Expect(environment.Admin.Client.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "force"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "lock-administrators"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: fixture.Worker}},
	})).To(Succeed())
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "worker"},
		Spec: corev1.PodSpec{
			ServiceAccountName: fixture.Worker, RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: "work", Image: "work"}},
		},
	}
	Expect(environment.Admin.Client.Create(ctx, pod)).To(Succeed())
	return namespace, environment.WorkerToken(ctx, pod, audience)
}

// send sends a request to the façade and returns the body of the answer, which must have the status.
func send(ctx context.Context, status int, token, method, path, body string, headers ...string) string {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, method, facadeURL+path, strings.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+token)
	for index := 0; index < len(headers); index += 2 {
		request.Header.Set(headers[index], headers[index+1])
	}
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	text, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	Expect(response.Body.Close()).To(Succeed())
	Expect(response.StatusCode).To(Equal(status), "%s", text)
	return string(text)
}

// forrst calls a function of the Forrst door.
func forrst(ctx context.Context, status int, token, namespace, function, arguments string) {
	GinkgoHelper()
	send(ctx, status, token, http.MethodPost, "/forrst/"+namespace,
		fmt.Sprintf(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":%q,"call":{"function":%q,"arguments":%s}}`, bodyMarker, function, arguments))
}

// ownerOf returns the owner token of a lock.
func ownerOf(ctx context.Context, namespace, key string) string {
	GinkgoHelper()
	stored := &v1alpha1.Lock{}
	name := client.ObjectKey{Namespace: namespace, Name: v1alpha1.FullKeyOf(key).ObjectName()}
	Eventually(func() error { return environment.Admin.Client.Get(ctx, name, stored) }).Should(Succeed())
	return stored.Spec.Owner
}

var _ = Describe("The operator's process at the highest verbosity", func() {
	It("tells no token and no body, through any door", func(ctx context.Context) {
		startLoud(ctx)
		namespace, token := account(ctx)
		const invalid = "invalid-bearer-token-of-the-test"
		secrets := []string{token, token[strings.LastIndex(token, ".")+1:], invalid, "owner-of-forrst", "owner-of-kubectl", "owner-of-mallory", "idempotency-key-of-the-test", bodyMarker}

		By("the Forrst door")
		const acquireFunction, releaseFunction, statusFunction = wire.Acquire, wire.Release, wire.Status
		forrst(ctx, http.StatusOK, token, namespace, acquireFunction, `{"key":"of-forrst","owner":"owner-of-forrst","ttl":{"value":60,"unit":"second"}}`)
		forrst(ctx, http.StatusOK, token, namespace, statusFunction, `{"key":"of-forrst"}`)
		forrst(ctx, http.StatusForbidden, token, namespace, releaseFunction, `{"key":"of-forrst","owner":"owner-of-mallory"}`)
		forrst(ctx, http.StatusOK, token, namespace, releaseFunction, `{"key":"of-forrst","owner":"owner-of-forrst"}`)
		forrst(ctx, http.StatusUnauthorized, invalid, namespace, statusFunction, `{"key":"of-forrst"}`)

		By("the REST door")
		locks := "/v1/namespaces/" + namespace + "/locks/"
		var granted struct {
			LockToken string `json:"lock_token"`
		}
		Expect(json.Unmarshal([]byte(send(ctx, http.StatusCreated, token, http.MethodPost, locks+"of-rest", `{"ttl_seconds":60}`,
			"Idempotency-Key", "idempotency-key-of-the-test")), &granted)).To(Succeed())
		secrets = append(secrets, granted.LockToken, ownerOf(ctx, namespace, "of-rest"))
		send(ctx, http.StatusOK, token, http.MethodPut, locks+"of-rest", `{"ttl_seconds":60}`, "X-Lock-Token", granted.LockToken)
		send(ctx, http.StatusNotFound, token, http.MethodDelete, locks+"of-others", "", "X-Lock-Token", granted.LockToken)
		send(ctx, http.StatusNoContent, token, http.MethodDelete, locks+"of-rest?force=true&reason=it+hangs", "")

		By("direct writes")
		marked := func(lock *v1alpha1.Lock) {
			lock.Spec.Owner, lock.Annotations = "owner-of-kubectl", map[string]string{"example.com/marker": bodyMarker}
		}
		direct := fixture.Manifest(namespace, "of-kubectl", marked)
		Expect(worker.Client.Create(ctx, direct)).To(Succeed())
		Expect(flooder.Client.Create(ctx, fixture.Manifest(namespace, "of-kubectl", marked))).NotTo(Succeed())
		Expect(flooder.Client.Delete(ctx, direct)).NotTo(Succeed())
		direct.Annotations[v1alpha1.ForceReleaseReasonAnnotation] = "it hangs"
		Expect(administrator.Client.Update(ctx, direct)).To(Succeed())
		Expect(administrator.Client.Delete(ctx, direct)).To(Succeed())

		By("a program with the SDK")
		program, err := engine.NewDirect(worker.Config, namespace, logr.Discard())
		Expect(err).NotTo(HaveOccurred())
		running, stop := context.WithCancel(context.WithoutCancel(ctx))
		ended := make(chan error, 1)
		go func() { ended <- program.Start(running) }()
		DeferCleanup(func() {
			stop()
			Expect(<-ended).NotTo(HaveOccurred())
		})
		held, err := program.Acquire(ctx, namespace, lock.Request{Acquisition: rules.Acquisition{Key: "of-sdk", Owner: lock.NewOwner(), TTL: time.Minute}})
		Expect(err).NotTo(HaveOccurred())
		secrets = append(secrets, held.Spec.Owner)
		Expect(program.Release(ctx, namespace, held.Spec.FullKey(), lock.Proof{Owner: held.Spec.Owner})).To(Succeed())

		By("a Job")
		job := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: "locked", Labels: map[string]string{v1alpha1.LockLabel: "true"},
				Annotations: map[string]string{v1alpha1.LockKeyAnnotation: "of-job", "example.com/marker": bodyMarker},
			},
			Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "work", Image: "work"}},
			}}},
		}
		refused := job.DeepCopy()
		refused.Annotations[v1alpha1.LockTTLAnnotation] = "never"
		Expect(environment.Admin.Client.Create(ctx, refused)).NotTo(Succeed())
		Expect(environment.Admin.Client.Create(ctx, job)).To(Succeed())
		secrets = append(secrets, ownerOf(ctx, namespace, "of-job"))

		By("searching all output")
		of := func(key string, event audit.Event, reason audit.Reason) func() []audit.Record {
			return func() []audit.Record {
				return recorded(func(r audit.Record) bool {
					return r.Namespace == namespace && r.Key == key && r.Event == event && r.Reason == reason
				})
			}
		}
		Eventually(of("of-job", audit.Granted, "")).Should(HaveLen(1))
		Eventually(of("of-kubectl", audit.ForceReleased, audit.ByForce)).Should(HaveLen(1))
		Eventually(of("of-rest", audit.ForceReleased, audit.ByForce)).Should(HaveLen(1))
		Eventually(of("of-forrst", audit.Refused, audit.WrongOwner)).Should(ContainElement(HaveField("Door", "forrst")))
		Eventually(of("of-job", audit.Refused, audit.Invalid)).Should(ContainElement(HaveField("Object.Resource", "jobs")))
		Eventually(func() []audit.Record {
			return recorded(func(r audit.Record) bool { return r.Reason == audit.Unauthenticated })
		}).Should(ContainElement(HaveField("Client", "127.0.0.1/32")))
		// A line of the highest verbosity that is logged shows that the flag counts.
		Eventually(process.Err.Contents).Should(ContainSubstring("wrote response"))
		for _, output := range [][]byte{process.Out.Contents(), process.Err.Contents()} {
			for _, secret := range secrets {
				Expect(len(secret)).To(BeNumerically(">", 8))
				Expect(bytes.Contains(output, []byte(secret))).To(BeFalse(), "tells %.12s…", secret)
			}
		}
	})

	It("has no other flags of verbosity", func(ctx context.Context) {
		program, err := testenv.Build(ctx, "cmd/lock-operator")
		Expect(err).NotTo(HaveOccurred())
		for _, flag := range []string{"-v=10", "--vmodule=*=10"} {
			output, err := exec.CommandContext(ctx, program, flag).CombinedOutput()
			Expect(err).To(HaveOccurred())
			Expect(string(output)).To(ContainSubstring("flag provided but not defined"))
		}
	})
})
