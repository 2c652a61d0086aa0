package cli

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"forrst.dev/lock-operator/cli/doctor"
	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/lock"
)

// What bounds how long an examination may take: a server that does not answer is a finding.
const (
	doctorTimeout  = time.Minute
	versionTimeout = 10 * time.Second
)

// doctorOptions are the options of one "doctor".
type doctorOptions struct {
	*session.Session

	output string
}

func newDoctor(s *session.Session) *cobra.Command {
	options := doctorOptions{Session: s}
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Find what is wrong with an installation of lock-operator",
		Long: `Look at an installation of lock-operator, and say what is wrong and what to do.

It looks at the API server, the type Lock, the webhook with its certificates and
exempted users, the operator's processes, the clocks and your own rights. It changes
nothing: locks are created in dry runs only. What you may not read is skipped, and
said to be; an administrator of the cluster sees most.

With --server it looks at a façade: whether it is ready, its certificate, and whether
it knows you.

The exit status is 0 if nothing has failed, and 200 otherwise. Warnings do not count.`,
		Example: `  kubectl lock doctor

  # What the façade says from within a pod
  kubectl lock doctor --server https://lock-operator-facade.forrst-system.svc`,
		Args: noArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return options.run(command.Context())
		},
	}
	command.Flags().StringVarP(&options.output, "output", "o", "", "Output format: json")
	return command
}

func (o *doctorOptions) run(ctx context.Context) error {
	if o.output != "" && o.output != "json" {
		return failure.Usagef("-o is %q, and may be json", o.output)
	}
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	examine := o.examineCluster
	if o.UsesFacade() {
		examine = o.examineFacade
	}
	report, err := examine(ctx)
	if err != nil {
		return err
	}
	write := report.Print
	if o.output == "json" {
		write = report.PrintJSON
	}
	if err := write(o.Out); err != nil {
		return err
	}
	if report.Worst() == doctor.Fail {
		return failure.SilentError(failure.Failed)
	}
	return nil
}

func (o *doctorOptions) examineCluster(ctx context.Context) (doctor.Report, error) {
	config, err := o.RESTConfig()
	if err != nil {
		return nil, err
	}
	config.Timeout = versionTimeout
	// What is missing is a finding, and no warning of the API server.
	config.WarningHandler = rest.NoWarnings{}
	versions, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	cluster, err := o.Cluster()
	if err != nil {
		return nil, err
	}
	info, _ := debug.ReadBuildInfo()
	return doctor.Judge(doctor.Cluster{
		Client: cluster, Kubernetes: versions.ServerVersion, Now: o.clocks, Namespace: o.Namespace(), Program: versionOf(o.Version, info),
	}.Ask(ctx)), nil
}

func (o *doctorOptions) examineFacade(ctx context.Context) (doctor.Report, error) {
	backend, err := o.Backend(ctx)
	if err != nil {
		return nil, err
	}
	server, err := o.Server()
	if err != nil {
		return nil, err
	}
	httpClient, err := o.FacadeHTTP()
	if err != nil {
		return nil, err
	}
	// An owner token that no lock has: the answer is short.
	list := func(ctx context.Context) error {
		_, err := backend.List(ctx, o.Namespace(), lock.Filter{Owner: lock.NewOwner()})
		return err
	}
	return doctor.JudgeFacade(doctor.Facade{URL: server, HTTP: httpClient, List: list, Now: o.clocks}.Ask(ctx)), nil
}

// clocks returns the time of this machine and that of the service.
func (o *doctorOptions) clocks() (local, server time.Time) { return o.Clock.Now(), o.Now() }
