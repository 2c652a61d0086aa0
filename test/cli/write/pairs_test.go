package write_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"forrst.dev/lock-operator/cli"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/facade/rest/wire"
	"forrst.dev/lock-operator/test/support/fixture"
	"forrst.dev/lock-operator/test/support/pairs"
)

// person uses the commands with a home and an identity.
type person struct {
	home string
	// identity are the flags that tell who it is.
	identity []string
}

func personOf(user fixture.Identity) person {
	GinkgoHelper()
	return person{home(), []string{"--kubeconfig", user.Kubectl.Kubeconfig()}}
}

// handheld is a lock that two commands are about.
type handheld struct {
	namespace, key string
	round          int
	// way are the flags that lead to the locks.
	way []string
	// holder has the lock, other would have it, and breaker may end it by force.
	holder, other, breaker person
	// proof are the flags by which the holder proves the grant, if that is not by a file in its home.
	proof []string
	// token proves the grant to the REST door at the URL, if it has made the grant.
	url, token   string
	fencingToken int64
	// end ends the program that runs under the lock, and returns the status of the run.
	end func() string
}

// run runs a command in this process, as the program does: so two commands begin closer to each other than two processes.
func (h handheld) run(ctx context.Context, by person, stdin io.Reader, errOut *lockedBuffer, args ...string) (status string) {
	GinkgoHelper()
	environment := map[string]string{"HOME": by.home, "XDG_RUNTIME_DIR": by.home}
	code := cli.Main(ctx, slices.Concat(args, h.way, by.identity), session.Options{
		Streams: genericiooptions.IOStreams{In: stdin, Out: GinkgoWriter, ErrOut: io.MultiWriter(errOut, GinkgoWriter)},
		Clock:   clock.RealClock{}, Getenv: func(name string) string { return environment[name] },
	})
	if said := errOut.String(); strings.Contains(said, "its ttl ran out") { // It has not.
		return said
	}
	return strconv.Itoa(code)
}

// do runs a command without input, and returns its status.
func (h handheld) do(ctx context.Context, by person, args ...string) (status string) {
	GinkgoHelper()
	return h.run(ctx, by, strings.NewReader(""), &lockedBuffer{}, args...)
}

// askFree shows the lock and asks whether to end it. The call answers yes.
func (h handheld) askFree(ctx context.Context, by person, args ...string) (call func() string) {
	GinkgoHelper()
	stdin, answer := io.Pipe()
	errOut, ended := &lockedBuffer{}, make(chan string, 1)
	go func() {
		defer close(ended)
		defer GinkgoRecover()
		defer func() { _ = stdin.Close() }()
		ended <- h.run(ctx, by, stdin, errOut, append([]string{"free", h.key}, args...)...)
	}()
	Eventually(errOut.String).WithContext(ctx).WithTimeout(timeout).Should(ContainSubstring("[y/N]"))
	return func() string {
		_, err := io.WriteString(answer, "y\n")
		Expect(err).NotTo(HaveOccurred())
		return <-ended
	}
}

// waitFor has the other person wait for the lock. Granted releases it.
func (h handheld) waitFor(ctx context.Context) (granted func(hasEnded bool)) {
	GinkgoHelper()
	waiter, errOut, ended := person{home(), h.other.identity}, &lockedBuffer{}, make(chan string, 1)
	go func() {
		defer close(ended)
		defer GinkgoRecover()
		ended <- h.run(ctx, waiter, strings.NewReader(""), errOut, "acquire", h.key, "--wait", "1m")
	}()
	Eventually(errOut.String).WithContext(ctx).WithTimeout(timeout).Should(ContainSubstring("waiting: "))
	return func(hasEnded bool) {
		GinkgoHelper()
		Expect(<-ended).To(Equal(done), errOut.String())
		Expect(h.do(ctx, waiter, "release", h.key)).To(Equal(map[bool]string{false: done, true: notHeld}[hasEnded]))
	}
}

