package session

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"forrst.dev/lock-operator/cli/failure"
	"forrst.dev/lock-operator/cli/terminal"
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
	words = append(words, flagsOf("-n", *s.config.Namespace)...)
	words = append(words, s.connection()...)
	words = append(words, flagsOf("--server", s.server)...)
	words = append(words, flagsOf("--token-file", s.tokenFile)...)
	for _, arg := range after {
		words = append(words, Quote(arg))
	}
	return strings.Join(words, " ")
}

// Kubectl is [Session.Command] for a command of kubectl itself, whose arguments have the namespace if it is needed. A façade
// and its authority are none of kubectl's.
func (s *Session) Kubectl(args ...string) string {
	words := []string{"kubectl"}
	for _, arg := range args {
		words = append(words, Quote(arg))
	}
	if !s.UsesFacade() {
		words = append(words, s.connection()...)
	}
	return strings.Join(words, " ")
}

// connection returns the flags that say which cluster is asked as whom, but no secret.
func (s *Session) connection() (words []string) {
	for _, flag := range []struct {
		name   string
		values []string
	}{
		{"--context", []string{*s.config.Context}}, {"--kubeconfig", []string{*s.config.KubeConfig}},
		{"--cluster", []string{*s.config.ClusterName}}, {"--user", []string{*s.config.AuthInfoName}},
		{"--as", []string{*s.config.Impersonate}}, {"--as-uid", []string{*s.config.ImpersonateUID}},
		{"--as-group", *s.config.ImpersonateGroup}, {"--as-user-extra", *s.config.ImpersonateUserExtra},
		{"--client-certificate", []string{*s.config.CertFile}}, {"--client-key", []string{*s.config.KeyFile}},
		{"--certificate-authority", []string{*s.config.CAFile}}, {"--tls-server-name", []string{*s.config.TLSServerName}},
	} {
		words = append(words, flagsOf(flag.name, flag.values...)...)
	}
	if *s.config.Insecure {
		words = append(words, "--insecure-skip-tls-verify")
	}
	return words
}

// flagsOf returns a flag once for each value that is not empty.
func flagsOf(name string, values ...string) (words []string) {
	for _, value := range values {
		if value != "" {
			words = append(words, name, Quote(value))
		}
	}
	return words
}

var plainWord = regexp.MustCompile(`^[-A-Za-z0-9_./:=@,+%]+$`)

// Quote writes a word so that a POSIX shell reads it as one. One with hidden characters, which a copy from a terminal loses,
// has their bytes in octal, for bash and zsh.
func Quote(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	if strings.ContainsFunc(word, terminal.IsHidden) {
		return "$'" + octal(word) + "'"
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// octal escapes a word for the quotation marks of $'...'.
func octal(word string) string {
	var escaped strings.Builder
	for _, char := range word {
		switch {
		case char == '\\' || char == '\'':
			escaped.WriteString(`\` + string(char))
		case terminal.IsHidden(char):
			for _, octet := range []byte(string(char)) {
				fmt.Fprintf(&escaped, `\%03o`, octet)
			}
		default:
			escaped.WriteRune(char)
		}
	}
	return escaped.String()
}
