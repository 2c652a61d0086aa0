package chart_test

import (
	"regexp"
	"strings"
	"testing"
)

// everything are the values that make each object appear.
const everything = "highAvailability=true,namespace.create=true,guards.enabled=true,lockPolicies.enabled=true,priorityClass.create=true," +
	"facade.routes.routes[0].functions={charge},facade.routes.routes[0].url=https://charge,holderRules[0].apiGroups={apps},holderRules[0].resources={deployments},holderRules[0].verbs={get}," +
	"metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.reader.name=prometheus,metrics.serviceMonitor.reader.namespace=monitoring," +
	"metrics.alerts.enabled=true,metrics.dashboard.enabled=true," +
	"ingress.enabled=true,ingress.hosts={locks.example.com},httpRoute.enabled=true,httpRoute.parentRefs[0].name=public"

func TestNamesOfReleases(t *testing.T) {
	for _, test := range []struct{ release, flags, want string }{
		{"lock-operator", "", "lock-operator"},
		{"lock-operator-canary", "", "lock-operator-canary"},
		{"team", "", "team-lock-operator"},
		{"team", "fullnameOverride=locks", "locks"},
		{strings.Repeat("a", 53), "", strings.Repeat("a", 26) + "-lock-operator"},
		{"team", "nameOverride=locks", "team-locks"},
		{"locks", "nameOverride=locks", "locks"},
		{strings.Repeat("a", 53), "nameOverride=" + strings.Repeat("b", 30), strings.Repeat("a", 9) + "-" + strings.Repeat("b", 30)},
	} {
		t.Run(test.release+" "+test.flags, func(t *testing.T) {
			rendered := renderAs(t, test.release, namespace, "--set="+test.flags)
			if rendered["Deployment/"+test.want+"-controllers"] == nil {
				t.Errorf("there is no Deployment %s-controllers", test.want)
			}
		})
	}
}

// TestReleasesThatServicesCannotBeNamedAfter: Helm lets the name of a release begin with a digit and have dots.
func TestReleasesThatServicesCannotBeNamedAfter(t *testing.T) {
	for _, name := range []string{"1team", "team.a"} {
		if _, err := helm(t.Context(), "template", name, chart); err == nil || !strings.Contains(err.Error(), "set fullnameOverride") {
			t.Errorf("for the release %s: %v", name, err)
		}
		if _, err := helm(t.Context(), "template", name, chart, "--set=fullnameOverride=locks"); err != nil {
			t.Error(err)
		}
	}
}

// TestNothingNamesAnotherInstallation renders everything elsewhere: what still named the placeholders or the
// names of config/ would exempt users of another namespace from admission.
func TestNothingNamesAnotherInstallation(t *testing.T) {
	for _, provider := range []string{"self", "cert-manager"} {
		rendered := renderAs(t, "team", "platform-locks", "--set="+everything+",certificates.provider="+provider)
		// The message of a policy names a role as an example.
		text := strings.ReplaceAll(rendered.text(t), "such as lock-operator-edit", "")
		for _, pattern := range []string{"forrst-system", "release-", `[^-\w]lock-operator-[a-z]`} {
			if found := regexp.MustCompile(".*"+pattern+".*").FindAllString(text, 5); found != nil {
				t.Errorf("with certificates of %s, there is %q", provider, found)
			}
		}
		// For Locks, Jobs, their status, guards, the fence, keys, and the policy that binds the controllers.
		for component, want := range map[string]int{"facade": 1, "controllers": 7, "webhook": 1} {
			if got := strings.Count(text, "'system:serviceaccount:platform-locks:team-lock-operator-"+component+"'"); got != want {
				t.Errorf("%d expressions name the %s, want %d", got, component, want)
			}
		}
		for name, object := range rendered {
			if object.GetNamespace() == "" && !isClusterScoped(object.GetKind()) || object.GetNamespace() != "" && object.GetNamespace() != "platform-locks" {
				t.Errorf("%s is in namespace %q", name, object.GetNamespace())
			}
		}
	}
}