// askREST sends a request about the lock to the REST door.
func (h handheld) askREST(ctx context.Context, by person, method, path, body string) (status string, answer []byte) {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, method, h.url+"/v1/namespaces/"+h.namespace+"/locks/"+h.key+path, strings.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	bearer, err := os.ReadFile(by.identity[1])
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer "+string(bearer))
	request.Header.Set("Content-Type", "application/json")
	if h.token != "" && by.home == h.holder.home {
		request.Header.Set("X-Lock-Token", h.token)
	}
	response, err := http.DefaultClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return strconv.Itoa(response.StatusCode), answer
}

// Exit statuses, as docs/cli.md has them.
const (
	done    = "0"
	isBusy  = "201"
	notHeld = "202"
)

var (
	ends  = pairs.Answers{Ended: done, Others: []string{notHeld}}
	keeps = pairs.Answers{Others: []string{done, notHeld}}
	takes = pairs.Answers{Took: done, Others: []string{isBusy}}
)

// reasons are those of the commands that end the lock by force.
var reasons = map[string]string{
	"forced release": "worker-7 lost its disk", "forced release for another reason": "the rack burns",
	"forced release without a question": "maintenance",
}

// force returns a call that ends by force the grant that was shown before.
func force(name string) pairs.Call[handheld] {
	return pairs.Call[handheld]{Name: name, Answers: ends, Prepare: func(ctx context.Context, held handheld) func() string {
		return held.askFree(ctx, held.breaker, "--reason", reasons[name])
	}}
}

// byHolder returns a call of a command of the holder, which shows its proof.
func byHolder(name, command string, answers pairs.Answers) pairs.Call[handheld] {
	return pairs.Call[handheld]{Name: name, Answers: answers, Prepare: pairs.Direct(func(ctx context.Context, held handheld) string {
		return held.do(ctx, held.holder, append([]string{command, held.key}, held.proof...)...)
	})}
}

// acquire returns a call that acquires the lock for a person.
func acquire(name string, who func(handheld) person) pairs.Call[handheld] {
	return pairs.Call[handheld]{
		Name: name, Answers: takes,
		Prepare: pairs.Direct(func(ctx context.Context, held handheld) string { return held.do(ctx, who(held), "acquire", held.key) }),
		GiveBack: func(ctx context.Context, held handheld) {
			Expect(held.do(ctx, who(held), "release", held.key)).To(Equal(done), "the lock or its proof is lost")
		},
	}
}

func holderOf(held handheld) person  { return held.holder }
func otherOf(held handheld) person   { return held.other }
func breakerOf(held handheld) person { return held.breaker }

// ofAny are calls about a lock, however it was acquired.
var ofAny = []pairs.Call[handheld]{
	force("forced release"),
	force("forced release for another reason"),
	{
		Name: "forced release without a question", Answers: ends, IsAlone: true,
		Prepare: pairs.Direct(func(ctx context.Context, held handheld) string {
			return held.do(ctx, held.breaker, "free", held.key, "--yes", "--reason", reasons["forced release without a question"])
		}),
	},
	acquire("request of another user", otherOf),
}

// ofHand are calls about a lock that was acquired by a command.
var ofHand = append(slices.Clone(ofAny), byHolder("release", "release", ends), byHolder("renewal", "renew", keeps))

// ofCluster are calls of users who ask the API server themselves.
var ofCluster = append(slices.Clone(ofHand),
	acquire("request of the holder itself", holderOf),
	pairs.Call[handheld]{Name: "release by free", Answers: ends, Prepare: func(ctx context.Context, held handheld) func() string {
		return held.askFree(ctx, held.holder)
	}},
)

// throughREST returns a call of the REST door.
func throughREST(name string, answers pairs.Answers, who func(handheld) person, method, body string, path func(handheld) string) pairs.Call[handheld] {
	return pairs.Call[handheld]{Name: name + " through the REST door", Answers: answers, Prepare: pairs.Direct(func(ctx context.Context, held handheld) string {
		status, _ := held.askREST(ctx, who(held), method, path(held), body)
		return status
	})}
}

// fromElsewhere are calls about a lock of a façade by a caller of the REST door, and by a user of the cluster.
var fromElsewhere = []pairs.Call[handheld]{
	throughREST("forced release", pairs.Answers{Ended: "204", Others: []string{"404", "412"}}, breakerOf, http.MethodDelete, "", func(held handheld) string {
		return fmt.Sprintf("?force=true&reason=stuck&fencing_token=%d", held.fencingToken)
	}),
	{Name: "forced release of a user of the cluster", Answers: ends, Prepare: func(ctx context.Context, held handheld) func() string {
		held.way = []string{"-n", held.namespace}
		return held.askFree(ctx, personOf(chief), "--reason", "maintenance")
	}},
}

