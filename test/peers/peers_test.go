package peers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"

	"forrst.dev/lock-operator/test/peers/backend"
	"forrst.dev/lock-operator/test/peers/library"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/testenv"
)

func TestPeers(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Suites of other lock libraries")
}

// suite is a test suite that runs on our locks.
type suite struct {
	name     string
	packages []string
	// run matches the tests that concern what the adapter has replaced.
	run string
	// tests is how many tests that are in the version of go.mod.
	tests int
	// differs has the tests that fail on purpose, and a part of what they print.
	differs map[string]string
}

// docs/switching.md has a row for each difference.
var suites = []suite{
	{
		name: "redislock", packages: []string{"github.com/bsm/redislock"}, run: ".", tests: 17,
		differs: map[string]string{"TestObtain_custom_token": "redislock: not obtained"},
	},
	{
		name: "etcd",
		packages: []string{
			"go.etcd.io/etcd/tests/v3/integration/clientv3/concurrency",
			"go.etcd.io/etcd/tests/v3/integration/clientv3/experimental/recipes",
		},
		run: "^(Test|Example)Mutex", tests: 10,
		differs: map[string]string{
			"TestMutexSessionRelock":        "double lock",
			"TestMutexWaitsOnCurrentHolder": "failed to receive watch response",
		},
	},
	{
		name: "lockgate", packages: []string{"./lockgate"}, run: ".", tests: 10,
		differs: map[string]string{"TestShared": "unsupported operation"},
	},
}

// copied are the libraries that adapters are compiled in.
var copied = map[string]library.Changes{
	"redislock": {
		Module: "github.com/bsm/redislock", File: "redislock.go", Adapter: "redislock/adapter.go",
		Without: []string{
			"luaRefresh", "luaRelease", "luaPTTL", "luaObtain", "Client.Obtain", "Client.obtain",
			"Lock", "Lock.Key", "Lock.Token", "Lock.Metadata", "Lock.TTL", "Lock.Refresh", "Lock.Release",
		},
		Imports:     map[string]string{"github.com/redis/go-redis/v9": "forrst.dev/lock-operator/test/peers/redis"},
		TestImports: map[string]string{"time": "forrst.dev/lock-operator/test/peers/slow"},
	},
	"etcd": {
		Module: "go.etcd.io/etcd/client/v3", File: "concurrency/mutex.go", Adapter: "concurrency/adapter.go",
		Without: []string{
			"Mutex", "NewMutex", "Mutex.TryLock", "Mutex.Lock", "Mutex.tryAcquire", "Mutex.Unlock", "Mutex.IsOwner",
			"Mutex.Key", "Mutex.Header",
		},
	},
}

var (
	environment *fixture.Cluster
	modFile     string
)

var _ = BeforeSuite(func(ctx context.Context) {
	environment = fixture.Start(ctx)
	environment.StartAdmission(ctx, func(manager ctrl.Manager) { fixture.LockAdmission(manager).SetupWithManager(manager) })

	// The copies are always in the same place, so that what is compiled of them can be cached.
	root, err := testenv.ModuleRoot()
	Expect(err).NotTo(HaveOccurred())
	folder := filepath.Join(root, "bin", "peers")
	folders := map[string]string{}
	for name, changes := range copied {
		folders[changes.Module] = filepath.Join(folder, name)
		Expect(library.Copy(ctx, folders[changes.Module], changes)).To(Succeed())
	}
	modFile = filepath.Join(folder, "go.mod")
	Expect(library.ModFile(ctx, modFile, folders)).To(Succeed())
})

// backends prepare what a process needs to find its locks, in a namespace of its own.
var backends = map[string]func(ctx context.Context, namespace string) (where string){
	"locktest": func(context.Context, string) string { return backend.Memory },
	"façade":   func(ctx context.Context, namespace string) string { return environment.StartFacade(ctx, namespace) },
	"direct engine": func(context.Context, string) string {
		return environment.Identity("alice", testenv.TestersGroup).Kubectl.Kubeconfig()
	},
}

