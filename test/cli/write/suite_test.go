// Package write_test proves what the commands of kubectl-lock do that change locks, what doctor finds, and what who
// tells of logs: with the program itself, a real API server, and the operator's own process.
package write_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"forrst.dev/lock-operator/api/v1alpha1"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

const timeout = 60 * time.Second

func TestWriting(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Writing commands of kubectl-lock")
}

var (
	cluster *fixture.Cluster
	program string
	// ann and bob may take locks and change workloads, chief may also end locks of others, and guest may
	// only look.
	ann, bob, chief, guest fixture.Identity
	// open serves all callers the locks of the namespace default. Closed, and rival, another replica of it, serve those with tokens.
	open, closed, rival string
	// homes is the folder of all homes.
	homes string
)

var _ = BeforeSuite(func(ctx context.Context) {
	homes = GinkgoT().TempDir()
	var err error
	program, err = testenv.Build(ctx, "cmd/kubectl-lock")
	Expect(err).NotTo(HaveOccurred())
	cluster = fixture.Start(ctx)
	operator := cluster.Operator()
	host, port, certDir, err := cluster.InstallWebhook(ctx)
	Expect(err).NotTo(HaveOccurred())
	fixture.StartOperator(ctx, operator.Kubectl, append(cluster.WebhookFlags(host, port, certDir),
		"--components=controller,webhook", "--guards", "--leader-elect=false", "--leader-election-namespace="+testenv.OperatorNamespace)...)
	open, closed, rival = cluster.StartFacade(ctx, "default"), cluster.StartFacade(ctx, ""), cluster.StartFacade(ctx, "")
	for role, user := range map[string]*fixture.Identity{"edit": &ann, "admin": &chief, "view": &guest} {
		*user = cluster.Identity(role + "-user")
		bind(ctx, role, user.Name)
	}
	bob = cluster.Identity("another-edit-user")
	bind(ctx, "edit", bob.Name)
})

// bind gives a user the lock-operator-ROLE in all namespaces and, without the aggregation that a controller
// makes, the rights to workloads that the built-in role of that name has.
func bind(ctx context.Context, role, user string) {
	GinkgoHelper()
	roles := []string{"lock-operator-" + role, "system:aggregate-to-view"}
	if role != "view" {
		roles = append(roles, "system:aggregate-to-edit")
	}
	for _, name := range roles {
		Expect(cluster.Admin.Client.Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "cli-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		})).To(Succeed())
	}
}

// outcome is what a run of the program has printed, and its exit status.
type outcome struct {
	Out, ErrOut string
	Status      int
}

// home makes a folder for owner tokens.
func home() string {
	GinkgoHelper()
	folder, err := os.MkdirTemp(homes, "home-")
	Expect(err).NotTo(HaveOccurred())
	return folder
}

// command returns a run of the program. Its environment is that of a user without settings.
func command(ctx context.Context, folder string, args ...string) *exec.Cmd {
	made := exec.CommandContext(ctx, program, args...)
	made.Env = []string{"HOME=" + folder, "XDG_RUNTIME_DIR=" + folder, "PATH=" + os.Getenv("PATH")}
	return made
}

// lockAs runs the program as the user, in a namespace.
func lockAs(ctx context.Context, user fixture.Identity, folder, namespace, stdin string, args ...string) outcome {
	GinkgoHelper()
	return finish(command(ctx, folder, append(args, "--kubeconfig", user.Kubectl.Kubeconfig(), "-n", namespace)...), stdin)
}

func finish(run *exec.Cmd, stdin string) outcome {
	GinkgoHelper()
	var out, errOut bytes.Buffer
	run.Stdin, run.Stdout, run.Stderr = strings.NewReader(stdin), &out, &errOut
	err := run.Run()
	if _, isExit := errors.AsType[*exec.ExitError](err); !isExit {
		Expect(err).NotTo(HaveOccurred())
	}
	return outcome{Out: out.String(), ErrOut: errOut.String(), Status: run.ProcessState.ExitCode()}
}

// succeed and failWith match outcomes.
func succeed(text string) OmegaMatcher {
	return And(HaveField("Status", 0), HaveField("Out", ContainSubstring(text)))
}

func failWith(status int, text string) OmegaMatcher {
	return And(HaveField("Status", status), HaveField("ErrOut", ContainSubstring(text)))
}

// stored returns the lock of a key, or nil.
func stored(ctx context.Context, namespace, key string) *v1alpha1.Lock {
	GinkgoHelper()
	found := &v1alpha1.Lock{}
	err := cluster.Admin.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.FullKeyOf(key).ObjectName()}, found)
	if client.IgnoreNotFound(err) == nil && err != nil {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	return found
}