// TestAccountsOfOtherNames wants every right, and every exemption from admission, for the accounts that pods run as, and for no other.
func TestAccountsOfOtherNames(t *testing.T) {
	former := render(t, "--set="+everything)
	changed := render(t, "--set="+everything+",facade.serviceAccount.name=ours-f,controllers.serviceAccount.name=ours-c,webhook.serviceAccount.name=ours-w")
	names := strings.NewReplacer("ours-f", "lock-operator-facade", "ours-c", "lock-operator-controllers", "ours-w", "lock-operator-webhook")
	accounts := regexp.MustCompile(`system:serviceaccount:forrst-system:(ours-[fcw]|lock-operator-(facade|controllers|webhook))\b`)
	for name, object := range former {
		renamed := changed[strings.NewReplacer("ServiceAccount/lock-operator-facade", "ServiceAccount/ours-f", "ServiceAccount/lock-operator-controllers", "ServiceAccount/ours-c",
			"ServiceAccount/lock-operator-webhook", "ServiceAccount/ours-w").Replace(name)]
		if renamed == nil {
			t.Errorf("there is no other %s", name)
			continue
		}
		want, got := objects{name: object}.text(t), objects{name: renamed}.text(t)
		for _, user := range accounts.FindAllString(got, -1) {
			if !strings.Contains(user, "ours-") {
				t.Errorf("%s still names %s", name, user)
			}
		}
		if subjects, ok := renamed.Object["subjects"].([]any); ok {
			for _, subject := range subjects {
				fields, _ := subject.(map[string]any)
				account, _ := fields["name"].(string)
				if fields["kind"] == "ServiceAccount" && changed["ServiceAccount/"+account] == nil && account != "prometheus" {
					t.Errorf("%s is for %s, which no pod runs as", name, account)
				}
			}
		}
		// Texts are folded elsewhere.
		if spaces := regexp.MustCompile(`\s+`); spaces.ReplaceAllString(names.Replace(got), " ") != spaces.ReplaceAllString(want, " ") {
			t.Errorf("%s differs by more than the accounts", name)
		}
	}
}

func isClusterScoped(kind string) bool {
	return regexp.MustCompile("^(Cluster|CustomResourceDefinition|FlowSchema|Mutating|Namespace$|PriorityClass|PriorityLevel|Validating)").MatchString(kind)
}

// TestPodsAreRestricted holds every pod, those of hooks included, against what the profile restricted asks for.
// The API server judges the same in TestEveryVariantIsAccepted, but for pods of Deployments only by a warning.
func TestPodsAreRestricted(t *testing.T) {
	rendered := render(t)
	for name, path := range rendered.pods(t) {
		for field, want := range map[string]any{
			"securityContext runAsNonRoot":                          true,
			"securityContext seccompProfile type":                   "RuntimeDefault",
			"containers 0 securityContext allowPrivilegeEscalation": false,
			"containers 0 securityContext readOnlyRootFilesystem":   true,
			"containers 0 securityContext capabilities drop 0":      "ALL",
			"containers 0 resources limits memory":                  rendered.at(t, name, path+"containers 0 resources limits memory"),
		} {
			if got := rendered.at(t, name, path+field); got == nil || got != want {
				t.Errorf("%s: %s is %v, want %v", name, field, got, want)
			}
		}
	}
}

// TestNoHookStays: Helm does not remove hooks with the release. What has failed stays until the next try, since it tells
// why.
func TestNoHookStays(t *testing.T) {
	hooks := 0
	for name, object := range render(t) {
		annotations := object.GetAnnotations()
		if annotations["helm.sh/hook"] == "" {
			continue
		}
		hooks++
		runs := object.GetKind() == "Pod" || object.GetKind() == "Job"
		want := "before-hook-creation,hook-succeeded"
		if !runs {
			want += ",hook-failed"
		}
		if got := annotations["helm.sh/hook-delete-policy"]; got != want {
			t.Errorf("%s is deleted on %q, want %q", name, got, want)
		}
		if got := annotations["helm.sh/hook-output-log-policy"]; runs != strings.Contains(got, "hook-failed") {
			t.Errorf("%s: the log is printed on %q", name, got)
		}
		if got := annotations["helm.sh/hook-weight"]; runs != (got == "0") {
			t.Errorf("%s has the weight %q: rights come before pods", name, got)
		}
	}
	if hooks != 8 {
		t.Errorf("found %d hooks, want 8", hooks)
	}
}
