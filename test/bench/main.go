// Command bench starts a development cluster, measures the locks of this project against their building blocks and against
// their peers, and fails if a figure misses its bound. See docs/performance.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// suites are the scenarios by suite, and timeouts bound one of them.
var (
	suites   = map[string][]scenario{"speed": speed, "scale": scale}
	timeouts = map[string]time.Duration{"speed": 15 * time.Minute, "scale": 4 * time.Hour}
)

// options are the options of the command line.
type options struct {
	// suite is a key of suites, and only selects scenarios of it by name.
	suite string
	only  *regexp.Regexp
	// isTrial says that the run is too short to judge by, and effort is a factor for the number of rounds.
	isTrial bool
	effort  float64
	// liveLocks is how many locks the suite scale holds.
	liveLocks int
	// root is the folder of this commit, built, and against that of another one to compare with, or empty.
	root, against string
	// page is the page of the documentation to write the report into, or empty.
	page string
	// revision is the commit that is measured, for the page.
	revision string
}

func main() {
	options, err := parseOptions(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	// With SIGPIPE, so the cluster also ends if the reader of the output has gone.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE)
	err = run(ctx, options, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parseOptions(arguments []string) (o options, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := flags.String("only", "", "run only scenarios that match the `expression`")
	flags.StringVar(&o.suite, "suite", "speed", "which `suite` to run: speed or scale")
	flags.BoolVar(&o.isTrial, "quick", false, "a tenth of the rounds and of the live locks: a trial, too short to judge by")
	flags.Float64Var(&o.effort, "effort", 1, "the `factor` for the number of rounds")
	flags.IntVar(&o.liveLocks, "live-locks", 100_000, "how many locks the suite scale holds")
	flags.StringVar(&o.root, "root", ".", "`folder` of the commit that is measured, built")
	flags.StringVar(&o.against, "against", "", "`folder` of another commit, built, to compare with on a cluster of its own")
	flags.StringVar(&o.page, "report", "", "`path` of a page to write the tables into")
	flags.StringVar(&o.revision, "revision", "unknown", "the `commit` that is measured, for the page")
	if err := flags.Parse(arguments); err != nil {
		return o, err
	}
	if o.isTrial {
		o.effort /= 10
		o.liveLocks /= 10
	}
	if suites[o.suite] == nil || o.effort <= 0 || o.liveLocks < 1 {
		return o, errors.New("-suite must be speed or scale, -effort and -live-locks positive")
	}
	if o.only, err = regexp.Compile(*only); err != nil {
		return o, fmt.Errorf("-only: %w", err)
	}
	o.root, err = filepath.Abs(o.root)
	return o, err
}

// run measures, prints the report, and writes it into the page of -report.
func run(ctx context.Context, o options, out io.Writer) error {
	started := time.Now()
	all := &bench{Context: ctx, report: &report{}, options: o, machine: &machine{root: "/proc"}}
	about := ""
	err := all.try(func(b *bench) {
		raiseFileLimit()
		fmt.Fprintln(os.Stderr, "Starting the cluster")
		b.cluster = b.startCluster(o.root)
		about = describe(b)
		b.runAll(started)
	})
	if about == "" {
		return err
	}
	about += fmt.Sprintf(" It took %.0f minutes. %s", math.Ceil(time.Since(started).Minutes()), all.machine)
	text := about + "\n\n" + all.markdown() +
		"writes, reads: requests to the API server per cycle; API, etcd, operator, clients: their processor time in ms per cycle.\n"
	fmt.Fprint(out, text)
	// What an interrupted run has measured is of use, but not in a page.
	if o.page != "" && ctx.Err() == nil {
		page, pageErr := os.ReadFile(o.page)
		replaced, replaceErr := replace(string(page), o.suite, text)
		if err = errors.Join(err, pageErr, replaceErr); err == nil {
			err = os.WriteFile(o.page, []byte(replaced), 0o644)
		}
	}
	return errors.Join(err, all.verdict(), context.Cause(ctx))
}

// runAll runs the scenarios, also after a failed one.
func (b *bench) runAll(started time.Time) {
	for _, each := range suites[b.options.suite] {
		if !b.options.only.MatchString(each.name) || b.Err() != nil {
			continue
		}
		fmt.Fprintf(os.Stderr, "%5.0fs  %s\n", time.Since(started).Seconds(), each.name)
		ctx, cancel := context.WithTimeoutCause(b, timeouts[b.options.suite], errors.New("the scenario did not finish in time"))
		inner := *b
		inner.Context, inner.cleanups = ctx, nil
		if err := inner.try(each.run); err != nil {
			b.fail(each.name, err)
		}
		cancel()
	}
}

// describe says where and when the run is made.
func describe(b *bench) string {
	text := "One run"
	if b.options.isTrial {
		text = "A trial, too short to judge by,"
	}
	against := ""
	if b.options.against != "" {
		against = " against " + filepath.Base(b.options.against)
	}
	processor := "unknown" // processors of other architectures may have no name
	for line := range strings.Lines(string(must(os.ReadFile("/proc/cpuinfo")))) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			processor = strings.TrimSpace(value)
		}
	}
	return fmt.Sprintf("%s with an effort of %g on %s: commit %s%s, Kubernetes %s, etcd %s, %d processors (%s).",
		text, b.options.effort, time.Now().UTC().Format(time.DateOnly), b.options.revision, against,
		must(b.clientset.Discovery().ServerVersion()).GitVersion, must(b.etcd.Status(b, b.etcd.Endpoints()[0])).Version, runtime.NumCPU(), processor)
}