// forcedReasons returns for which reasons admission let locks of the namespace be released by force, by their names, as
// events tell.
func forcedReasons(ctx context.Context, namespace string) map[string][]string {
	GinkgoHelper()
	var events corev1.EventList
	Expect(cluster.Admin.Client.List(ctx, &events, client.InNamespace(namespace))).To(Succeed())
	reasons := map[string][]string{}
	for _, event := range events.Items {
		if event.Reason == "ForceReleased" {
			_, by, _ := strings.Cut(event.Message, "by force by ")
			_, reason, _ := strings.Cut(by, ": ")
			reasons[event.InvolvedObject.Name] = append(reasons[event.InvolvedObject.Name], reason)
		}
	}
	return reasons
}

// expectNoToken fails if the owner token of a lock was printed.
func expectNoToken(outcomes ...outcome) {
	GinkgoHelper()
	var locks v1alpha1.LockList
	Expect(cluster.Admin.Client.List(context.Background(), &locks)).To(Succeed())
	for _, lock := range locks.Items {
		for _, each := range outcomes {
			Expect(each.Out + each.ErrOut).NotTo(ContainSubstring(lock.Spec.Owner))
		}
	}
}

// tokenFiles are the files below a folder, with their modes.
func tokenFiles(folder string) map[string]os.FileMode {
	GinkgoHelper()
	files := map[string]os.FileMode{}
	Expect(filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		files[path] = info.Mode().Perm()
		return err
	})).To(Succeed())
	return files
}

// conversation is a run of the program that asks a question.
type conversation struct {
	command *exec.Cmd
	stdin   io.WriteCloser
	errOut  lockedBuffer
	out     lockedBuffer
}

// lockedBuffer is written to by the goroutine of a command.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(content []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(content)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// ask begins a run and returns once it has asked.
func ask(run *exec.Cmd) *conversation {
	GinkgoHelper()
	talk := &conversation{command: run}
	var err error
	talk.stdin, err = run.StdinPipe()
	Expect(err).NotTo(HaveOccurred())
	run.Stdout, run.Stderr = &talk.out, &talk.errOut
	Expect(run.Start()).To(Succeed())
	Eventually(talk.errOut.String).WithTimeout(timeout).Should(ContainSubstring("[y/N]"))
	return talk
}

// answer ends the run.
func (c *conversation) answer(text string) outcome {
	GinkgoHelper()
	_, err := io.WriteString(c.stdin, text+"\n")
	Expect(err).NotTo(HaveOccurred())
	err = c.command.Wait()
	if _, isExit := errors.AsType[*exec.ExitError](err); !isExit {
		Expect(err).NotTo(HaveOccurred())
	}
	return outcome{Out: c.out.String(), ErrOut: c.errOut.String(), Status: c.command.ProcessState.ExitCode()}
}

// tokenFile returns a file with a token of the worker of the namespace, for the façade.
func tokenFile(ctx context.Context, namespace string) string {
	GinkgoHelper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "worker-"},
		Spec:       corev1.PodSpec{ServiceAccountName: fixture.Worker, Containers: []corev1.Container{{Name: "main", Image: "main"}}},
	}
	Expect(cluster.Admin.Client.Create(ctx, pod)).To(Succeed())
	path := filepath.Join(home(), "token")
	Expect(os.WriteFile(path, []byte(cluster.WorkerToken(ctx, pod)), 0o600)).To(Succeed())
	return path
}
