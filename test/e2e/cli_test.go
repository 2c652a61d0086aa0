package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/creack/pty"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"forrst.dev/lock-operator/api/v1alpha1"
	clifailure "forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/test/support/testenv"
)

// plugin is kubectl with kubectl-lock on its PATH, and nothing of the environment that
// could lead it elsewhere.
type plugin struct {
	path, kubeconfig string
}

// installPlugin puts kubectl, the plugin and its completion into a folder.
func installPlugin(ctx context.Context, kubeconfig string) *plugin {
	GinkgoHelper()
	binary, err := testenv.Build(ctx, "cmd/kubectl-lock")
	Expect(err).NotTo(HaveOccurred())
	folder := GinkgoT().TempDir()
	for name, target := range map[string]string{
		"kubectl": filepath.Join(testenv.Assets(root), "kubectl"), "kubectl-lock": binary, "kubectl_complete-lock": binary,
	} {
		absolute, err := filepath.Abs(target)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.Symlink(absolute, filepath.Join(folder, name))).To(Succeed())
	}
	return &plugin{path: folder, kubeconfig: kubeconfig}
}

func (p *plugin) environment() []string {
	return []string{"PATH=" + p.path + ":/usr/bin:/bin", "KUBECONFIG=" + p.kubeconfig, "HOME=" + p.path}
}

// run runs "kubectl lock" and returns what it printed, and its exit status.
func (p *plugin) run(ctx context.Context, arguments ...string) (output string, status int) {
	GinkgoHelper()
	command := exec.CommandContext(ctx, filepath.Join(p.path, "kubectl"), append([]string{"lock"}, arguments...)...)
	command.Env = p.environment()
	var printed bytes.Buffer
	command.Stdout, command.Stderr = &printed, &printed
	if err := command.Run(); err != nil {
		Expect(err).To(BeAssignableToTypeOf(&exec.ExitError{}), printed.String())
	}
	return printed.String(), command.ProcessState.ExitCode()
}

func (p *plugin) succeed(ctx context.Context, arguments ...string) string {
	GinkgoHelper()
	printed, status := p.run(ctx, arguments...)
	Expect(status).To(Equal(0), printed)
	return printed
}

