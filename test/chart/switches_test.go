package chart_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestSwitches says for each value what it makes appear, disappear or change. "Kind/name" means that the object
// is there, "!Kind/name" that it is not, and "component: --flag" that the component has the flag.
func TestSwitches(t *testing.T) {
	const provider = "certificates.provider="
	for _, test := range []struct {
		flags string
		want  []string
	}{
		{"", []string{
			"CustomResourceDefinition/locks.forrst.dev", "ClusterRole/lock-operator-edit", "FlowSchema/lock-operator",
			"ValidatingAdmissionPolicy/lock-operator-jobs", "NetworkPolicy/lock-operator-default-deny", "PodDisruptionBudget/lock-operator-facade",
			"Job/lock-operator-uninstall", "Pod/lock-operator-test",
			"!Namespace/forrst-system", "!ValidatingWebhookConfiguration/lock-operator-guards", "!ValidatingAdmissionPolicy/lock-operator-keys",
			"!Issuer/lock-operator", "!Certificate/lock-operator-facade", "!ServiceMonitor/lock-operator-facade", "!PrometheusRule/lock-operator",
			"!ConfigMap/lock-operator-dashboard", "!ConfigMap/lock-operator-routes", "!Ingress/lock-operator-facade", "!HTTPRoute/lock-operator-facade",
			"!PriorityClass/lock-operator", "!ClusterRole/lock-operator-holders",
			"controllers: --certificate-authority=lock-operator-authority", "controllers: --issue-certificate=lock-operator-facade",
			"controllers: --issue-certificate=lock-operator-webhook", "controllers: --issue-certificate=lock-operator-controllers",
		}},
		{"crds.install=false", []string{"!CustomResourceDefinition/locks.forrst.dev"}},
		{"namespace.create=true", []string{"Namespace/forrst-system"}},
		{"userRoles.create=false", []string{"!ClusterRole/lock-operator-view", "!ClusterRole/lock-operator-metrics", "ClusterRole/lock-operator-facade"}},
		{"guards.enabled=true", []string{
			"ValidatingWebhookConfiguration/lock-operator-guards", "ValidatingAdmissionPolicy/lock-operator-fence",
			"ClusterRole/lock-operator-guards", "ClusterRoleBinding/lock-operator-guards", "webhook: --guards",
		}},
		{"lockPolicies.enabled=true", []string{
			"ValidatingAdmissionPolicy/lock-operator-keys", "ValidatingAdmissionPolicy/lock-operator-durations",
			"ValidatingAdmissionPolicy/lock-operator-job-creators", "ValidatingAdmissionPolicyBinding/lock-operator-parameters",
		}},
		{"priorityAndFairness.enabled=false", []string{"!FlowSchema/lock-operator", "!PriorityLevelConfiguration/lock-operator"}},
		{"networkPolicy.enabled=false", []string{"!NetworkPolicy/lock-operator-facade", "!NetworkPolicy/lock-operator-default-deny", "!NetworkPolicy/lock-operator-hooks"}},
		{"networkPolicy.defaultDeny=false", []string{"NetworkPolicy/lock-operator-facade", "!NetworkPolicy/lock-operator-default-deny"}},
		{"facade.podDisruptionBudget.enabled=false", []string{"!PodDisruptionBudget/lock-operator-facade", "PodDisruptionBudget/lock-operator-webhook"}},
		{"priorityClass.create=true", []string{"PriorityClass/lock-operator"}},
		{provider + "cert-manager", []string{
			"Issuer/lock-operator-authority", "Issuer/lock-operator", "Certificate/lock-operator-authority",
			"Certificate/lock-operator-facade", "Certificate/lock-operator-webhook", "controllers: !--certificate-authority=lock-operator-authority",
		}},
		{provider + "cert-manager,certificates.certManager.issuer.name=internal,certificates.certManager.issuer.kind=ClusterIssuer", []string{
			"!Issuer/lock-operator-authority", "!Issuer/lock-operator", "!Certificate/lock-operator-authority", "Certificate/lock-operator-facade",
		}},
		{provider + "existing,certificates.existing.authority=-----BEGIN CERTIFICATE-----", []string{
			"!Certificate/lock-operator-facade", "!Role/lock-operator-certificates", "controllers: !--certificate-authority=lock-operator-authority",
		}},
		{"certificates.facadeDNSNames={locks.example.com},certificates.lifetime=48h,certificates.authorityLifetime=960h", []string{
			"controllers: --issue-certificate=lock-operator-facade,locks.example.com", "controllers: --certificate-lifetime=48h",
			"controllers: --authority-lifetime=960h",
		}},
		{"settings.defaultTTL=1m,settings.maxTTL=2h,settings.maxExpireAhead=0s,settings.clockSkewAllowance=2s,settings.logLevel=debug", []string{
			"facade: --default-ttl=1m", "controllers: --max-ttl=2h", "webhook: --max-expire-ahead=0s", "facade: --clock-skew-allowance=2s", "webhook: --zap-log-level=debug",
		}},
		{"settings.maxLocksPerNamespace=1000000,settings.maxJobsPerNamespace=0,settings.holderKinds={Deployment.apps,ConfigMap}", []string{
			"facade: --max-locks-per-namespace=1000000", "webhook: --max-jobs-per-namespace=0", "controllers: --holder-kinds=Deployment.apps,ConfigMap",
		}},
		{"extraArgs={--leader-elect=false},webhook.extraArgs={--webhook-max-connections=9}", []string{
			"facade: --leader-elect=false", "webhook: --leader-elect=false", "webhook: --webhook-max-connections=9", "facade: !--webhook-max-connections=9",
		}},
		{"facade.audiences={one,two},facade.maxBlock=2m", []string{"facade: --facade-audiences=one,two", "facade: --facade-max-block=2m"}},
		{"facade.replicas=2", []string{"Service/lock-operator-facade-peers", "facade: --peers-bind-address=:8445", "facade: --peers-service=lock-operator-facade-peers"}},
		{"facade.replicas=1", []string{
			"Service/lock-operator-facade-peers", "facade: --peers-bind-address=:8445", "facade: --controllers-user=$(CONTROLLERS_USER)",
			"controllers: --peers-service=lock-operator-facade-peers", "controllers: --peers-token-file=/peers/token", "controllers: !--peers-bind-address=:8445",
		}},
		{"highAvailability=true,facade.peers.enabled=false", []string{
			"!Service/lock-operator-facade-peers", "facade: !--peers-bind-address=:8445", "facade: !--controllers-user=$(CONTROLLERS_USER)",
			"controllers: !--peers-token-file=/peers/token",
		}},
		{"facade.routes.routes[0].functions={charge},facade.routes.routes[0].url=https://charge", []string{"ConfigMap/lock-operator-routes", "facade: --facade-routes=/routes/routes.yaml"}},
		{"webhook.clientAuthority.configMap=clients,webhook.clientAuthority.names={front-proxy-client}", []string{
			"webhook: --webhook-client-ca=/clients/ca.crt", "webhook: --webhook-client-names=front-proxy-client",
		}},
		{"holderRules[0].apiGroups={apps},holderRules[0].resources={deployments},holderRules[0].verbs={get}", []string{
			"ClusterRole/lock-operator-holders", "ClusterRoleBinding/lock-operator-holders",
		}},
		{"metrics.serviceMonitor.enabled=true", []string{
			"ServiceMonitor/lock-operator-facade", "ServiceMonitor/lock-operator-controllers", "ServiceMonitor/lock-operator-webhook",
			"Service/lock-operator-facade-metrics", "!ClusterRoleBinding/lock-operator-metrics",
		}},
		{"metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.reader.name=prometheus,metrics.serviceMonitor.reader.namespace=monitoring", []string{
			"ClusterRoleBinding/lock-operator-metrics",
		}},
		{"userRoles.create=false,metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.reader.name=prometheus,metrics.serviceMonitor.reader.namespace=monitoring", []string{
			"ClusterRoleBinding/lock-operator-metrics", "ClusterRole/lock-operator-metrics", "!ClusterRole/lock-operator-view",
		}},
		{"metrics.alerts.enabled=true", []string{"PrometheusRule/lock-operator"}},
		{"metrics.dashboard.enabled=true", []string{"ConfigMap/lock-operator-dashboard"}},
		{"ingress.enabled=true,ingress.hosts={locks.example.com}", []string{"Ingress/lock-operator-facade"}},
		{"httpRoute.enabled=true,httpRoute.parentRefs[0].name=public", []string{"HTTPRoute/lock-operator-facade", "BackendTLSPolicy/lock-operator-facade"}},
		{"httpRoute.enabled=true,httpRoute.parentRefs[0].name=public,httpRoute.backendTLSPolicy=false", []string{"!BackendTLSPolicy/lock-operator-facade"}},
		{"webhook.securePort=10260", []string{"webhook: --webhook-bind-address=:10260"}},
		{"facade.serviceAccount.create=false,facade.serviceAccount.name=ours", []string{"!ServiceAccount/lock-operator-facade", "!ServiceAccount/ours", "ServiceAccount/lock-operator-webhook"}},
		{"facade.serviceAccount.name=ours", []string{"!ServiceAccount/lock-operator-facade", "ServiceAccount/ours"}},
		{"uninstall.check=false", []string{"!Job/lock-operator-uninstall", "!ClusterRole/lock-operator-uninstall"}},
	} {
		t.Run(test.flags, func(t *testing.T) {
			rendered := render(t, "--set="+test.flags)
			for _, want := range test.want {
				component, flag, isFlag := strings.Cut(want, ": ")
				if !isFlag {
					name := strings.TrimPrefix(want, "!")
					if (rendered[name] != nil) != (name == want) {
						t.Errorf("want %s", want)
					}
					continue
				}
				name := strings.TrimPrefix(flag, "!")
				if slices.Contains(rendered.arguments(t, component), name) != (name == flag) {
					t.Errorf("want %s in %q", want, rendered.arguments(t, component))
				}
			}
		})
	}
}

