package install_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"
)

var _ = Describe("The operator's namespace", func() {
	// submit asks the API server for the pod of a component's Deployment, changed.
	submit := func(ctx context.Context, component string, change func(*corev1.PodSpec)) error {
		GinkgoHelper()
		deployment := deploymentOf(rendered(ctx), component)
		clientset, err := kubernetes.NewForConfig(environment.Config)
		Expect(err).NotTo(HaveOccurred())
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "lock-operator"}, Spec: deployment.Spec.Template.Spec}
		change(&pod.Spec)
		_, err = clientset.CoreV1().Pods(deployment.Namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}

	It("admits the operator's pods", func(ctx context.Context) {
		for _, component := range components {
			Expect(submit(ctx, component, func(*corev1.PodSpec) {})).To(Succeed(), component)
		}
	})

	DescribeTable("refuses the operator's pods", func(ctx context.Context, change func(*corev1.PodSpec)) {
		for _, component := range components {
			Expect(submit(ctx, component, change)).To(MatchError(ContainSubstring(`violates PodSecurity "restricted:latest"`)), component)
		}
	},
		Entry("as root", func(p *corev1.PodSpec) { p.SecurityContext.RunAsNonRoot = nil }),
		Entry("without a seccomp profile", func(p *corev1.PodSpec) { p.SecurityContext.SeccompProfile = nil }),
		Entry("with a way to more privileges", func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil }),
		Entry("with capabilities", func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.Capabilities = nil }),
		Entry("on the network of its node", func(p *corev1.PodSpec) { p.HostNetwork = true }),
		Entry("with files of its node", func(p *corev1.PodSpec) {
			p.Volumes = append(p.Volumes, corev1.Volume{Name: "node", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}})
		}),
	)

	It("warns about and audits the pods that it refuses", func(ctx context.Context) {
		var namespace corev1.Namespace
		Expect(yaml.UnmarshalStrict(rendered(ctx)["Namespace/forrst-system"], &namespace)).To(Succeed())
		for _, mode := range []string{"enforce", "audit", "warn"} {
			Expect(namespace.Labels).To(HaveKeyWithValue("pod-security.kubernetes.io/"+mode, "restricted"))
			Expect(namespace.Labels).To(HaveKey("pod-security.kubernetes.io/" + mode + "-version"))
		}
	})
})