var _ = Describe("kubectl lock", func() {
	// create has the administrator hold a lock.
	create := func(ctx context.Context, of *cluster, namespace, key string) *v1alpha1.Lock {
		GinkgoHelper()
		lock := &v1alpha1.Lock{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.FullKeyOf(key).ObjectName()},
			Spec:       v1alpha1.LockSpec{Key: key, Owner: "a-secret", TTL: &v1alpha1.Duration{Duration: 10 * time.Minute}, Reason: "monthly close"},
		}
		cluster := of.client()
		Expect(cluster.Create(ctx, lock)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { _ = cluster.Delete(ctx, lock) })
		return lock
	}

	for _, auth := range []string{"none", "token"} {
		Describe("with AUTH="+auth, Ordered, func() {
			var (
				own       *cluster
				kubectl   *plugin
				namespace string
				facade    []string
			)
			BeforeAll(func(ctx context.Context) {
				own, namespace = shared, "default"
				if auth == "token" {
					own, namespace = startCluster("--auth=token"), "payments"
				}
				kubectl = installPlugin(ctx, own.kubeconfig)
				facade = []string{"--server", own.facade}
				if auth == "token" {
					facade = append(facade, "--token-file", filepath.Join(own.dir, "worker.token"))
				}
			})

			It("lists, shows and waits", func(ctx context.Context) {
				lock := create(ctx, own, namespace, "cli:report")
				Expect(kubectl.succeed(ctx, "list", "-n", namespace)).To(MatchRegexp(`(?m)^cli:report +.* - +monthly close$`))
				Expect(kubectl.succeed(ctx, "ls", "-A", "--mine", "-o", "name")).To(ContainSubstring("lock.forrst.dev/cli--report"))
				Expect(kubectl.succeed(ctx, "list", "-n", namespace, "-o", "yaml")).NotTo(ContainSubstring("a-secret"))

				shown := kubectl.succeed(ctx, "who", "cli:report", "-n", namespace)
				Expect(shown).To(ContainSubstring("held by you"))
				Expect(shown).To(ContainSubstring("kubectl lock free cli:report -n " + namespace))
				Expect(shown).NotTo(ContainSubstring("Not known"))
				_, err := own.kubectl.Run(ctx, "", "create", "rolebinding", "carol", "-n", namespace, "--clusterrole="+testenv.Installed("lock-operator-view"), "--user=carol")
				Expect(err).NotTo(HaveOccurred())
				shown = kubectl.succeed(ctx, "who", "cli:report", "-n", namespace, "--as", "carol")
				Expect(shown).To(ContainSubstring("the Jobs that wait or stop: you may not read that"))
				Expect(shown).To(ContainSubstring("You may not end it by force"))

				_, status := kubectl.run(ctx, "wait", "cli:report", "-n", namespace, "--timeout", "2s")
				Expect(status).To(Equal(int(clifailure.Busy)))
				Expect(kubectl.succeed(ctx, "wait", "cli:report", "-n", namespace, "--for", "held")).To(Equal("cli:report is held\n"))
				Expect(kubectl.succeed(ctx, "top", "-n", namespace)).To(ContainSubstring("cli:report"))

				Expect(own.client().Delete(ctx, lock)).To(Succeed())
				Expect(kubectl.succeed(ctx, "wait", "cli:report", "-n", namespace)).To(Equal("cli:report is free\n"))
				Expect(kubectl.succeed(ctx, "who", "cli:report", "-n", namespace)).To(ContainSubstring("free: no holder"))
			})

			It("asks a façade, without a kubeconfig", func(ctx context.Context) {
				create(ctx, own, namespace, "cli:facade")
				alone := &plugin{path: kubectl.path, kubeconfig: "/nonexistent"}
				through := func(arguments ...string) string {
					GinkgoHelper()
					return alone.succeed(ctx, append(arguments, facade...)...)
				}
				Expect(through("list", "-n", namespace)).To(ContainSubstring("cli:facade"))
				Expect(through("who", "cli:facade", "-n", namespace)).To(ContainSubstring("Reason      monthly close"))
				Expect(through("wait", "cli:facade", "--for", "held", "-n", namespace)).To(Equal("cli:facade is held\n"))
				Expect(through("acquire", "cli:by-hand")).To(ContainSubstring("acquired"))
				Expect(through("renew", "cli:by-hand")).To(ContainSubstring("renewed"))
				Expect(through("release", "cli:by-hand")).To(ContainSubstring("released"))
				Expect(alone.succeed(ctx, slices.Concat([]string{"run", "cli:by-hand"}, facade, []string{"--", "echo", "started"})...)).To(Equal("started\n"))
			})

			It("takes a lock by hand, keeps it, gives it back and ends it by force", func(ctx context.Context) {
				Expect(kubectl.succeed(ctx, "acquire", "cli:hand", "-n", namespace, "--reason", "by hand")).To(HavePrefix("cli:hand acquired, fencing token "))
				Expect(kubectl.succeed(ctx, "renew", "cli:hand", "-n", namespace)).To(HavePrefix("cli:hand renewed"))
				completes(ctx, kubectl, "kubectl lock release -n "+namespace+" cli:h", "cli:hand")
				Expect(kubectl.succeed(ctx, "release", "cli:hand", "-n", namespace)).To(HavePrefix("cli:hand released"))

				Expect(kubectl.succeed(ctx, "acquire", "cli:hand", "-n", namespace, "--as", "carol", "--as-group", "system:masters")).To(ContainSubstring("acquired"))
				Expect(kubectl.succeed(ctx, "free", "cli:hand", "-n", namespace, "--reason", "her disk is full", "--yes")).To(ContainSubstring("cli:hand taken from carol by force"))
				Expect(kubectl.succeed(ctx, "who", "cli:hand", "-n", namespace)).To(ContainSubstring("free: no holder"))
			})

			It("runs a command under a lock", func(ctx context.Context) {
				Expect(kubectl.succeed(ctx, "run", "cli:run", "-n", namespace, "--", "sh", "-c", "echo under $FORRST_LOCK_KEY")).To(Equal("under cli:run\n"))
				create(ctx, own, namespace, "cli:run")
				printed, status := kubectl.run(ctx, "run", "cli:run", "-n", namespace, "--on-busy", "fail", "--", "echo", "started")
				Expect(status).To(Equal(int(clifailure.Busy)), printed)
				Expect(printed).NotTo(ContainSubstring("started"))
			})

			It("freezes a namespace and thaws it", func(ctx context.Context) {
				const frozen = "cli-frozen"
				for _, arguments := range [][]string{{"create", "namespace", frozen}, {"label", "namespace", frozen, v1alpha1.GuardsLabel + "=" + v1alpha1.GuardsEnabled}} {
					_, err := own.kubectl.Run(ctx, "", arguments...)
					Expect(err).NotTo(HaveOccurred())
				}
				DeferCleanup(func(ctx context.Context) {
					_, err := own.kubectl.Run(ctx, "", "delete", "namespace", frozen, "--wait=false")
					Expect(err).NotTo(HaveOccurred())
				})
				completes(ctx, kubectl, "kubectl lock freeze cli-fr", frozen)
				Expect(kubectl.succeed(ctx, "freeze", frozen, "--until", "1h", "--reason", "Year-end freeze")).To(HavePrefix("namespace " + frozen + " is frozen until "))
				Eventually(func(ctx context.Context) error {
					_, err := own.kubectl.Run(ctx, "", "-n", frozen, "create", "service", "clusterip", "web", "--tcp=80", "--dry-run=server",
						"--as=bob", "--as-group=system:masters")
					return err
				}).WithContext(ctx).WithTimeout(startTimeout).Should(MatchError(ContainSubstring("Year-end freeze")))
				Expect(kubectl.succeed(ctx, "thaw", frozen)).To(ContainSubstring("no longer frozen"))
			})

			It("examines the installation, and tells its version", func(ctx context.Context) {
				printed, status := kubectl.run(ctx, "doctor", "-n", namespace)
				Expect(status).To(BeZero(), printed)
				Expect(printed).To(ContainSubstring("webhook"))
				Expect(kubectl.succeed(ctx, append([]string{"doctor"}, facade...)...)).To(ContainSubstring("façade"))
				Expect(kubectl.succeed(ctx, "version")).To(MatchRegexp(`^kubectl-lock .+ \(go`))
				Expect(kubectl.succeed(ctx, "completion", "bash")).To(ContainSubstring("bash completion"))
			})

			It("says what to do about errors", func(ctx context.Context) {
				printed, status := kubectl.run(ctx, "list", "-n", namespace, "--as", "mallory")
				Expect(status).To(Equal(int(clifailure.Refused)), printed)
				Expect(printed).To(ContainSubstring("ask an administrator"))
				printed, status = kubectl.run(ctx, "list", "--server", "http://127.0.0.1:1")
				Expect(status).To(Equal(int(clifailure.Unavailable)), printed)
				Expect(printed).To(ContainSubstring("kubectl lock doctor"))
				printed, status = (&plugin{path: kubectl.path, kubeconfig: "/nonexistent"}).run(ctx, "list")
				Expect(status).To(Equal(int(clifailure.Unavailable)), printed)
			})

			It("completes keys and namespaces in a shell", func(ctx context.Context) {
				create(ctx, own, namespace, "completed-report")
				completes(ctx, kubectl, "kubectl lock who -n "+namespace+" comple", "completed-report")
				completes(ctx, kubectl, "kubectl lock list -n kube-sys", "kube-system")
				completes(ctx, kubectl, "kubectl lock li", "kubectl lock list")
			})

			if auth == "token" {
				describeIdentities(func() *cluster { return own })
			}
		})
	}

	It("follows changes, and draws a terminal of 80 columns and 24 lines", Label(installed), func(ctx context.Context) {
		kubectl := installPlugin(ctx, shared.kubeconfig)
		create(ctx, shared, "default", "followed:one")
		screen := onTerminal(ctx, kubectl, "top", "-n", "default")
		Eventually(screen.text).WithTimeout(startTimeout).Should(And(ContainSubstring("followed:one"), ContainSubstring("Per second")))
		create(ctx, shared, "default", "followed:two")
		Eventually(screen.text).WithTimeout(startTimeout).Should(ContainSubstring("followed:two"))
		Expect(screen.text()).NotTo(ContainSubstring("No locks"))
		Expect(regexp.MustCompile("\x1b\\[[0-9;]*m").FindString(screen.text())).To(BeEmpty(), "NO_COLOR is set")
		screen.write("q")
		Eventually(screen.ended).WithTimeout(stopTimeout).Should(BeClosed())
		Expect(screen.status()).To(Equal(0))

		list := onTerminal(ctx, kubectl, "list", "-w", "-n", "default")
		Eventually(list.text).WithTimeout(startTimeout).Should(ContainSubstring("followed:one"))
		three := create(ctx, shared, "default", "followed:three")
		Eventually(list.text).WithTimeout(startTimeout).Should(MatchRegexp(`held +followed:three`))
		Expect(admin.Delete(ctx, three)).To(Succeed())
		Eventually(list.text).WithTimeout(startTimeout).Should(MatchRegexp(`free +followed:three`))
		list.write("\x03")
		Eventually(list.ended).WithTimeout(stopTimeout).Should(BeClosed())
	})
})