// TestValues says what single fields become.
func TestValues(t *testing.T) {
	const facade, pod = "Deployment/lock-operator-facade", "spec template spec "
	authority := "-----BEGIN CERTIFICATE-----\n…\n"
	for _, test := range []struct {
		flags, object, path string
		want                any
	}{
		{"image.repository=r.example.com/locks,image.tag=v1", facade, pod + "containers 0 image", "r.example.com/locks:v1"},
		{"image.tag=v1,image.digest=sha256:" + strings.Repeat("a", 64), facade, pod + "containers 0 image", "lock-operator@sha256:" + strings.Repeat("a", 64)},
		{"image.pullPolicy=Never", facade, pod + "containers 0 imagePullPolicy", "Never"},
		{"imagePullSecrets[0].name=registry", facade, pod + "imagePullSecrets 0 name", "registry"},
		{"facade.replicas=5", facade, "spec replicas", 5.0},
		{"facade.replicas=0", facade, "spec replicas", 0.0},
		{"highAvailability=true", facade, "spec replicas", 3.0},
		{"highAvailability=true,facade.replicas=1", facade, "spec replicas", 1.0},
		{"highAvailability=true", facade, pod + "priorityClassName", "system-cluster-critical"},
		{"highAvailability=true,priorityClass.name=mine", facade, pod + "priorityClassName", "mine"},
		{"priorityClass.create=true", facade, pod + "priorityClassName", "lock-operator"},
		{"priorityClass.create=true", "PriorityClass/lock-operator", "value", 1000000.0},
		{"", "PodDisruptionBudget/lock-operator-facade", "spec maxUnavailable", 1.0},
		{"facade.replicas=1", "PodDisruptionBudget/lock-operator-facade", "spec minAvailable", nil},
		{"facade.podDisruptionBudget.maxUnavailable=0", "PodDisruptionBudget/lock-operator-facade", "spec maxUnavailable", 0.0},
		{"highAvailability=true", "PodDisruptionBudget/lock-operator-webhook", "spec maxUnavailable", 1.0},
		{"facade.podDisruptionBudget.maxUnavailable=25%", "PodDisruptionBudget/lock-operator-facade", "spec maxUnavailable", "25%"},
		{"facade.podDisruptionBudget.maxUnavailable=25%", "PodDisruptionBudget/lock-operator-facade", "spec minAvailable", nil},
		{"highAvailability=true,facade.podDisruptionBudget.minAvailable=2", "PodDisruptionBudget/lock-operator-facade", "spec minAvailable", 2.0},
		{"facade.podDisruptionBudget.minAvailable=2", "PodDisruptionBudget/lock-operator-facade", "spec maxUnavailable", nil},
		{"facade.topologySpreadConstraints[0].topologyKey=rack", facade, pod + "topologySpreadConstraints 0 topologyKey", "rack"},
		{"facade.nodeSelector.disk=ssd", facade, pod + "nodeSelector disk", "ssd"},
		{"facade.tolerations[0].key=infra", facade, pod + "tolerations 0 key", "infra"},
		{"facade.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey=rack", facade, pod + "affinity podAffinity requiredDuringSchedulingIgnoredDuringExecution 0 topologyKey", "rack"},
		{"facade.terminationGracePeriodSeconds=90", facade, pod + "terminationGracePeriodSeconds", 90.0},
		{"facade.resources.limits.memory=4Gi", facade, pod + "containers 0 resources limits memory", "4Gi"},
		{"facade.podLabels.team=a", facade, "spec template metadata labels team", "a"},
		{"facade.podAnnotations.team=a", facade, "spec template metadata annotations team", "a"},
		{"facade.podLabels.team=a", facade, "spec selector matchLabels team", nil},
		{"commonLabels.team=a", "MutatingWebhookConfiguration/lock-operator", "metadata labels team", "a"},
		{"commonLabels.team=a", facade, "spec template metadata labels team", "a"},
		{"commonAnnotations.team=a", "CustomResourceDefinition/locks.forrst.dev", "metadata annotations team", "a"},
		{"commonAnnotations.team=a", facade, "metadata annotations team", "a"},
		{`commonAnnotations.helm\.sh/resource-policy=delete`, "CustomResourceDefinition/locks.forrst.dev", "metadata annotations helm.sh/resource-policy", "keep"},
		{"extraEnv[0].name=A,extraEnv[0].value=1", facade, pod + "containers 0 env 3 name", "A"},
		{"facade.extraVolumes[0].name=v,facade.extraVolumeMounts[0].name=v", facade, pod + "volumes 2 name", "v"},
		{"facade.extraVolumes[0].name=v,facade.extraVolumeMounts[0].name=v", facade, pod + "containers 0 volumeMounts 2 name", "v"},
		{"", facade, pod + "volumes 1 projected sources 0 configMap name", "lock-operator-authority"},
		{"", facade, pod + "volumes 1 projected sources 1 serviceAccountToken audience", "peers.lock-operator.forrst.dev"},
		{"certificates.provider=cert-manager", facade, pod + "volumes 1 projected sources 0 secret name", "lock-operator-facade"},
		{"certificates.provider=existing,certificates.existing.facadeSecret=mine,certificates.existing.authority=" + authority, facade, pod + "volumes 1 projected sources 0 secret name", "mine"},
		{"facade.peers.enabled=false", facade, pod + "volumes 1", nil},
		{"", "Deployment/lock-operator-controllers", pod + "volumes 1 projected sources 0 configMap name", "lock-operator-authority"},
		{"", "Deployment/lock-operator-controllers", pod + "volumes 1 projected sources 1 serviceAccountToken audience", "peers.lock-operator.forrst.dev"},
		{"facade.peers.enabled=false", "Deployment/lock-operator-controllers", pod + "volumes 1", nil},
		{"facade.peers.enabled=false", facade, pod + "containers 0 env 1", nil},
		{"", "NetworkPolicy/lock-operator-facade", "spec ingress 2 ports 0 port", "peers"},
		{"", "NetworkPolicy/lock-operator-facade", "spec ingress 2 from 0 podSelector matchLabels app.kubernetes.io/component", "facade"},
		{"", "NetworkPolicy/lock-operator-facade", "spec ingress 2 from 1 podSelector matchLabels app.kubernetes.io/component", "controllers"},
		{"", "NetworkPolicy/lock-operator-controllers", "spec egress 1 to 0 podSelector matchLabels app.kubernetes.io/component", "facade"},
		{"facade.peers.enabled=false", "NetworkPolicy/lock-operator-controllers", "spec egress 1", nil},
		{"facade.peers.enabled=false", "NetworkPolicy/lock-operator-facade", "spec ingress 2", nil},
		{"facade.peers.enabled=false", "NetworkPolicy/lock-operator-facade", "spec egress 3", nil},
		{"facade.serviceAccount.annotations.role=a", "ServiceAccount/lock-operator-facade", "metadata annotations role", "a"},
		{"facade.service.type=LoadBalancer", "Service/lock-operator-facade", "spec type", "LoadBalancer"},
		{"facade.service.type=LoadBalancer,facade.service.loadBalancerClass=internal.example.com/lb", "Service/lock-operator-facade", "spec loadBalancerClass", "internal.example.com/lb"},
		{"facade.service.type=LoadBalancer,facade.service.loadBalancerSourceRanges={10.0.0.0/8}", "Service/lock-operator-facade", "spec loadBalancerSourceRanges", []any{"10.0.0.0/8"}},
		{"webhook.hostNetwork=true", "Deployment/lock-operator-webhook", pod + "hostNetwork", true},
		{"webhook.hostNetwork=true", "Deployment/lock-operator-webhook", pod + "dnsPolicy", "ClusterFirstWithHostNet"},
		{"webhook.hostNetwork=true,podDnsPolicy=Default", "Deployment/lock-operator-webhook", pod + "dnsPolicy", "Default"},
		// A pod more than there are nodes would wait for a free port for ever.
		{"webhook.hostNetwork=true", "Deployment/lock-operator-webhook", "spec strategy rollingUpdate", map[string]any{"maxSurge": 0.0, "maxUnavailable": 1.0}},
		{"webhook.hostNetwork=true,webhook.strategy.rollingUpdate.maxSurge=1", "Deployment/lock-operator-webhook", "spec strategy", map[string]any{"rollingUpdate": map[string]any{"maxSurge": 1.0}}},
		{"webhook.hostNetwork=true", facade, pod + "hostNetwork", nil},
		{"webhook.securePort=10260", "Deployment/lock-operator-webhook", pod + "containers 0 ports 0 containerPort", 10260.0},
		{"metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.scrapeTimeout=9s", "ServiceMonitor/lock-operator-webhook", "spec endpoints 0 scrapeTimeout", "9s"},
		{"facade.service.annotations.a=b", "Service/lock-operator-facade", "metadata annotations a", "b"},
		{"webhook.clientAuthority.configMap=clients,webhook.clientAuthority.key=proxy.crt", "Deployment/lock-operator-webhook", pod + "volumes 1 configMap items 0 key", "proxy.crt"},
		{"facade.routes.routes[0].functions={charge},facade.routes.routes[0].url=https://charge", "ConfigMap/lock-operator-routes", "data", map[string]any{"routes.yaml": "routes:\n- functions:\n  - charge\n  url: https://charge\n"}},
		{"", "CustomResourceDefinition/locks.forrst.dev", "metadata annotations helm.sh/resource-policy", "keep"},
		{"hooks.resources.limits.cpu=100m", "Job/lock-operator-uninstall", pod + "containers 0 resources limits", map[string]any{"cpu": "100m", "memory": "128Mi"}},
		{"hooks.resources.limits.cpu=100m", "Pod/lock-operator-test", "spec containers 0 resources limits cpu", "100m"},
		{"", "ClusterRole/lock-operator-edit", "metadata labels rbac.authorization.k8s.io/aggregate-to-edit", "true"},
		{"userRoles.aggregate=false", "ClusterRole/lock-operator-edit", "metadata labels rbac.authorization.k8s.io/aggregate-to-edit", nil},
		{"certificates.provider=cert-manager", "MutatingWebhookConfiguration/lock-operator", "metadata annotations", map[string]any{"cert-manager.io/inject-ca-from": "forrst-system/lock-operator-webhook"}},
		{"certificates.provider=cert-manager,guards.enabled=true", "ValidatingWebhookConfiguration/lock-operator-guards", "metadata annotations", map[string]any{"cert-manager.io/inject-ca-from": "forrst-system/lock-operator-webhook"}},
		{"certificates.provider=cert-manager", "ValidatingWebhookConfiguration/lock-operator-audit", "metadata annotations", map[string]any{"cert-manager.io/inject-ca-from": "forrst-system/lock-operator-webhook"}},
		{"certificates.provider=cert-manager,certificates.lifetime=48h", "Certificate/lock-operator-facade", "spec duration", "48h"},
		{"certificates.provider=cert-manager,certificates.authorityLifetime=96h", "Certificate/lock-operator-authority", "spec duration", "96h"},
		{"certificates.provider=cert-manager,certificates.authorityLifetime=96h", "Certificate/lock-operator-webhook", "spec duration", "86400s"},
		{"certificates.provider=cert-manager,certificates.authorityLifetime=96h,certificates.lifetime=24h", "Certificate/lock-operator-webhook", "spec duration", "24h"},
		{"certificates.provider=cert-manager,certificates.authorityLifetime=8640h", "Certificate/lock-operator-facade", "spec duration", "2160h"},
		{"certificates.provider=cert-manager,certificates.authorityLifetime=8639h", "Certificate/lock-operator-facade", "spec duration", "7775100s"},
		{"certificates.provider=cert-manager", "Certificate/lock-operator-authority", "spec duration", "87600h"},
		{"certificates.provider=cert-manager,certificates.lifetime=26280h", "Certificate/lock-operator-authority", "spec duration", "105120h"},
		{"certificates.provider=cert-manager,certificates.certManager.issuer.name=internal", "Certificate/lock-operator-facade", "spec duration", nil},
		{"certificates.provider=cert-manager,certificates.certManager.issuer.name=internal,certificates.lifetime=48h,certificates.authorityLifetime=96h", "Certificate/lock-operator-facade", "spec duration", "48h"},
		{"certificates.provider=cert-manager,certificates.facadeDNSNames={a.example.com}", "Certificate/lock-operator-facade", "spec dnsNames 2", "a.example.com"},
		{"certificates.provider=cert-manager,certificates.certManager.issuer.name=internal", "Certificate/lock-operator-webhook", "spec issuerRef", map[string]any{"name": "internal"}},
		{"certificates.provider=existing,certificates.existing.authority=" + authority, "MutatingWebhookConfiguration/lock-operator", "webhooks 1 clientConfig caBundle", "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCuKApgo="},
		{"certificates.provider=existing,certificates.existing.facadeSecret=mine,certificates.existing.authority=" + authority, facade, pod + "volumes 0 secret secretName", "mine"},
		{"networkPolicy.apiServerPorts={8443}", "NetworkPolicy/lock-operator-controllers", "spec egress 0 ports 0 port", 8443.0},
		{"networkPolicy.apiServerTo[0].ipBlock.cidr=10.0.0.1/32", "NetworkPolicy/lock-operator-webhook", "spec egress 0 to 0 ipBlock cidr", "10.0.0.1/32"},
		{"networkPolicy.webhookFrom[0].ipBlock.cidr=10.0.0.1/32", "NetworkPolicy/lock-operator-webhook", "spec ingress 0 from 0 ipBlock cidr", "10.0.0.1/32"},
		{"networkPolicy.facadeFrom[0].ipBlock.cidr=10.0.0.1/32", "NetworkPolicy/lock-operator-facade", "spec ingress 0 from 1 ipBlock cidr", "10.0.0.1/32"},
		{"networkPolicy.extraEgress[0].ports[0].port=4317", "NetworkPolicy/lock-operator-controllers", "spec egress 2 ports 0 port", 4317.0},
		{"networkPolicy.extraEgress[0].ports[0].port=4317", "NetworkPolicy/lock-operator-hooks", "spec egress 3 ports 0 port", 4317.0},
		{"", "NetworkPolicy/lock-operator-hooks", "spec egress 3", nil},
		{"networkPolicy.metricsNamespaceLabels.team=a", "NetworkPolicy/lock-operator-facade", "spec ingress 1 from 0 namespaceSelector matchLabels", map[string]any{"team": "a"}},
		{"", "NetworkPolicy/lock-operator-facade", "spec ingress 1 from 0 namespaceSelector matchLabels", map[string]any{"metrics": "enabled"}},
		{"metrics.serviceMonitor.enabled=true", "ServiceMonitor/lock-operator-facade", "spec endpoints 0 honorLabels", true},
		{"metrics.serviceMonitor.enabled=true", "Service/lock-operator-facade-metrics", "spec publishNotReadyAddresses", true},
		{"metrics.serviceMonitor.enabled=true", "ServiceMonitor/lock-operator-facade", "spec endpoints 0 bearerTokenFile", "/var/run/secrets/kubernetes.io/serviceaccount/token"},
		{"metrics.serviceMonitor.enabled=true", "ServiceMonitor/lock-operator-facade", "spec endpoints 0 authorization", nil},
		{"metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.authorization.credentials.name=reader,metrics.serviceMonitor.authorization.credentials.key=token", "ServiceMonitor/lock-operator-facade", "spec endpoints 0 authorization", map[string]any{"credentials": map[string]any{"name": "reader", "key": "token"}}},
		{"metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.authorization.credentials.name=reader,metrics.serviceMonitor.authorization.credentials.key=token", "ServiceMonitor/lock-operator-facade", "spec endpoints 0 bearerTokenFile", nil},
		{"metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.interval=15s", "ServiceMonitor/lock-operator-facade", "spec endpoints 0 interval", "15s"},
		{"metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.labels.team=a", "ServiceMonitor/lock-operator-facade", "metadata labels team", "a"},
		{"metrics.serviceMonitor.enabled=true", "ServiceMonitor/lock-operator-webhook", "spec endpoints 0 tlsConfig ca configMap name", "lock-operator-authority"},
		{"metrics.serviceMonitor.enabled=true,certificates.provider=cert-manager", "ServiceMonitor/lock-operator-webhook", "spec endpoints 0 tlsConfig ca secret name", "lock-operator-webhook"},
		{"metrics.serviceMonitor.enabled=true,certificates.provider=existing,certificates.existing.authority=" + authority, "ServiceMonitor/lock-operator-webhook", "spec endpoints 0 tlsConfig", map[string]any{
			"serverName": "lock-operator-webhook.forrst-system.svc", "ca": map[string]any{"secret": map[string]any{"name": "lock-operator-webhook", "key": "ca.crt"}},
		}},
		{"metrics.serviceMonitor.enabled=true,certificates.provider=existing,certificates.existing.controllersSecret=mine,certificates.existing.authority=" + authority, "ServiceMonitor/lock-operator-controllers", "spec endpoints 0 tlsConfig ca secret name", "mine"},
		{"metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.tlsConfig.ca.secret.name=mine,metrics.serviceMonitor.tlsConfig.ca.secret.key=a", "ServiceMonitor/lock-operator-facade", "spec endpoints 0 tlsConfig", map[string]any{
			"serverName": "lock-operator-facade.forrst-system.svc", "ca": map[string]any{"secret": map[string]any{"name": "mine", "key": "a"}},
		}},
		{"metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.tlsConfig.serverName=mine", "ServiceMonitor/lock-operator-facade", "spec endpoints 0 tlsConfig", map[string]any{"serverName": "mine"}},
		{"metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.reader.name=prometheus,metrics.serviceMonitor.reader.namespace=monitoring", "ClusterRoleBinding/lock-operator-metrics", "roleRef name", "lock-operator-metrics"},
		{"metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.reader.name=prometheus,metrics.serviceMonitor.reader.namespace=monitoring", "ClusterRoleBinding/lock-operator-metrics", "subjects 0", map[string]any{"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"}},
		{"", "ClusterRole/lock-operator-metrics", "rules 0", map[string]any{"nonResourceURLs": []any{"/metrics"}, "verbs": []any{"get"}}},
		{"metrics.alerts.enabled=true", "PrometheusRule/lock-operator", "spec groups 0 rules 0 alert", "LockOperatorFreeLockWaitedFor"},
		{"metrics.alerts.enabled=true,metrics.alerts.disabled={LockOperatorFreeLockWaitedFor}", "PrometheusRule/lock-operator", "spec groups 0 rules 0 alert", "LockOperatorWaitsTimeOut"},
		{"metrics.alerts.enabled=true,metrics.alerts.disabled={LockOperatorFreeLockWaitedFor}", "PrometheusRule/lock-operator", "spec groups 0 name", "lock-operator.locks"},
		{"metrics.alerts.enabled=true,metrics.alerts.labels.team=a", "PrometheusRule/lock-operator", "metadata labels team", "a"},
		{"metrics.dashboard.enabled=true", "ConfigMap/lock-operator-dashboard", "metadata labels grafana_dashboard", "1"},
		{"ingress.enabled=true,ingress.hosts={locks.example.com},ingress.className=public", "Ingress/lock-operator-facade", "spec ingressClassName", "public"},
		{"ingress.enabled=true,ingress.hosts={locks.example.com}", "Ingress/lock-operator-facade", "spec tls", []any{map[string]any{"hosts": []any{"locks.example.com"}}}},
		{"ingress.enabled=true,ingress.hosts={locks.example.com},ingress.tls=false", "Ingress/lock-operator-facade", "spec tls", nil},
		{"ingress.enabled=true,ingress.hosts={locks.example.com},ingress.tlsSecret=cert", "Ingress/lock-operator-facade", "spec tls", []any{map[string]any{"hosts": []any{"locks.example.com"}, "secretName": "cert"}}},
		{"ingress.enabled=true,ingress.hosts={locks.example.com}", "Ingress/lock-operator-facade", "spec rules 0 http paths 0 path", "/v1/"},
		{"ingress.enabled=true,ingress.hosts={locks.example.com}", "Ingress/lock-operator-facade", "spec rules 0 http paths 1 path", "/ui/"},
		{"ingress.enabled=true,ingress.hosts={locks.example.com},ingress.paths={/v1/}", "Ingress/lock-operator-facade", "spec rules 0 http paths 1", nil},
		{"httpRoute.enabled=true,httpRoute.parentRefs[0].name=public", "HTTPRoute/lock-operator-facade", "spec rules 0 matches 0 path value", "/v1/"},
		{"httpRoute.enabled=true,httpRoute.parentRefs[0].name=public", "HTTPRoute/lock-operator-facade", "spec rules 0 matches 1 path value", "/ui/"},
		{"httpRoute.enabled=true,httpRoute.parentRefs[0].name=public,httpRoute.paths={/v1/}", "HTTPRoute/lock-operator-facade", "spec rules 0 matches 1", nil},
		{"httpRoute.enabled=true,httpRoute.parentRefs[0].name=public,httpRoute.hostnames={locks.example.com}", "HTTPRoute/lock-operator-facade", "spec hostnames 0", "locks.example.com"},
		{"httpRoute.enabled=true,httpRoute.parentRefs[0].name=public,certificates.provider=cert-manager", "BackendTLSPolicy/lock-operator-facade", "spec validation caCertificateRefs 0 kind", "Secret"},
		{"httpRoute.enabled=true,httpRoute.parentRefs[0].name=public", "BackendTLSPolicy/lock-operator-facade", "spec validation hostname", "lock-operator-facade.forrst-system.svc"},
		{"httpRoute.enabled=true,httpRoute.parentRefs[0].name=public,fullnameOverride=team", "BackendTLSPolicy/team-facade", "spec validation hostname", "team-facade.forrst-system.svc"},
		{"httpRoute.enabled=true,httpRoute.parentRefs[0].name=public,fullnameOverride=team", "BackendTLSPolicy/team-facade", "spec targetRefs 0 name", "team-facade"},
		{"hooks.nodeSelector.disk=ssd,hooks.tolerations[0].key=infra", "Pod/lock-operator-test", "spec nodeSelector disk", "ssd"},
		// It calls the API server as well as the façade.
		{"", "Pod/lock-operator-test", "spec automountServiceAccountToken", nil},
		{"hooks.nodeSelector.disk=ssd,hooks.tolerations[0].key=infra", "Pod/lock-operator-test", "spec tolerations 0 key", "infra"},
		{"hooks.nodeSelector.disk=ssd,hooks.tolerations[0].key=infra", "Job/lock-operator-uninstall", pod + "nodeSelector disk", "ssd"},
		{"hooks.nodeSelector.disk=ssd,hooks.tolerations[0].key=infra", "Job/lock-operator-uninstall", pod + "tolerations 0 key", "infra"},
		{"facade.audiences={own}", "Pod/lock-operator-test", "spec volumes 0 projected sources 0 serviceAccountToken audience", "own"},
	} {
		t.Run(test.flags+" "+test.path, func(t *testing.T) {
			if got := render(t, "--set="+test.flags).at(t, test.object, test.path); !isEqual(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// TestValuesOfAllPods says what becomes of the values that are for the pods of every workload, those of hooks included.
func TestValuesOfAllPods(t *testing.T) {
	for _, test := range []struct {
		flags, path string
		want        any
	}{
		{"global.imagePullSecrets[0].name=shared,imagePullSecrets[0].name=own,imagePullSecrets[1].name=shared", "imagePullSecrets", []any{map[string]any{"name": "shared"}, map[string]any{"name": "own"}}},
		{"global=null,imagePullSecrets=null", "imagePullSecrets", nil}, // as a parent chart leaves them that has keys without values
		{"securityContext.runAsUser=1000660000", "securityContext", map[string]any{"runAsNonRoot": true, "runAsUser": 1000660000.0, "seccompProfile": map[string]any{"type": "RuntimeDefault"}}},
		{"securityContext.seccompProfile=null", "securityContext", map[string]any{"runAsNonRoot": true}},
		{"containerSecurityContext.runAsGroup=7", "containers 0 securityContext runAsGroup", 7.0},
		{"containerSecurityContext.runAsGroup=7", "containers 0 securityContext readOnlyRootFilesystem", true},
		{"podDnsPolicy=None,podDnsConfig.nameservers={10.0.0.10}", "dnsPolicy", "None"},
		{"podDnsPolicy=None,podDnsConfig.nameservers={10.0.0.10}", "dnsConfig", map[string]any{"nameservers": []any{"10.0.0.10"}}},
		{"", "dnsPolicy", nil},
	} {
		t.Run(test.flags+" "+test.path, func(t *testing.T) {
			rendered := render(t, "--set="+test.flags)
			for name, path := range rendered.pods(t) {
				if got := rendered.at(t, name, path+test.path); !isEqual(got, test.want) {
					t.Errorf("%s: got %v, want %v", name, got, test.want)
				}
			}
		})
	}
}

// TestValuesOfEachComponent says what becomes of the values that each component has, and that the others do not get them.
func TestValuesOfEachComponent(t *testing.T) {
	const container = "spec template spec containers 0 "
	for _, test := range []struct {
		flag, path string
		want       any
	}{
		{"strategy.rollingUpdate.maxSurge=50%", "spec strategy rollingUpdate maxSurge", "50%"},
		{"startupProbe.failureThreshold=900", container + "startupProbe failureThreshold", 900.0},
		{"livenessProbe.initialDelaySeconds=7", container + "livenessProbe initialDelaySeconds", 7.0},
		{"readinessProbe.timeoutSeconds=7", container + "readinessProbe timeoutSeconds", 7.0},
		{"serviceAccount.name=ours", "spec template spec serviceAccountName", "ours"},
	} {
		t.Run(test.flag, func(t *testing.T) {
			for _, component := range components {
				rendered := render(t, "--set="+component+"."+test.flag)
				for _, each := range components {
					if got := rendered.at(t, "Deployment/lock-operator-"+each, test.path); isEqual(got, test.want) != (each == component) {
						t.Errorf("%s: %s is %v", component, each, got)
					}
				}
			}
		})
	}
	rendered := render(t, "--set=revisionHistoryLimit=0")
	for _, component := range components {
		if got := rendered.at(t, "Deployment/lock-operator-"+component, "spec revisionHistoryLimit"); !isEqual(got, 0.0) {
			t.Errorf("%s keeps %v former ReplicaSets, want 0", component, got)
		}
		// Without times of the values, those of Kubernetes count.
		bare := render(t, "--set="+component+".startupProbe=null,"+component+".livenessProbe.periodSeconds=null,"+component+".readinessProbe=null")
		for probe, path := range map[string]string{"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"} {
			if got := bare.at(t, "Deployment/lock-operator-"+component, container+probe+" httpGet path"); got != path {
				t.Errorf("the %s of %s asks %v", probe, component, got)
			}
		}
	}
}

// TestMoreObjects may be YAML, or text with templates around it.
func TestMoreObjects(t *testing.T) {
	file := filepath.Join(t.TempDir(), "values.yaml")
	values := `
extraObjects:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: "{{ .Release.Name }}-one"}, data: {count: "1"}}
- |
  {{- range tuple "two" "three" }}
  ---
  {apiVersion: v1, kind: ConfigMap, metadata: {name: {{ . }}}}
  {{- end }}
`
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	rendered := render(t, "--values="+file)
	for _, name := range []string{"ConfigMap/lock-operator-one", "ConfigMap/two", "ConfigMap/three"} {
		if rendered[name] == nil {
			t.Errorf("there is no %s", name)
		}
	}
	if got := rendered.at(t, "ConfigMap/lock-operator-one", "data count"); got != "1" {
		t.Errorf("its field is %v", got)
	}
}

// TestServicesHaveFamilies: not the Services without an address, whose pods would be found twice.
func TestServicesHaveFamilies(t *testing.T) {
	rendered := render(t, "--set=serviceIPFamilyPolicy=PreferDualStack,serviceIPFamilies={IPv6,IPv4},metrics.serviceMonitor.enabled=true")
	for name, object := range rendered {
		if object.GetKind() != "Service" {
			continue
		}
		isHeadless := rendered.at(t, name, "spec clusterIP") == "None"
		policy, families := rendered.at(t, name, "spec ipFamilyPolicy"), rendered.at(t, name, "spec ipFamilies")
		if isHeadless && (policy != nil || families != nil) || !isHeadless && (policy != "PreferDualStack" || !isEqual(families, []any{"IPv6", "IPv4"})) {
			t.Errorf("%s has the policy %v and the families %v", name, policy, families)
		}
	}
}

// TestAPIServersWaitForTheWebhook by the same time wherever its answer decides; for its audit, they wait no longer than a second.
func TestAPIServersWaitForTheWebhook(t *testing.T) {
	rendered := render(t, "--set=webhook.timeoutSeconds=9,guards.enabled=true")
	for path, want := range map[string]float64{
		"MutatingWebhookConfiguration/lock-operator webhooks 0":          9,
		"MutatingWebhookConfiguration/lock-operator webhooks 1":          9,
		"ValidatingWebhookConfiguration/lock-operator-guards webhooks 0": 9,
		"ValidatingWebhookConfiguration/lock-operator-audit webhooks 0":  1,
	} {
		name, path, _ := strings.Cut(path, " ")
		if got := rendered.at(t, name, path+" timeoutSeconds"); !isEqual(got, want) {
			t.Errorf("%s waits for %v s, want %v", name, got, want)
		}
	}
}

// TestTheWebhookIsCalledForEveryNamespace: a Lock elsewhere would not be protected.
func TestTheWebhookIsCalledForEveryNamespace(t *testing.T) {
	for i := range 2 {
		if got := render(t).at(t, "MutatingWebhookConfiguration/lock-operator", "webhooks "+strconv.Itoa(i)+" namespaceSelector"); got != nil {
			t.Errorf("it is called for %v", got)
		}
	}
}

// TestEachRolloutIsSpreadByItself wants no constraint to count the pods of the former template: the others could
// end on one node.
func TestEachRolloutIsSpreadByItself(t *testing.T) {
	for flags, want := range map[string]int{"": 1, "highAvailability=true": 2} {
		rendered := render(t, "--set="+flags)
		for _, component := range components {
			constraints, _ := rendered.at(t, "Deployment/lock-operator-"+component, "spec template spec topologySpreadConstraints").([]any)
			if len(constraints) != want {
				t.Errorf("with %q, %s has %d constraints, want %d", flags, component, len(constraints), want)
			}
			for _, constraint := range constraints {
				fields, _ := constraint.(map[string]any)
				if !isEqual(fields["matchLabelKeys"], []any{"pod-template-hash"}) {
					t.Errorf("with %q, %s is spread by %v", flags, component, fields)
				}
			}
		}
	}
}
