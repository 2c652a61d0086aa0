package process_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

// A process takes baseBytes without locks and Jobs, whatever the scale, and cachedBytes with all that the
// shipped bounds permit in one namespace: far less than the shipped limit, which has room for callers.
const (
	baseBytes   = 64 << 20
	cachedBytes = 512 << 20
)

// memoryLimit returns the scaled memory limit, which is never above that of the shipped Deployment.
func memoryLimit() int64 {
	GinkgoHelper()
	files, err := filepath.Glob("../../config/manager/*.yaml")
	Expect(err).NotTo(HaveOccurred())
	for _, file := range files {
		content, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		var deployment appsv1.Deployment
		Expect(yaml.Unmarshal(content, &deployment)).To(Succeed())
		if deployment.Kind != "Deployment" {
			continue
		}
		container := deployment.Spec.Template.Spec.Containers[0]
		if strings.Contains(strings.Join(container.Args, " "), "facade") {
			shipped := container.Resources.Limits.Memory().Value()
			return min(shipped, baseBytes+int64(scale()*cachedBytes))
		}
	}
	Fail("no Deployment in config/manager runs the façade")
	return 0
}

// scale is the part of the shipped bounds, and of the memory for them, that the suite runs with.
// MEMORY_SCALE=1 takes some minutes, and more than a GiB of etcd.
func scale() float64 {
	text := os.Getenv("MEMORY_SCALE")
	if text == "" {
		return 0.1
	}
	parsed, err := strconv.ParseFloat(text, 64)
	Expect(err).NotTo(HaveOccurred(), "MEMORY_SCALE")
	return parsed
}

// cage is what the kernel enforces the memory limit of a process with.
type cage struct {
	// prefix starts a command in the cage.
	prefix []string
	// peak returns the most memory that was in use, or 0 if it is not known.
	peak func() int64
}

// newCage returns a memory cgroup, of either version, or where there is none to be had a limit of the
// process's own data, which is no less strict.
func newCage(limit int64) cage {
	GinkgoHelper()
	name := fmt.Sprintf("lock-operator-memory-%d-%d", os.Getpid(), time.Now().UnixNano())
	for _, version := range []struct{ root, limit, swap, peak string }{
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "", "memory.max_usage_in_bytes"},
		{"/sys/fs/cgroup", "memory.max", "memory.swap.max", "memory.peak"},
	} {
		group := filepath.Join(version.root, name)
		if os.Mkdir(group, 0o755) != nil {
			continue
		}
		if os.WriteFile(filepath.Join(group, version.limit), []byte(strconv.FormatInt(limit, 10)), 0o600) != nil {
			_ = os.Remove(group) // It is no memory cgroup.
			continue
		}
		if version.swap != "" {
			_ = os.WriteFile(filepath.Join(group, version.swap), []byte("0"), 0o600)
		}
		DeferCleanup(func() { Eventually(func() error { return os.Remove(group) }).Should(Succeed()) })
		return cage{
			prefix: []string{"/bin/sh", "-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(group, "cgroup.procs")},
			peak: func() int64 {
				text, err := os.ReadFile(filepath.Join(group, version.peak))
				if err != nil {
					return 0
				}
				bytes, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
				return bytes
			},
		}
	}
	GinkgoWriter.Println("no memory cgroup can be made: the data of the process is limited instead")
	return cage{
		prefix: []string{"/bin/sh", "-c", `ulimit -d "$0" && exec "$@"`, strconv.FormatInt(limit>>10, 10), "/usr/bin/env", "-u", "GOGC", fmt.Sprintf("GOMEMLIMIT=%d", limit/10*9)},
		peak:   func() int64 { return 0 },
	}
}

// operator is a process of the shipped program in a cage.
type operator struct {
	*gexec.Session

	url string
}

// startOperator starts all components as the manifests do, and returns when the process is ready. It ends
// with the spec.
func startOperator(ctx context.Context, in cage, flags ...string) *operator {
	GinkgoHelper()
	program, err := testenv.Build(ctx, "cmd/lock-operator")
	Expect(err).NotTo(HaveOccurred())
	facade, probes := fixture.FreeAddress(ctx), fixture.FreeAddress(ctx)
	arguments := append(append([]string{}, in.prefix[1:]...), program,
		"--components=controller,webhook,facade", "--leader-elect=false", "--clock-skew-allowance=0s", // There is one clock.
		"--facade-bind-address="+facade, "--facade-auth=token", "--facade-shutdown-delay=0s", "--audit-log=",
		"--kubeconfig="+environment.Operator().Kubectl.Kubeconfig(), "--health-probe-bind-address="+probes)
	arguments = append(append(arguments, webhookFlags...), flags...)
	session, err := gexec.Start(exec.Command(in.prefix[0], arguments...), GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	started := &operator{Session: session, url: "http://" + facade}
	DeferCleanup(started.stop)
	Eventually(func(g Gomega) {
		g.Expect(session.ExitCode()).To(Equal(-1), "the process has ended: %s", session.Err.Contents())
		response, err := http.Get("http://" + probes + "/readyz") //nolint:noctx // it ends with the process
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(response.Body.Close()).To(Succeed())
		g.Expect(response.StatusCode).To(Equal(http.StatusOK))
	}).WithContext(ctx).Should(Succeed())
	return started
}

func (o *operator) stop() {
	GinkgoHelper()
	o.Terminate()
	Eventually(o.Session).Should(gexec.Exit())
}

// expectAlive fails if the kernel has killed the process, or it has ended by itself.
func (o *operator) expectAlive() {
	GinkgoHelper()
	Expect(o.ExitCode()).To(Equal(-1), "the process has ended: %s", o.Err.Contents())
}
