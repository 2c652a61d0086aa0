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
			fmt.Fprint(s.Out, versionLine(s))
			return nil
		},
	}
}

// versionLine is what "version" and --version print.
func versionLine(s *session.Session) string {
	info, _ := debug.ReadBuildInfo()
	return fmt.Sprintf("kubectl-lock %s (%s, %s/%s)\n", versionOf(s.Version, info), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// versionOf returns the version for these values; info may be nil. A local build has its commit.
func versionOf(linked string, info *debug.BuildInfo) string {
	switch {
	case linked != "":
		return linked
	case info == nil:
		return "unknown"
	case info.Main.Version != "" && info.Main.Version != "(devel)":
		return info.Main.Version
	}
	settings := map[string]string{}
	for _, setting := range info.Settings {
		settings[setting.Key] = setting.Value
	}
	revision := settings["vcs.revision"]
	if revision == "" {
		return "unknown"
	}
	version := "commit " + revision[:min(12, len(revision))]
	if settings["vcs.modified"] == "true" {
		version += ", with changes"
	}
	return version
}
