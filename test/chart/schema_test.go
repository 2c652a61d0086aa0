package chart_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestTheSchemaRefuses says which values are refused, and what the message names.
func TestTheSchemaRefuses(t *testing.T) {
	for flags, want := range map[string]string{
		"facade.replcas=3":                             "'replcas' not allowed",
		"nonsense=1":                                   "'nonsense' not allowed",
		"facade.replicas=-1":                           "/facade/replicas",
		"facade.replicas=two":                          "/facade/replicas",
		"facade.resources.limit.memory=1Gi":            "'limit' not allowed",
		"hooks.resources.limits.cpu=two":               "/hooks/resources/limits/cpu",
		"hooks.resources.limits.memory=64MB":           "/hooks/resources/limits/memory",
		"facade.podDisruptionBudget.minAvailable=half": "/facade/podDisruptionBudget/minAvailable",
		"facade.podDisruptionBudget.minAvailable=1,facade.podDisruptionBudget.maxUnavailable=1": "/facade/podDisruptionBudget",
		"facade.maxBlock=60":                                           "/facade/maxBlock",
		"facade.service.type=ExternalName":                             "/facade/service/type",
		"facade.peers.enabled=sometimes":                               "/facade/peers/enabled",
		"facade.extraArgs={facade-max-block=1s}":                       "/facade/extraArgs/0",
		"facade.audiences={a b}":                                       "/facade/audiences/0",
		"facade.routes.functions.charge=x":                             "/facade/routes",
		"facade.routes.routes[0].url=http://x":                         "/facade/routes/routes/0",
		"webhook.replicas=0":                                           "/webhook/replicas",
		"webhook.extraEnv[0].value=1":                                  "/webhook/extraEnv/0",
		"image.digest=abc":                                             "/image/digest",
		"image.tag=a b":                                                "/image/tag",
		"image.repository=":                                            "/image/repository",
		"image.pullPolicy=Sometimes":                                   "/image/pullPolicy",
		"fullnameOverride=Locks":                                       "/fullnameOverride",
		"fullnameOverride=1locks":                                      "/fullnameOverride",
		`commonLabels.app\.kubernetes\.io/name=x`:                      "/commonLabels/app.kubernetes.io~1name",
		`facade.podLabels.app\.kubernetes\.io/component=x`:             "/facade/podLabels",
		`metrics.serviceMonitor.labels.app\.kubernetes\.io/instance=x`: "/metrics/serviceMonitor/labels",
		"highAvailability=3":                                           "/highAvailability",
		"priorityClass.value=2000000000":                               "/priorityClass/value",
		"settings.defaultTTL=five minutes":                             "/settings/defaultTTL",
		"settings.maxLocksPerNamespace=-1":                             "/settings/maxLocksPerNamespace",
		"settings.logLevel=9":                                          "/settings/logLevel",
		"settings.holderKinds=Deployment":                              "/settings/holderKinds",
		"nameOverride=" + strings.Repeat("b", 31):                      "/nameOverride",
		"global.imagePullSecrets={registry}":                           "/global/imagePullSecrets/0",
		"global.imageRegistry=registry.example.com":                    "there is no value global.imageRegistry",
		"facade.service=null":                                          "at '/facade': missing property 'service'",
		"crds.install=null":                                            "at '/crds': missing property 'install'",
		"revisionHistoryLimit=-1":                                      "/revisionHistoryLimit",
		"securityContext=none":                                         "/securityContext",
		"securityContext.runAsUsr=1":                                   "'runAsUsr' not allowed",
		"containerSecurityContext.seccompProfile.typ=Unconfined":       "'typ' not allowed",
		"hooks.tolerations[0].ky=infra":                                "'ky' not allowed",
		"webhook.affinity.nodeAffinity.x=y":                            "'x' not allowed",
		"controllers.topologySpreadConstraints[0].topologyKy=rack":     "'topologyKy' not allowed",
		"facade.extraEnv[0].name=A,facade.extraEnv[0].vale=1":          "'vale' not allowed",
		"facade.extraVolumes[0].secrt.secretName=a":                    "'secrt' not allowed",
		"facade.extraVolumeMounts[0].mountpath=/a":                     "'mountpath' not allowed",
		"networkPolicy.facadeFrom[0].ipBlok.cidr=10.0.0.0/8":           "'ipBlok' not allowed",
		"networkPolicy.extraEgress[0].ports[0].prt=53":                 "'prt' not allowed",
		"holderRules[0].resource={deployments}":                        "'resource' not allowed",
		"httpRoute.parentRefs[0].nam=public":                           "'nam' not allowed",
		"podDnsPolicy=Cluster":                                         "/podDnsPolicy",
		"podDnsConfig.servers={10.0.0.10}":                             "'servers' not allowed",
		"serviceIPFamilyPolicy=DualStack":                              "/serviceIPFamilyPolicy",
		"serviceIPFamilies={IPv5}":                                     "/serviceIPFamilies/0",
		"extraObjects[0]=":                                             "/extraObjects/0",
		"facade.strategy.type=Recreate":                                "/facade/strategy/type",
		"facade.livenessProbe.periodSeconds=0":                         "/facade/livenessProbe/periodSeconds",
		"facade.readinessProbe.httpGet.path=/":                         "'httpGet' not allowed",
		"facade.service.loadBalancerClass=internal":                    "/facade/service/loadBalancerClass",
		"facade.service.type=LoadBalancer,facade.service.loadBalancerSourceRanges={10.0.0.1}":              "/facade/service/loadBalancerSourceRanges/0",
		"facade.serviceAccount.create=false":                                                               "/facade/serviceAccount/name",
		"facade.serviceAccount.name=default":                                                               "/facade/serviceAccount/name",
		"facade.serviceAccount.name=lock-operator-webhook":                                                 "give each component its own serviceAccount.name",
		"facade.serviceAccount.name=lock-operator-test":                                                    "Helm deletes those of hooks",
		"controllers.serviceAccount.name=lock-operator-uninstall":                                          "Helm deletes those of hooks",
		"webhook.securePort=443":                                                                           "/webhook/securePort",
		"webhook.securePort=8444":                                                                          "/webhook/securePort",
		"webhook.timeoutSeconds=31":                                                                        "/webhook/timeoutSeconds",
		"webhook.namespaceSelector.matchLabels.a=b":                                                        "'namespaceSelector' not allowed",
		"webhook.hostNetwork=true,namespace.create=true":                                                   "set namespace.create false",
		"metrics.serviceMonitor.scrapeTimeout=10":                                                          "/metrics/serviceMonitor/scrapeTimeout",
		"certificates.provider=certmanager":                                                                "/certificates/provider",
		"certificates.provider=existing":                                                                   "/certificates/existing/authority",
		"certificates.provider=existing,certificates.existing.authority=LS0tLS1C":                          "/certificates/existing/authority",
		"certificates.certManager.issuer.kind=ClusterIssuer":                                               "/certificates/certManager/issuer",
		"networkPolicy.apiServerPorts={}":                                                                  "/networkPolicy/apiServerPorts",
		"networkPolicy.apiServerPorts={70000}":                                                             "/networkPolicy/apiServerPorts/0",
		"ingress.enabled=true":                                                                             "/ingress/hosts",
		"ingress.enabled=true,ingress.hosts={a.example.com},ingress.paths={v1}":                            "/ingress/paths/0",
		"httpRoute.enabled=true":                                                                           "/httpRoute/parentRefs",
		"metrics.serviceMonitor.reader.name=prometheus":                                                    "/metrics/serviceMonitor/reader/namespace",
		"metrics.serviceMonitor.authorization.credentials.name=reader":                                     "/metrics/serviceMonitor/authorization/credentials",
		"metrics.serviceMonitor.authorization.type=Bearer":                                                 "/metrics/serviceMonitor/authorization",
		"metrics.alerts.enabled=true,metrics.alerts.disabled={LockOperatorNothing}":                        "there is no alert LockOperatorNothing",
		"metrics.serviceMonitor.interval=often":                                                            "/metrics/serviceMonitor/interval",
		"metrics.serviceMonitor.reader.name=prometheus,metrics.serviceMonitor.reader.namespace=Monitoring": "/metrics/serviceMonitor/reader/namespace",
	} {
		t.Run(flags, func(t *testing.T) {
			_, err := helm(t.Context(), "template", release, chart, "--set="+flags)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error about %s", err, want)
			}
		})
	}
}

