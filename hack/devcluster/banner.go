package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// acquireCall acquires a lock and keeps it until its release or expiry. The lock extension
// needs a function to call, and ping is the cheapest. docs/forrst.md shows this call.
const acquireCall = `{
  "protocol": {"name": "forrst", "version": "0.1.0"},
  "id": "first",
  "call": {"function": "urn:cline:forrst:fn:ping"},
  "extensions": [{
    "urn": "urn:cline:forrst:ext:atomic-lock",
    "options": {"key": "billing:report", "scope": "global", "ttl": {"value": 5, "unit": "minute"},
      "auto_release": false}
  }]
}`

// otherIdentities explains how to call as another account.
const otherIdentities = `
The token belongs to the service account worker of the namespace payments. Tokens for the
worker of another namespace, and for an account that may force releases in payments:

  %[1]s create token worker --namespace shop --audience %[2]s
  %[1]s create token breaker --namespace payments --audience %[2]s
`

// print explains to the user how to use and stop the cluster.
func (a announcement) print(out io.Writer, stopWith string) {
	if a.Facade == "" {
		fmt.Fprintf(out, "\nThe control plane is ready, without operator; its kubeconfig is %s.\n\nStop it with %s.\n", displayPath(a.Kubeconfig), stopWith)
		return
	}
	kubectl := shellWord(displayPath(a.Kubectl)) + " --kubeconfig " + shellWord(displayPath(a.Kubeconfig))
	credentials, locks, others, namespace, prometheus := "", "get locks", "", "default", ""
	if a.Token != "" {
		credentials = fmt.Sprintf(" -H \"Authorization: Bearer $(cat %s)\"", shellWord(displayPath(a.Token)))
		locks, namespace = "get locks --all-namespaces", "payments"
		others = fmt.Sprintf(otherIdentities, kubectl, facadeAudience)
	}
	if a.Prometheus != "" {
		prometheus = "\n  Prometheus  " + a.Prometheus
	}
	fmt.Fprintf(out, `
The development cluster is ready.

  kubeconfig  %s
  façade      %s
  logs        %s%s

Take a lock by plain HTTP, which %s/docs describes:

  curl -sS %s/v1/namespaces/%s/locks/billing:close%s -H 'Content-Type: application/json' -d '{"ttl_seconds": 300}'

Take a lock by the Forrst protocol:

  curl -sS %s/forrst%s -H 'Content-Type: application/json' -d '%s'

See them:

  %s %s

Who holds one, and what you may do now; a command under a lock; the live view:

  export KUBECONFIG=%s
  bin/kubectl-lock who billing:report -n %s
  bin/kubectl-lock run billing:report -n %s -- sleep 60
  bin/kubectl-lock top -A
%s
Stop it with %s.
`, displayPath(a.Kubeconfig), a.Facade, displayPath(a.Logs), prometheus, a.Facade, a.Facade, namespace, credentials, a.Facade, credentials, strings.ReplaceAll(acquireCall, "\n", "\n  "), kubectl, locks, shellWord(displayPath(a.Kubeconfig)), namespace, namespace, others, stopWith)
}

// displayPath shortens a path below the working folder.
func displayPath(path string) string {
	working, err := os.Getwd()
	if err != nil {
		return path
	}
	relative, err := filepath.Rel(working, path)
	if err != nil || !filepath.IsLocal(relative) {
		return path
	}
	return relative
}

// shellWord quotes a path, where necessary, so that a shell takes it as one word.
func shellWord(path string) string {
	if !strings.ContainsAny(path, " \t\n'\"\\$`*?[]{}()<>|&;#~!") {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
