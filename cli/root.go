package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/session"
	"forrst.dev/lock-operator/cli/similar"
	"forrst.dev/lock-operator/cli/supervise"
)

// completionPlugin is the program that kubectl asks to complete the arguments of this one.
const completionPlugin = "kubectl_complete-lock"

// Args returns the arguments of a command line without the name of the program. Under the
// name kubectl_complete-lock, as a link or a copy, the program completes the arguments.
func Args(commandLine []string) []string {
	if len(commandLine) == 0 {
		return nil
	}
	program := strings.TrimSuffix(filepath.Base(commandLine[0]), ".exe")
	if program == completionPlugin {
		return append([]string{cobra.ShellCompRequestCmd}, commandLine[1:]...)
	}
	return commandLine[1:]
}

// Main runs the command that args name, without the name of the program, and returns the
// exit status.
func Main(ctx context.Context, args []string, options session.Options) int {
	if supervise.RunWatcher(supervise.NewClock()) {
		return 0
	}
	s := session.New(options)
	defer s.Close()
	// Cobra does not tell whether a word to complete comes right behind a --.
	s.IsBehindDash = slices.Contains(args[:max(0, len(args)-1)], "--")
	root := New(s) // completions have the context of their command
	root.SetArgs(args)
	return failure.Print(s.ErrOut, root.ExecuteContext(ctx), s.Command("doctor"))
}

// New returns the command "kubectl lock" with all others.
func New(s *session.Session) *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-lock",
		Short: "See who holds a lock, and run programs under one",
		Long: `See who holds a lock, since when and why, and run programs under a lock.

A lock has a KEY, such as billing:report, in a namespace. One holder has it at a
time, until it is released or its time is over.

Exit statuses: 0 done; 200 failed; 201 the lock is held; 202 the lock is not held, or was lost;
203 no answer; 204 refused, or not permitted; 205 wrong arguments; 206 "run" could not prepare
its command.`,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl lock"},
		SilenceErrors: true,
		SilenceUsage:  true,

		Version:           versionLine(s),
		Args:              knownCommand,
		RunE:              func(command *cobra.Command, _ []string) error { return command.Help() },
		PersistentPreRunE: func(command *cobra.Command, _ []string) error { return s.Check(command.Flags()) },
	}
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.ErrOut)
	root.SetVersionTemplate("{{.Version}}")
	root.Flags().Bool("version", false, "Show the version of this program") // Else it would be -v as well.
	s.AddFlags(root.PersistentFlags())
	_ = root.RegisterFlagCompletionFunc("namespace", completeNamespaces(s))
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return failure.New(failure.Usage, err.Error(), append(aboutFlag(s, command, err), "see "+command.CommandPath()+" --help")...)
	})
	const look, hold, mend, other = "look", "hold", "mend", "other"
	root.AddGroup(
		&cobra.Group{ID: look, Title: "Look:"},
		&cobra.Group{ID: hold, Title: "Hold a lock:"},
		&cobra.Group{ID: mend, Title: "Clear the way:"},
		&cobra.Group{ID: other, Title: "Other:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, command := range commands {
			command.GroupID = group
			root.AddCommand(command)
		}
	}
	add(look, newList(s), newWho(s), newWait(s), newTop(s))
	add(hold, newRun(s), newAcquire(s), newRenew(s), newRelease(s))
	add(mend, newFree(s), newFreeze(s), newThaw(s))
	add(other, newDoctor(s), newVersion(s))
	root.SetHelpCommandGroupID(other)
	root.SetCompletionCommandGroupID(other)
	refuseUnknown(root)
	return root
}

// refuseUnknown has the commands that cobra adds fail for arguments that they do not know.
func refuseUnknown(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, command := range root.Commands() {
		switch command.Name() {
		case "help":
			help := command.Run
			command.Run, command.RunE = nil, func(command *cobra.Command, args []string) error {
				if found, _, err := root.Find(args); len(args) > 0 && (err != nil || found == root) {
					return knownCommand(root, args)
				}
				help(command, args)
				return nil
			}
		case "completion":
			command.Args = func(command *cobra.Command, args []string) error {
				if len(args) == 0 {
					return nil
				}
				return failure.New(failure.Usage, fmt.Sprintf("there is no completion for %q", args[0]), "see the shells: "+command.CommandPath()+" --help")
			}
			command.RunE = func(command *cobra.Command, _ []string) error { return command.Help() }
		}
	}
}

// aboutFlag says what is probably meant by a flag that does not exist.
func aboutFlag(s *session.Session, command *cobra.Command, err error) []string {
	unknown, isUnknown := errors.AsType[*pflag.NotExistError](err)
	switch {
	case !isUnknown:
		return nil
	case command.Name() == "run":
		return append(likeFlag(command, unknown.GetSpecifiedName()), "if the flag is one of your command, put -- before the command: "+s.Command("run", "KEY", "--", "COMMAND"))
	case command.Name() == "free" && unknown.GetSpecifiedName() == "force":
		return []string{"to take a lock from another holder, say why, which goes on record: " + s.Command("free", "KEY", "--reason", "WHY")}
	}
	return likeFlag(command, unknown.GetSpecifiedName())
}

// likeFlag proposes flags that are similar to an unknown one.
func likeFlag(command *cobra.Command, typed string) (do []string) {
	var names []string
	command.Flags().VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden {
			names = append(names, flag.Name)
		}
	})
	if like := similar.To(typed, names); len(like) > 0 {
		do = append(do, "did you mean --"+strings.Join(like, ", or --")+"?")
	}
	return do
}

// knownCommand refuses an unknown command, and proposes similar ones.
func knownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var do []string
	root.SuggestionsMinimumDistance = 2
	if like := root.SuggestionsFor(args[0]); len(like) > 0 {
		do = append(do, "did you mean "+root.CommandPath()+" "+strings.Join(like, ", or ")+"?")
	}
	return failure.New(failure.Usage, fmt.Sprintf("there is no command %q", args[0]), append(do, "see all commands: "+root.CommandPath()+" --help")...)
}
