package chart_test

import (
	"strings"
	"testing"
)

// TestWhatTheOperatorWritesIsNoDifference compares the manifests with what is in the cluster as tools that apply a
// repository do: by the last applied configuration, and by server-side apply. Neither may see, or undo, what the
// operator writes into the objects.
func TestWhatTheOperatorWritesIsNoDifference(t *testing.T) {
	const (
		namespace = "repository"
		written   = "-o=jsonpath={.items[*].data}{.items[*].webhooks[*].clientConfig.caBundle}"
		bundle    = `{"op":"add","path":"/webhooks/0/clientConfig/caBundle","value":"Cg=="}`
	)
	cluster := start(t)
	cluster.restricted(t, namespace)
	defer cluster.must(t, "delete", "namespace", namespace, "--wait=false")
	manifests := filledByTheOperator(t, namespace)
	kubectl := func(arguments ...string) {
		t.Helper()
		if _, err := cluster.kubectl(t.Context(), manifests, append(arguments, "-f", "-")...); err != nil {
			t.Error(err)
		}
	}
	for name, flags := range map[string][]string{"by the last applied configuration": nil, "by server-side apply": {"--server-side"}} {
		t.Run(name, func(t *testing.T) {
			kubectl(append([]string{"apply"}, flags...)...)
			defer kubectl("delete")
			for _, configuration := range []string{"mutatingwebhookconfiguration/lock-operator", "validatingwebhookconfiguration/lock-operator-audit", "validatingwebhookconfiguration/lock-operator-guards"} {
				cluster.must(t, "patch", configuration, "--field-manager=operator", "--type=json", "-p=["+bundle+"]")
			}
			for _, object := range []string{"secret/lock-operator-authority", "secret/lock-operator-facade", "configmap/lock-operator-authority"} {
				cluster.must(t, "patch", object, "-n", namespace, "--field-manager=operator", "--type=merge", `-p={"data":{"ca.crt":"Cg=="}}`)
			}
			all := []string{"get", "secrets,configmaps,mutatingwebhookconfigurations,validatingwebhookconfigurations", "-n", namespace, "-l=app.kubernetes.io/name=lock-operator", written}
			before := cluster.must(t, all...)
			if strings.Count(before, "Cg==") != 6 {
				t.Fatalf("the operator has written %s", before)
			}
			kubectl(append([]string{"diff"}, flags...)...)
			kubectl(append([]string{"apply"}, flags...)...)
			if after := cluster.must(t, all...); after != before {
				t.Errorf("applying again leaves %s of %s", after, before)
			}
		})
	}
}

// filledByTheOperator renders the objects of the chart into which the operator writes.
func filledByTheOperator(t *testing.T, namespace string) string {
	t.Helper()
	var chosen []string
	kinds := map[string]int{}
	for _, object := range renderAs(t, release, namespace, "--set=guards.enabled=true") {
		kind := object.GetKind()
		_, isHook := object.GetAnnotations()["helm.sh/hook"]
		if isHook || kind != "Secret" && kind != "ConfigMap" && !strings.HasSuffix(kind, "WebhookConfiguration") {
			continue
		}
		kinds[kind]++
		text, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		chosen = append(chosen, string(text))
	}
	if kinds["Secret"] != 4 || kinds["ConfigMap"] != 1 || kinds["MutatingWebhookConfiguration"] != 1 || kinds["ValidatingWebhookConfiguration"] != 2 {
		t.Fatalf("the chart has %v", kinds)
	}
	return strings.Join(chosen, "\n---\n")
}