var _ = Describe("A suite", func() {
	for _, suite := range suites {
		for _, name := range slices.Sorted(maps.Keys(backends)) {
			It(fmt.Sprintf("of %s passes on the backend %s but for what differs on purpose", suite.name, name), func(ctx context.Context) {
				namespace := environment.Namespace(ctx, "peers-")
				results := run(ctx, suite, backends[name](ctx, namespace), namespace)
				Expect(results).To(HaveLen(suite.tests), "tests that ran: %v", slices.Sorted(maps.Keys(results)))
				for test := range suite.differs {
					Expect(results).To(HaveKey(test), "differs, but did not run")
				}
				passed := 0
				for test, result := range results {
					if expected, ok := suite.differs[test]; ok {
						Expect(result.outcome).To(Equal("fail"), "%s differs on purpose:\n%s", test, result.output)
						Expect(result.output).To(ContainSubstring(expected), "%s", test)
						continue
					}
					Expect(result.outcome).To(Equal("pass"), "%s:\n%s", test, result.output)
					passed++
				}
				GinkgoWriter.Printf("%s on %s: %d passed, %d differ\n", suite.name, name, passed, len(suite.differs))
			})
		}
	}

	It("has a row in docs/switching.md for each difference", func() {
		root, err := testenv.ModuleRoot()
		Expect(err).NotTo(HaveOccurred())
		page, err := os.ReadFile(filepath.Join(root, "docs", "switching.md"))
		Expect(err).NotTo(HaveOccurred())
		for _, suite := range suites {
			for test := range suite.differs {
				Expect(string(page)).To(ContainSubstring("| `" + test + "` |"))
			}
		}
	})
})

// result is how a test has ended, and what it has printed.
type result struct{ outcome, output string }

// run returns the results of the suite's tests, without those of their parts.
func run(ctx context.Context, suite suite, where, namespace string) map[string]result {
	GinkgoHelper()
	command := exec.CommandContext(ctx, "go", append([]string{
		"test", "-modfile=" + modFile, "-tags=peers", "-vet=off", "-json", "-count=1", "-timeout=5m", "-p=1", "-run=" + suite.run,
	}, suite.packages...)...)
	command.Env = append(os.Environ(), backend.Variable+"="+where, backend.NamespaceVariable+"="+namespace)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	stdout, err := command.Output()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		Expect(err).NotTo(HaveOccurred())
	}
	results := map[string]result{}
	output := map[string]string{}
	failed := map[string]bool{}
	for decoder := json.NewDecoder(bytes.NewReader(stdout)); ; {
		var event struct {
			Action  string `json:"Action"`
			Package string `json:"Package"`
			Test    string `json:"Test"`
			Output  string `json:"Output"`
		}
		err := decoder.Decode(&event)
		if errors.Is(err, io.EOF) {
			break
		}
		Expect(err).NotTo(HaveOccurred(), "%s%s", stdout, stderr.String())
		test, _, _ := strings.Cut(event.Test, "/")
		place := event.Package + " " + test
		output[place] += event.Output
		switch {
		case event.Action != "pass" && event.Action != "fail" && event.Action != "skip" || strings.Contains(event.Test, "/"):
		case test == "":
			// A package also fails by what happens outside its tests, such as a leak or a panic.
			hasFailed := event.Action == "fail"
			Expect(hasFailed).To(Equal(failed[event.Package]), "%s: %s\n%s%s%s", event.Package, event.Action, output[" "], output[place], stderr.String())
		default:
			Expect(results).NotTo(HaveKey(test))
			results[test] = result{outcome: event.Action, output: output[place]}
			failed[event.Package] = failed[event.Package] || event.Action == "fail"
		}
	}
	Expect(results).NotTo(BeEmpty(), "%s%s", stdout, stderr.String())
	return results
}