// TestAParentChartHasGlobalValuesOfItsOwn shows that the chart refuses global values only where they can be for no other chart.
func TestAParentChartHasGlobalValuesOfItsOwn(t *testing.T) {
	parent := t.TempDir()
	child, err := filepath.Abs(chart)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		os.WriteFile(filepath.Join(parent, "Chart.yaml"), []byte("{apiVersion: v2, name: parent, version: 0.1.0}"), 0o600),
		os.Mkdir(filepath.Join(parent, "charts"), 0o700),
		os.Symlink(child, filepath.Join(parent, "charts", "lock-operator")),
	); err != nil {
		t.Fatal(err)
	}
	if _, err := helm(t.Context(), "template", release, parent, "--set=global.imageRegistry=registry.example.com"); err != nil {
		t.Error(err)
	}
}

// TestNoDefaultIsTakenAway finds values whose default null would take away, although templates rely on them. A section of the values
// that has nothing but comments is null. Resources, probes, labels and security contexts are as the user wants them.
func TestNoDefaultIsTakenAway(t *testing.T) {
	var schema, values map[string]any
	for file, into := range map[string]*map[string]any{"values.schema.json": &schema, "values.yaml": &values} {
		text, err := os.ReadFile(filepath.Join(chart, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, into); err != nil {
			t.Fatal(err)
		}
	}
	in := func(object map[string]any, key string) map[string]any {
		found, _ := object[key].(map[string]any)
		return found
	}
	var walk func(path string, values, described map[string]any)
	walk = func(path string, values, described map[string]any) {
		required, _ := described["required"].([]any)
		for key, value := range values {
			property := in(in(described, "properties"), key)
			reference, _ := property["$ref"].(string)
			name := strings.TrimPrefix(reference, "#/definitions/")
			if name != "" {
				property = in(in(schema, "definitions"), name)
			}
			list, isList := value.([]any)
			section, isSection := value.(map[string]any)
			isEmpty := value == nil || value == "" || value == false || isList && len(list) == 0 || isSection && len(section) == 0
			isFree := isSection && (property["properties"] == nil || slices.Contains([]string{"resources", "probe", "moreLabels", "PodSecurityContext", "SecurityContext"}, name))
			if isEmpty || isFree || path+key == "global" {
				continue
			}
			if !slices.Contains(required, any(key)) {
				t.Errorf("the schema does not require %s%s", path, key)
			}
			walk(path+key+".", section, property)
		}
	}
	walk("", values, schema)
}

// TestDurationsThatDoNotFitAreRefused says which durations of certificates are refused, with what to do: the controllers
// would not start with them, and certificates of cert-manager would outlive the authority which signed them.
func TestDurationsThatDoNotFitAreRefused(t *testing.T) {
	for flags, want := range map[string]string{
		"lifetime=1h,authorityLifetime=1h": "",
		"lifetime=720h":                    "",
		"lifetime=59m":                     "certificates.lifetime, 59m, must be at least 1h",
		"authorityLifetime=3599s":          "certificates.authorityLifetime, 3599s, must be at least 1h",
		"provider=cert-manager,lifetime=720h,authorityLifetime=2880h": "",
		"provider=cert-manager,lifetime=720h,authorityLifetime=2879h": "certificates.authorityLifetime, 2879h, must be at least 4 times certificates.lifetime, 720h",
		"provider=cert-manager,authorityLifetime=4h":                  "",
		"provider=cert-manager,authorityLifetime=239m":                "certificates.authorityLifetime, 239m, must be at least 4h",
		"provider=cert-manager,lifetime=59m":                          "certificates.lifetime, 59m, must be at least 1h",
	} {
		t.Run(flags, func(t *testing.T) {
			_, err := helm(t.Context(), "template", release, chart, "--set=certificates."+strings.ReplaceAll(flags, ",", ",certificates."))
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

// TestValuesThatFailTogetherAreRefused, and each of them alone is not.
func TestValuesThatFailTogetherAreRefused(t *testing.T) {
	for flags, want := range map[string]string{
		"settings.maxTTL=1m,settings.defaultTTL=1m":                                              "",
		"settings.maxTTL=1m,settings.defaultTTL=61s":                                             "settings.maxTTL, 1m, is less than settings.defaultTTL, 61s",
		"webhook.clientAuthority.names={front-proxy-client}":                                     "set webhook.clientAuthority.configMap",
		"webhook.clientAuthority.names={front-proxy-client},webhook.clientAuthority.configMap=a": "",
		"metrics.serviceMonitor.scrapeTimeout=2m":                                                "",
		"metrics.serviceMonitor.scrapeTimeout=31s,metrics.serviceMonitor.interval=30s":           "metrics.serviceMonitor.scrapeTimeout, 31s, is more than metrics.serviceMonitor.interval, 30s",
		"metrics.serviceMonitor.scrapeTimeout=30s,metrics.serviceMonitor.interval=30s":           "",
		"podDnsPolicy=None": "set podDnsConfig.nameservers",
		"podDnsPolicy=None,podDnsConfig.searches={example.com}":                                    "set podDnsConfig.nameservers",
		"podDnsPolicy=None,podDnsConfig=null":                                                      "set podDnsConfig.nameservers",
		"serviceIPFamilies={IPv6,IPv4}":                                                            "set PreferDualStack or RequireDualStack",
		"serviceIPFamilies={IPv6,IPv4},serviceIPFamilyPolicy=PreferDualStack":                      "",
		"serviceIPFamilies={IPv6},serviceIPFamilyPolicy=SingleStack":                               "",
		"serviceIPFamilies={IPv6,IPv4},serviceIPFamilyPolicy=SingleStack":                          "set PreferDualStack or RequireDualStack",
		"facade.strategy.rollingUpdate.maxSurge=0":                                                 "",
		"facade.strategy.rollingUpdate.maxSurge=0,facade.strategy.rollingUpdate.maxUnavailable=0%": "/facade/strategy/rollingUpdate",
	} {
		t.Run(flags, func(t *testing.T) {
			_, err := helm(t.Context(), "template", release, chart, "--set="+flags)
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}

// TestEveryValueIsDescribed reads the generated documentation: helm-docs leaves the description of a value
// empty that has no comment.
func TestEveryValueIsDescribed(t *testing.T) {
	text, err := os.ReadFile(chart + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	if rows := strings.Count(string(text), "\n| "); rows < 100 {
		t.Errorf("there are only %d rows", rows)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasSuffix(line, "|  |\n") {
			t.Errorf("no description: %s", line)
		}
	}
}
