package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"forrst.dev/lock-operator/cli/session"
)

func newVersion(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program",
		Long:  "Show the version of this program. For those of the installation, see kubectl lock doctor.",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			info, _ := debug.ReadBuildInfo()
			fmt.Fprintf(s.Out, "kubectl-lock %s (%s, %s/%s)\n", versionOf(s.Version, info), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
}

// versionOf returns the version for these values; info may be nil.
func versionOf(linked string, info *debug.BuildInfo) string {
	switch {
	case linked != "":
		return linked
	case info == nil || info.Main.Version == "" || info.Main.Version == "(devel)":
		return "unknown"
	default:
		return info.Main.Version
	}
}
