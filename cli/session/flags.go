package session

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"forrst.dev/lock-operator/cli/failure"
)

// newConfigFlags returns kubectl's flags but --server, which names a façade here:
// kubectl's own is one of three ways to choose an API server, and a kubeconfig (--context,
// --cluster, --kubeconfig) does the same. See docs/cli.md.
func newConfigFlags() *genericclioptions.ConfigFlags {
	flags := genericclioptions.NewConfigFlags(true)
	flags.APIServer = nil
	return flags
}

// Persistent flags of the session's own.
const (
	serverFlag    = "server"
	tokenFileFlag = "token-file"
	showTimesFlag = "show-times"
)

// forBoth are the flags of kubectl that mean something for a façade, too.
var forBoth = map[string]bool{
	"namespace": true, "certificate-authority": true, "tls-server-name": true, "insecure-skip-tls-verify": true, "request-timeout": true,
}

// AddFlags adds the flags that all commands have.
func (s *Session) AddFlags(flags *pflag.FlagSet) {
	s.config.AddFlags(flags)
	flags.StringVar(&s.server, serverFlag, "", "URL of a façade to ask instead of an API server, for example https://lock-operator-facade.forrst-system.svc. No kubeconfig is read then")
	flags.StringVar(&s.tokenFile, tokenFileFlag, "", "File with the bearer token for the façade. Default: the pod's projected token, "+projectedTokenFile+", if there is one")
	flags.BoolVar(&s.showTimes, showTimesFlag, false, "Write times in RFC 3339, for machines, instead of how long ago or in how long")
}

// Check reports flags that do not go together. It is called before each command.
func (s *Session) Check(flags *pflag.FlagSet) error {
	if path := *s.config.KubeConfig; path != "" && !exists(path) {
		return failure.New(failure.Usage, fmt.Sprintf("--kubeconfig: there is no file %s", path), "name a kubeconfig that exists, or leave the flag out")
	}
	if !s.UsesFacade() {
		if s.tokenFile != "" {
			return failure.New(failure.Usage, "--token-file is for a façade, and no --server names one",
				"name the façade with --server URL", "for an API server, leave --token-file out")
		}
		return nil
	}
	known := genericclioptions.NewConfigFlags(false)
	ofKubectl := pflag.NewFlagSet("", pflag.ContinueOnError)
	known.AddFlags(ofKubectl)
	var misplaced []string
	flags.Visit(func(flag *pflag.Flag) {
		if flag.Name != serverFlag && ofKubectl.Lookup(flag.Name) != nil && !forBoth[flag.Name] {
			misplaced = append(misplaced, "--"+flag.Name)
		}
	})
	if len(misplaced) > 0 {
		return failure.New(failure.Usage, fmt.Sprintf("--server names a façade, for which %s has no meaning", strings.Join(misplaced, ", ")),
			"leave out --server to ask the API server of your kubeconfig",
			"leave out the other flags to ask the façade, which knows you by --token-file")
	}
	return nil
}

// UsesFacade reports whether the session asks a façade instead of an API server.
func (s *Session) UsesFacade() bool {
	return s.server != "" || s.options.Locks != nil && s.options.Cluster == nil
}

// Namespace returns the namespace of the flags or of the kubeconfig. With a façade it is empty
// unless a flag names one, and then means the caller's own. It is also empty if the kubeconfig
// cannot be read: [Session.Cluster] and [Session.Backend] return why.
func (s *Session) Namespace() string {
	if s.UsesFacade() || s.options.Cluster != nil {
		return *s.config.Namespace
	}
	namespace, _, _ := s.config.ToRawKubeConfigLoader().Namespace()
	return namespace
}

// Command returns a command for the user to type, with the flags that lead to the same
// place, such as "kubectl lock who billing:report -n payments".
func (s *Session) Command(args ...string) string {
	words := []string{"kubectl", "lock"}
	// What follows -- is the user's own command.
	before, after := args, []string(nil)
	if end := slices.Index(args, "--"); end >= 0 {
		before, after = args[:end], args[end:]
	}
	for _, arg := range before {
		words = append(words, Quote(arg))
	}
	for _, flag := range []struct{ name, value string }{
		{"-n", *s.config.Namespace}, {"--context", *s.config.Context}, {"--kubeconfig", *s.config.KubeConfig},
		{"--as", *s.config.Impersonate}, {"--server", s.server}, {"--token-file", s.tokenFile},
	} {
		if flag.value != "" {
			words = append(words, flag.name, Quote(flag.value))
		}
	}
	for _, arg := range after {
		words = append(words, Quote(arg))
	}
	return strings.Join(words, " ")
}

var plainWord = regexp.MustCompile(`^[-A-Za-z0-9_./:=@,+%]+$`)

// Quote writes a word so that a POSIX shell reads it as one.
func Quote(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
