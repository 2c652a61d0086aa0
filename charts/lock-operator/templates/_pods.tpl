{{/* The image, by its digest if there is one. */}}
{{- define "lock-operator.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{/* What the specs of all pods have. */}}
{{- define "lock-operator.pod" -}}
{{- with concat ((.Values.global | default dict).imagePullSecrets | default list) (.Values.imagePullSecrets | default list) | uniq }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podDnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .Values.podDnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
{{- end -}}

{{/* How many replicas of a component there are. Call with (list $ "facade"). */}}
{{- define "lock-operator.replicas" -}}
{{- $values := index (first .).Values (last .) -}}
{{- if kindIs "invalid" $values.replicas }}{{ (first .).Values.highAvailability | ternary 3 2 }}{{ else }}{{ $values.replicas }}{{ end -}}
{{- end -}}

{{/* Whether replicas of the façade share their lines, in which Jobs stand, too: "true" or nothing. */}}
{{- define "lock-operator.peers" -}}
{{- if or (kindIs "invalid" .Values.facade.peers.enabled) .Values.facade.peers.enabled }}true{{ end -}}
{{- end -}}

{{/* The flags by which a process finds the replicas of the façade and asks them. */}}
{{- define "lock-operator.peers.arguments" -}}
{{- $name := printf "%s-facade" (include "lock-operator.fullname" .) -}}
- --peers-service={{ $name }}-peers
- --peers-server-name={{ $name }}.$(POD_NAMESPACE).svc
- --peers-token-file=/peers/token
- --peers-authority-file=/peers/ca.crt
{{- end -}}

{{/* The flags that all components share. */}}
{{- define "lock-operator.settings" -}}
{{- with .Values.settings }}
{{- range list "defaultTTL:default-ttl" "maxTTL:max-ttl" "maxExpireAhead:max-expire-ahead" "maxOperatorRenewal:max-operator-renewal" "clockSkewAllowance:clock-skew-allowance"
  "maxLocksPerNamespace:max-locks-per-namespace" "maxJobsPerNamespace:max-jobs-per-namespace" "logLevel:zap-log-level" }}
{{- $names := splitList ":" . }}
{{- $value := index $.Values.settings (first $names) }}
{{- if not (kindIs "invalid" $value) }}
- --{{ last $names }}={{ kindIs "float64" $value | ternary ($value | int64) $value }}
{{- end }}
{{- end }}
{{- with .holderKinds }}
- --holder-kinds={{ join "," . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The flags of each component. */}}
{{- define "lock-operator.facade.arguments" -}}
- --components=facade
- --leader-election-namespace=$(POD_NAMESPACE)
- --facade-bind-address=:8443
- --facade-tls-cert-file=/certs/tls.crt
- --facade-tls-key-file=/certs/tls.key
{{- with .Values.facade.audiences }}
- --facade-audiences={{ join "," . }}
{{- end }}
{{- with .Values.facade.maxBlock }}
- --facade-max-block={{ . }}
{{- end }}
{{- if .Values.facade.routes }}
- --facade-routes=/routes/routes.yaml
{{- end }}
{{- if include "lock-operator.peers" . }}
- --peers-bind-address=:8445
{{ include "lock-operator.peers.arguments" . }}
- --peers-replica=$(POD_NAME)
- --controllers-user=$(CONTROLLERS_USER)
{{- end }}
{{- end -}}

{{- define "lock-operator.controllers.arguments" -}}
- --components=controller
- --leader-election-namespace=$(POD_NAMESPACE)
{{- if include "lock-operator.peers" . }}
{{ include "lock-operator.peers.arguments" . }}
{{- end }}
{{- if eq .Values.certificates.provider "self" }}
{{- with .Values.certificates }}
{{- $name := include "lock-operator.fullname" $ }}
- --certificate-authority={{ $name }}-authority
- --issue-certificate={{ join "," (concat (list (printf "%s-facade" $name)) .facadeDNSNames) }}
- --issue-certificate={{ $name }}-webhook
- --issue-certificate={{ $name }}-controllers
{{- with .lifetime }}
- --certificate-lifetime={{ . }}
{{- end }}
{{- with .authorityLifetime }}
- --authority-lifetime={{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "lock-operator.webhook.arguments" -}}
- --components=webhook
- --leader-election-namespace=$(POD_NAMESPACE)
- --facade-user=$(FACADE_USER)
- --controllers-user=$(CONTROLLERS_USER)
- --webhook-cert-dir=/certs
{{- if ne (int .Values.webhook.securePort) 9443 }}
- --webhook-bind-address=:{{ .Values.webhook.securePort }}
{{- end }}
{{- with .Values.webhook.clientAuthority }}
{{- if .configMap }}
- --webhook-client-ca=/clients/ca.crt
{{- with .names }}
- --webhook-client-names={{ join "," . }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The spread of a component over nodes and zones. Call with (list $ "facade"). */}}
{{- define "lock-operator.spread" -}}
{{- $root := first . }}
{{- range $root.Values.highAvailability | ternary (list "kubernetes.io/hostname" "topology.kubernetes.io/zone") (list "kubernetes.io/hostname") }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: {{ and $root.Values.highAvailability (eq . "kubernetes.io/hostname") | ternary "DoNotSchedule" "ScheduleAnyway" }}
  labelSelector:
    matchLabels:
      {{- include "lock-operator.selector" (last $) | nindent 6 }}
  # Pods of the former template do not count: they go during a rollout.
  matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end -}}