// ofServices are calls about a lock that was acquired by a command of a caller of façades.
var ofServices = slices.Concat(ofHand, fromElsewhere)

// ofREST are calls about a lock that was acquired through the REST door. No command renews or releases it.
var ofREST = append(slices.Concat(ofAny, fromElsewhere),
	throughREST("release", pairs.Answers{Ended: "204", Others: []string{"410"}}, holderOf, http.MethodDelete, "", theLock),
	throughREST("renewal", pairs.Answers{Others: []string{"200", "410"}}, holderOf, http.MethodPut, `{"ttl_seconds":60}`, theLock),
)

func theLock(handheld) string { return "" }

// ofRuns are calls about a lock that a program runs under.
var ofRuns = []pairs.Call[handheld]{
	{Name: "end of the program", Answers: ends, IsOnce: true, Prepare: pairs.Direct(func(_ context.Context, held handheld) string { return held.end() })},
	byHolder("release", "release", ends),
	byHolder("renewal", "renew", keeps),
	force("forced release"),
	acquire("request of another user", otherOf),
}

// spread is about what a command takes.
const spread = 30 * time.Millisecond

// Who ends a grant is told so, and nobody else is.
var _ = Describe("Two commands at once about a grant", func() {
	release := func(ctx context.Context, held handheld) {
		GinkgoHelper()
		Expect(held.do(ctx, held.holder, append([]string{"release", held.key}, held.proof...)...)).To(Equal(done))
	}
	wait := func(ctx context.Context, held handheld) func(bool) { return held.waitFor(ctx) }

	Describe("that was acquired from the API server", func() {
		var common handheld
		var forced map[string]string
		BeforeEach(func(ctx context.Context) {
			namespace := cluster.Namespace(ctx, "pairs-")
			common = handheld{namespace: namespace, way: []string{"-n", namespace}, holder: personOf(ann), other: personOf(bob), breaker: personOf(chief)}
			forced = map[string]string{}
		})
		acquired := func(ctx context.Context, key string) handheld {
			GinkgoHelper()
			held := common
			held.key = key
			Expect(held.do(ctx, held.holder, "acquire", key)).To(Equal(done))
			return held
		}
		pairs.Declare(&pairs.Subject[handheld]{
			Acquire: func(ctx context.Context, round int) handheld { return acquired(ctx, fmt.Sprint("k", round)) },
			Wait:    wait, Release: release, Spread: spread,
			End: func(ctx context.Context, held handheld, ender string) {
				Expect(stored(ctx, held.namespace, held.key)).To(BeNil())
				if reason := reasons[ender]; reason != "" {
					forced[held.key] = reason
				}
			},
		}, ofCluster)

		// An event has the reason of each command that has ended a lock by force. So has one that admission let pass, and that
		// another delete has overtaken.
		AfterEach(func(ctx context.Context) {
			if CurrentSpecReport().Failed() {
				return
			}
			Eventually(func(g Gomega) {
				reasons := forcedReasons(ctx, common.namespace)
				for key, reason := range forced {
					g.Expect(reasons).To(HaveKeyWithValue(key, ContainElement(reason)))
				}
			}).WithTimeout(timeout).Should(Succeed())
		})
	})

	describeService := func(acquire func(ctx context.Context, held *handheld), release func(ctx context.Context, held handheld), calls []pairs.Call[handheld]) {
		var common handheld
		BeforeEach(func(ctx context.Context) {
			namespace := cluster.Namespace(ctx, "pairs-")
			caller := func(name string, verbs ...string) person {
				path := filepath.Join(home(), "bearer")
				bearer := cluster.CallerToken(ctx, namespace, name, append(verbs, "get", "list", "watch", "create")...)
				Expect(os.WriteFile(path, []byte(bearer), 0o600)).To(Succeed())
				return person{home(), []string{"--token-file", path}}
			}
			common = handheld{namespace: namespace, holder: caller("alice"), other: caller("bob"), breaker: caller("breaker", "force-release")}
		})
		through := func(held handheld, url string) handheld {
			held.url, held.way = url, []string{"-n", held.namespace, "--server", url}
			return held
		}
		pairs.Declare(&pairs.Subject[handheld]{
			Acquire: func(ctx context.Context, round int) handheld {
				held := through(common, closed)
				held.key, held.round = fmt.Sprint("k", round), round
				acquire(ctx, &held)
				held.fencingToken = must(stored(ctx, held.namespace, held.key).FencingToken())
				return held
			},
			Elsewhere: func(held handheld) handheld { return through(held, []string{closed, rival}[held.round%2]) },
			Wait: func(ctx context.Context, held handheld) func(bool) {
				granted := held.waitFor(ctx)
				Eventually(func() string {
					_, waiters := held.askREST(ctx, held.holder, http.MethodGet, "/waiters", "")
					return string(waiters)
				}).WithContext(ctx).WithTimeout(timeout).Should(ContainSubstring("bob"))
				return granted
			},
			Release: release, Spread: spread,
			End: func(ctx context.Context, held handheld, _ string) {
				Expect(stored(ctx, held.namespace, held.key)).To(BeNil())
			},
		}, calls)
	}
	Describe("that was acquired through a façade", func() {
		describeService(func(ctx context.Context, held *handheld) {
			held.proof = []string{"--owner-file", filepath.Join(held.holder.home, "proof")}
			Expect(held.do(ctx, held.holder, append([]string{"acquire", held.key}, held.proof...)...)).To(Equal(done))
		}, release, ofServices)
	})
	Describe("that was acquired through the REST door", func() {
		describeService(func(ctx context.Context, held *handheld) {
			status, body := held.askREST(ctx, held.holder, http.MethodPost, "", `{"ttl_seconds":60}`)
			Expect(status).To(Equal("201"), "%s", body)
			var described wire.Lock
			Expect(json.Unmarshal(body, &described)).To(Succeed())
			held.token = described.LockToken
		}, func(ctx context.Context, held handheld) {
			status, body := held.askREST(ctx, held.holder, http.MethodDelete, "", "")
			Expect(status).To(Equal("204"), "%s", body)
		}, ofREST)
	})

	Describe("that a program runs under", func() {
		pairs.Declare(&pairs.Subject[handheld]{
			Acquire: func(ctx context.Context, _ int) handheld {
				namespace := cluster.Namespace(ctx, "pairs-")
				held := handheld{namespace: namespace, key: "k", way: []string{"-n", namespace}, holder: personOf(ann), other: personOf(bob), breaker: personOf(chief)}
				held.underRun(ctx)
				return held
			},
			Wait: wait, Spread: 3 * spread,
			Release: func(_ context.Context, held handheld) { Expect(held.end()).To(Equal(done)) },
			End: func(ctx context.Context, held handheld, ender string) {
				Expect(stored(ctx, held.namespace, held.key)).To(BeNil())
				if ender != "end of the program" && ender != "" {
					Expect(held.end()).To(Equal(notHeld))
				}
			},
		}, ofRuns)
	})
})

// underRun begins a run of a program that waits for a line.
func (h *handheld) underRun(ctx context.Context) {
	GinkgoHelper()
	run := command(ctx, h.holder.home, slices.Concat([]string{"run", h.key, "--ttl", "1m"}, h.way, h.holder.identity,
		[]string{"--", "sh", "-c", `echo "$FORRST_LOCK_TOKEN_FILE"; read -r line`})...)
	stdin, err := run.StdinPipe()
	Expect(err).NotTo(HaveOccurred())
	stdout, err := run.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	run.Stderr = GinkgoWriter
	Expect(run.Start()).To(Succeed())
	h.end = sync.OnceValue(func() string {
		_, _ = io.WriteString(stdin, "\n") // The program may have been killed.
		_ = run.Wait()
		return strconv.Itoa(run.ProcessState.ExitCode())
	})
	DeferCleanup(h.end)
	path, err := bufio.NewReader(stdout).ReadString('\n')
	Expect(err).NotTo(HaveOccurred())
	h.proof = []string{"--owner-file", strings.TrimSpace(path)}
}