// completes types into a bash with kubectl's completion, and then the tab key.
func completes(ctx context.Context, kubectl *plugin, typed, want string) {
	GinkgoHelper()
	setup := filepath.Join(kubectl.path, "bashrc")
	// What the script of kubectl expects of the package bash-completion: the words of the line, which a colon does not end.
	Expect(os.WriteFile(setup, []byte(`
_get_comp_words_by_ref() {
  local line="${COMP_LINE:0:COMP_POINT}"
  read -ra words <<<"$line"
  [[ $line != *" " ]] || words+=("")
  cword=$((${#words[@]} - 1)); cur=${words[cword]}; prev=${words[cword-1]}
}
source <(kubectl completion bash)
PS1='ready> '
`), 0o600)).To(Succeed())
	shell := startOnTerminal(exec.CommandContext(ctx, "/bin/bash", "--noprofile", "--rcfile", setup, "-i"), kubectl.environment())
	Eventually(shell.text).WithTimeout(startTimeout).Should(ContainSubstring("ready> "))
	shell.write(typed)
	// A completion gives up after three seconds. Who wants it then presses the key again.
	Eventually(func(g Gomega) {
		shell.write("\t")
		g.Eventually(shell.text).Should(ContainSubstring(want))
	}).WithTimeout(startTimeout).Should(Succeed())
}

