package cli

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"forrst.dev/lock-operator/cli/doctor"
	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/session"
)

// doctorTimeout bounds how long an examination may take.
const doctorTimeout = time.Minute

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

It looks at the API server, the type Lock, the webhooks with their certificates and
exempted users, the admission policies and what the namespace asks of them, the
operator's processes, the clocks and your own rights. It changes nothing: locks are
created in dry runs only. What you may not read is skipped, and said to be; an
administrator of the cluster sees most.

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
	info, _ := debug.ReadBuildInfo()
	report, err := doctor.Examine(ctx, o.Session, versionOf(o.Version, info))
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
