package e2e_test

import (
	"context"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/creack/pty"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/kubelet"
)

// screenshots is where README has its pictures, from the module's root.
const screenshots = "docs/images"

var _ = Describe("the pictures of README", Ordered, func() {
	var (
		kubectl *plugin
		worker  client.Client
		pods    corev1client.PodInterface
		logs    *kubelet.Logs
	)
	BeforeAll(func(ctx context.Context) {
		kubectl = installPlugin(ctx, shared.kubeconfig)
		clientset, err := kubernetes.NewForConfig(shared.config())
		Expect(err).NotTo(HaveOccurred())
		nodes, err := kubelet.Start(ctx, clientset)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(nodes.Stop)
		logs, err = kubelet.ServeLogs(ctx, clientset, kubelet.NodeName)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			logs.Stop()
			Expect(clientset.CoreV1().Nodes().Delete(ctx, kubelet.NodeName, metav1.DeleteOptions{})).To(Succeed())
		})
		pods = clientset.CoreV1().Pods("payments")

		_, err = shared.kubectl.Run(ctx, pictured, "apply", "--server-side", "-f", "-")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx context.Context) {
			_, err := shared.kubectl.Run(ctx, "", "delete", "namespace", "payments", "--wait=false")
			Expect(err).NotTo(HaveOccurred())
		})
		as := func(user string) client.Client {
			GinkgoHelper()
			config := shared.config()
			config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
			made, err := client.New(config, client.Options{Scheme: admin.Scheme()})
			Expect(err).NotTo(HaveOccurred())
			return made
		}
		worker = as("system:serviceaccount:payments:worker")
		Expect(as("alice@example.com").Create(ctx, lockOf("billing:close", "closing October", time.Hour))).To(Succeed())
		Expect(worker.Create(ctx, lockOf("orders:import", "shop 17", 2*time.Minute))).To(Succeed())
		Expect(worker.Create(ctx, lockOf("orders:export", "shop 4", 90*time.Second))).To(Succeed())
	})

	It("has the screen of who", func(ctx context.Context) {
		Eventually(func(g Gomega, ctx context.Context) {
			nightly, err := pods.List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=nightly"})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(nightly.Items).To(HaveLen(1))
			logs.Write("payments", nightly.Items[0].Name, "report", time.Now(), "page 17")
		}).WithContext(ctx).WithTimeout(startTimeout).Should(Succeed())
		var shown string
		Eventually(func(ctx context.Context) string {
			shown = kubectl.succeed(ctx, "who", "billing:report", "-n", "payments")
			return shown
		}).WithContext(ctx).WithTimeout(startTimeout).Should(And(
			ContainSubstring("Job/nightly"), MatchRegexp(`Running on node.*, last log line ([3-9]|[1-9][0-9]+)s ago`), ContainSubstring("2. Job/"), ContainSubstring("What you may do now"),
		))
		draw("who.svg", "$ kubectl lock who billing:report -n payments\n"+shown)
	})

	It("has the screen of top", func(ctx context.Context) {
		working, stop := context.WithCancel(ctx)
		worked := make(chan struct{})
		go func() {
			defer close(worked)
			work(working, worker)
		}()
		defer func() { stop(); <-worked }()
		screen := onTerminal(ctx, kubectl, "top", "-n", "payments")
		Expect(pty.Setsize(screen.file, &pty.Winsize{Rows: 24, Cols: 100})).To(Succeed())
		var frame string
		Eventually(func() string {
			frame = lastFrame(screen.text())
			return frame
		}).WithTimeout(startTimeout).Should(And(
			ContainSubstring("Job/nightly"), ContainSubstring("alice@example.com"), ContainSubstring("cards:settle"), ContainSubstring("Jobs waiting 2"), MatchRegexp(`acquired [1-9]`),
		))
		screen.write("q")
		Eventually(screen.ended).WithTimeout(stopTimeout).Should(BeClosed())
		draw("top.svg", frame)
	})
})

// pictured is a namespace with a Job that holds a lock, and two that wait for it.
var pictured = func() string {
	documents := []string{"apiVersion: v1\nkind: Namespace\nmetadata: {name: payments}\n"}
	for _, name := range []string{"nightly", "monthly-close", "audit-export"} {
		documents = append(documents, fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata:
  name: %s
  namespace: payments
  labels: {forrst.dev/lock: "true"}
  annotations: {forrst.dev/lock-key: "billing:report"}
spec:
  template:
    metadata: {annotations: {%s: forever}}
    spec:
      restartPolicy: Never
      containers: [{name: report, image: "busybox:1.37", command: [sleep, "3600"]}]
`, name, kubelet.RunFor))
	}
	return strings.Join(documents, "---\n")
}()

// work acquires and releases a lock until ctx ends.
func work(ctx context.Context, worker client.Client) {
	defer GinkgoRecover()
	for ctx.Err() == nil {
		lock := lockOf("cards:settle", "batch 112", 30*time.Second)
		Expect(worker.Create(context.WithoutCancel(ctx), lock)).To(Succeed())
		Expect(worker.Delete(context.WithoutCancel(ctx), lock)).To(Succeed())
	}
}

func lockOf(key, reason string, ttl time.Duration) *v1alpha1.Lock {
	return &v1alpha1.Lock{
		ObjectMeta: metav1.ObjectMeta{Namespace: "payments", Name: v1alpha1.FullKeyOf(key).ObjectName()},
		Spec:       v1alpha1.LockSpec{Key: key, Owner: "by-hand", TTL: &v1alpha1.Duration{Duration: ttl}, Reason: reason},
	}
}

// lastFrame returns the last whole screen that a program has drawn, without what erases the one before.
func lastFrame(text string) string {
	frames := strings.Split(text, "\x1b[H")
	if len(frames) < 3 { // The first part is not a frame, and the last one may be incomplete.
		return ""
	}
	frame := regexp.MustCompile("\x1b\\[[?0-9;]*[A-Za-ln-z]").ReplaceAllString(frames[len(frames)-2], "")
	return strings.ReplaceAll(frame, "\r\n", "\n")
}

// draw writes a screen as a picture if the environment has SCREENSHOTS, as "make pictures"
// sets it. What is written is checked in, and README shows it.
func draw(name, text string) {
	GinkgoHelper()
	if os.Getenv("SCREENSHOTS") == "" {
		return
	}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	width := 0
	for _, line := range lines {
		width = max(width, len([]rune(line)))
	}
	const (
		column, row = 8.43, 19.0
		margin      = 16.0
	)
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" role="img">`+"\n", float64(width)*column+2*margin, float64(len(lines))*row+2*margin)
	fmt.Fprintln(&svg, `<rect width="100%" height="100%" rx="8" fill="#17202a"/>`)
	fmt.Fprintln(&svg, `<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="14" fill="#e5e9ec">`)
	for index, line := range lines {
		if line == "" {
			continue
		}
		style := ""
		if index == 0 {
			style = ` fill="#8fd3fe" font-weight="bold"`
		}
		fmt.Fprintf(&svg, `<text x="%.0f" y="%.0f" xml:space="preserve" textLength="%.1f"%s>`, margin, margin+float64(index+1)*row-5, float64(len([]rune(line)))*column, style)
		Expect(xml.EscapeText(&svg, []byte(line))).To(Succeed())
		fmt.Fprintln(&svg, `</text>`)
	}
	fmt.Fprintln(&svg, "</g>\n</svg>")
	folder := filepath.Join(root, screenshots)
	Expect(os.MkdirAll(folder, 0o755)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(folder, name), []byte(svg.String()), 0o644)).To(Succeed())
}