// console is a program on a pseudo-terminal.
type console struct {
	command *exec.Cmd
	file    *os.File
	shown   lockedBuffer
	ended   chan struct{}
}

func onTerminal(ctx context.Context, kubectl *plugin, arguments ...string) *console {
	GinkgoHelper()
	command := exec.CommandContext(ctx, filepath.Join(kubectl.path, "kubectl"), append([]string{"lock"}, arguments...)...)
	return startOnTerminal(command, kubectl.environment())
}

func startOnTerminal(command *exec.Cmd, environment []string) *console {
	GinkgoHelper()
	command.Env = slices.Concat(environment, []string{"TERM=xterm", "NO_COLOR=1"})
	file, err := pty.StartWithSize(command, &pty.Winsize{Rows: 24, Cols: 80})
	Expect(err).NotTo(HaveOccurred())
	started := &console{command: command, file: file, ended: make(chan struct{})}
	go func() {
		defer close(started.ended)
		var part [4096]byte
		for {
			read, err := file.Read(part[:])
			started.shown.write(part[:read])
			if err != nil {
				break
			}
		}
		_ = command.Wait()
	}()
	DeferCleanup(func() {
		_ = command.Process.Kill()
		<-started.ended
		_ = file.Close()
	})
	return started
}

func (c *console) text() string { return c.shown.text() }

func (c *console) write(typed string) {
	GinkgoHelper()
	_, err := fmt.Fprint(c.file, typed)
	Expect(err).NotTo(HaveOccurred())
}

func (c *console) status() int { return c.command.ProcessState.ExitCode() }

// lockedBuffer is written and read by two goroutines.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) write(part []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buffer.Write(part)
}

func (b *lockedBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
