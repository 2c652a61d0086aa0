package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBannerSaysHowToReachTheCluster(t *testing.T) {
	working, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	var banner strings.Builder
	announcement{
		Facade:     "http://127.0.0.1:8080",
		Kubeconfig: filepath.Join(working, ".dev", "kubeconfig"),
		Kubectl:    "/other place/kubectl",
		Logs:       filepath.Join(working, ".dev", "logs"),
	}.print(&banner, "Ctrl-C")

	for _, want := range []string{
		"kubeconfig  .dev/kubeconfig",
		"http://127.0.0.1:8080/forrst",
		"curl -sS http://127.0.0.1:8080/v1/namespaces/default/locks/billing:close -H 'Content-Type: application/json' -d '{",
		"'/other place/kubectl' --kubeconfig .dev/kubeconfig get locks",
		"export KUBECONFIG=.dev/kubeconfig\n  bin/kubectl-lock who billing:report -n default\n",
		"Stop it with Ctrl-C.",
	} {
		if !strings.Contains(banner.String(), want) {
			t.Errorf("the banner lacks %q:\n%s", want, &banner)
		}
	}
}

func TestBannerSaysWherePrometheusIs(t *testing.T) {
	for address, want := range map[string]string{
		"":                       "logs        \n\nTake",
		"http://127.0.0.1:41234": "logs        \n  Prometheus  http://127.0.0.1:41234\n",
	} {
		var banner strings.Builder
		announcement{Facade: "http://127.0.0.1:8080", Prometheus: address}.print(&banner, "Ctrl-C")
		if !strings.Contains(banner.String(), want) {
			t.Errorf("with Prometheus at %q, the banner lacks %q:\n%s", address, want, &banner)
		}
	}
}

func TestBannerSaysHowToAuthenticate(t *testing.T) {
	var banner strings.Builder
	announcement{Facade: "http://127.0.0.1:8080", Kubectl: "/k8s/kubectl", Kubeconfig: "/kubeconfig", Token: "/dev cluster/worker.token"}.print(&banner, "Ctrl-C")
	for _, want := range []string{
		`-H "Authorization: Bearer $(cat '/dev cluster/worker.token')"`,
		"create token breaker --namespace payments",
		"/v1/namespaces/payments/locks/billing:close -H",
	} {
		if !strings.Contains(banner.String(), want) {
			t.Errorf("the banner lacks %q:\n%s", want, &banner)
		}
	}
}

func TestBannerOfAClusterWithoutOperatorNamesNoFacade(t *testing.T) {
	var banner strings.Builder
	announcement{Kubectl: "/k8s/kubectl", Kubeconfig: "/kubeconfig"}.print(&banner, "Ctrl-C")
	if text := banner.String(); !strings.Contains(text, "/kubeconfig") || strings.Contains(text, "curl") {
		t.Errorf("the banner has no kubeconfig, or a call of the façade:\n%s", text)
	}
}

func TestAcquireCallIsJSONInSingleQuotes(t *testing.T) {
	if !json.Valid([]byte(acquireCall)) {
		t.Error("acquireCall is not JSON")
	}
	if strings.Contains(acquireCall, "'") {
		t.Error("a single quote would end the shell's word")
	}
}

func TestThePageOnForrstShowsTheCallOfTheBanner(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "forrst.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "curl -sS http://127.0.0.1:8080/forrst -H 'Content-Type: application/json' -d '"+acquireCall+"'") {
		t.Error("docs/forrst.md shows another call")
	}
}

func TestShellWord(t *testing.T) {
	for path, want := range map[string]string{
		"bin/k8s/kubectl": "bin/k8s/kubectl",
		"/my clone/k":     "'/my clone/k'",
		"/it's/k":         `'/it'\''s/k'`,
	} {
		if got := shellWord(path); got != want {
			t.Errorf("shellWord(%q) = %s, want %s", path, got, want)
		}
	}
}
