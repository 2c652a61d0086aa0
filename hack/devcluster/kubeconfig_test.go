package main

import (
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func TestKubeconfigNeedsNoOtherFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := writeKubeconfig(path, "https://127.0.0.1:6443", testCredentials(t).certificate, "secret"); err != nil {
		t.Fatal(err)
	}

	requireMode(t, path, 0o600)
	raw, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if raw.CurrentContext != "lock-operator-dev" {
		t.Errorf("current context = %q, want lock-operator-dev", raw.CurrentContext)
	}
	if got := raw.Contexts[raw.CurrentContext].Namespace; got != "default" {
		t.Errorf("namespace = %q, want default", got)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	if len(config.CAData) == 0 || config.BearerToken != "secret" {
		t.Error("certificate or token are not embedded")
	}
}
