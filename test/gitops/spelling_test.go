package gitops_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	facadeclient "forrst.dev/lock-operator/facade/client"
	"forrst.dev/lock-operator/lock"
	"forrst.dev/lock-operator/lock/engine"
	"forrst.dev/lock-operator/lock/locktoken"
	"forrst.dev/lock-operator/lock/rules"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testfacade"
)

// secret is what the lock token of a caller of the REST door proves a grant by.
var secret = locktoken.NewSecret()

// Tools compare texts: what is read and written again must come back as the manifest spells it.
var _ = Describe("A Lock whose manifest spells durations in its own way", func() {
	const key = "gitops:spelling"

	byBackend := func(ctx context.Context, backend lock.Backend) {
		GinkgoHelper()
		must(backend.Renew(ctx, "default", v1alpha1.FullKeyOf(key), lock.Proof{Owner: "repository"}, 0))
		must(backend.Renew(ctx, "default", v1alpha1.FullKeyOf(key), lock.Proof{Owner: "repository"}, time.Hour))
	}

	for _, way := range ways {
		DescribeTable("shows no difference after a renewal, with "+way.name+", by", func(ctx context.Context, owner string, renew func(context.Context, *v1alpha1.Lock)) {
			template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "work", Image: "work"}},
			}}
			job := &batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "holder-"},
				Spec:       batchv1.JobSpec{Suspend: new(true), Template: template},
			}
			Expect(admin.Create(ctx, job)).To(Succeed())
			path, name := folder(key, "  owner: "+owner+"\n  ttl: 60m\n  releaseDelay: 24h\n"+
				"  holderRef: {apiVersion: batch/v1, kind: Job, name: "+job.Name+", uid: "+string(job.UID)+"}\n")
			must(way.apply(ctx, kubectl[flux], path))
			first := get(ctx, name)
			renew(ctx, first)

			before := stored(ctx, name)
			Expect(get(ctx, name).Spec.RenewTime.After(first.Spec.RenewTime.Time)).To(BeTrue())
			Expect(before).To(And(ContainSubstring("ttl: 60m\n"), ContainSubstring("releaseDelay: 24h\n")))
			Expect(must(way.diff(ctx, kubectl[flux], path))).To(BeEmpty())
			must(way.apply(ctx, kubectl[flux], path))
			Expect(stored(ctx, name)).To(Equal(before), "the same manifest, applied again")

			By("recording the end of the holder's object")
			Expect(admin.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
			Eventually(func(ctx context.Context) *v1alpha1.Timestamp { return get(ctx, name).Spec.HolderEndTime }).
				WithContext(ctx).WithTimeout(timeout).ShouldNot(BeNil())
			Expect(stored(ctx, name)).To(And(ContainSubstring("ttl: 60m\n"), ContainSubstring("releaseDelay: 24h\n")))
		},
			Entry("the REST door", rules.HashedOwner(secret[:], secret.IsDerived()), func(ctx context.Context, held *v1alpha1.Lock) {
				token := locktoken.Token{Secret: secret, FencingToken: must(held.FencingToken())}.Text("default", v1alpha1.FullKeyOf(key))
				url := environment.StartFacade(ctx, "default", func(s *testfacade.Settings) { s.Access = fixture.SingleUser(flux) })
				request := must(http.NewRequestWithContext(ctx, http.MethodPut,
					url+"/v1/namespaces/default/locks/"+key, strings.NewReader(`{"ttl_seconds":3600}`)))
				request.Header.Set("Content-Type", "application/json")
				request.Header.Set(locktoken.Header, token)
				response := must(http.DefaultClient.Do(request))
				answer := must(io.ReadAll(response.Body))
				Expect(response.Body.Close()).To(Succeed())
				Expect(response.StatusCode).To(Equal(http.StatusOK), "%s", answer)
			}),
			Entry("the Forrst door", "repository", func(ctx context.Context, _ *v1alpha1.Lock) {
				backend := must(facadeclient.New(environment.StartFacade(ctx, "default")))
				defer backend.Close()
				byBackend(ctx, backend)
			}),
			Entry("the SDK without a façade", "repository", func(ctx context.Context, _ *v1alpha1.Lock) {
				config, _, err := environment.User(flux, "system:serviceaccounts", "system:authenticated")
				Expect(err).NotTo(HaveOccurred())
				direct := must(engine.NewDirect(config, "default", logr.Discard()))
				running, stop := context.WithCancel(ctx)
				ended := make(chan error, 1)
				go func() { ended <- direct.Start(running) }()
				byBackend(ctx, direct)
				stop()
				Eventually(ended).WithTimeout(timeout).Should(Receive())
			}),
		)
	}
})
