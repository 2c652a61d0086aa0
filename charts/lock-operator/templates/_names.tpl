{{/* The name of the release's objects, of at most 40 characters: "lock-operator" where the release's name has it, and RELEASE-lock-operator otherwise. */}}
{{- define "lock-operator.fullname" -}}
{{- $short := .Values.nameOverride | default "lock-operator" -}}
{{- $name := printf "%s-%s" (.Release.Name | trunc (sub 39 (len $short) | int) | trimSuffix "-") $short -}}
{{- if .Values.fullnameOverride -}}
{{- $name = .Values.fullnameOverride -}}
{{- else if contains $short .Release.Name -}}
{{- $name = .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- if not (regexMatch "^[a-z][-a-z0-9]*$" $name) -}}
{{- fail (printf "a Service cannot have the name %s-facade: set fullnameOverride" $name) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/* Labels of every object besides those that it has in config/. */}}
{{- define "lock-operator.release-labels" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | trunc 63 | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Labels of an object of one component. Call with (list $ "facade"). */}}
{{- define "lock-operator.labels" -}}
{{ include "lock-operator.selector" (last .) }}
{{ include "lock-operator.release-labels" (first .) }}
{{- end -}}

{{/* What selects the pods of a component. As in config/, so that an installation by kubectl can be taken over. */}}
{{- define "lock-operator.selector" -}}
app.kubernetes.io/name: lock-operator
{{- with . }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{/*
The metadata of an object. Call with (dict "root" $ "component" "facade"), and "name" for another name than that of the component,
"labels" and "annotations" for more of these. An object of no component has the component "".
*/}}
{{- define "lock-operator.metadata" -}}
name: {{ include "lock-operator.fullname" .root }}{{ with .name | default .component }}-{{ . }}{{ end }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "lock-operator.labels" (list .root .component) | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The name of a component's service account. Call with (list $ "facade"). */}}
{{- define "lock-operator.account" -}}
{{- $values := index (first .).Values (last .) -}}
{{ $values.serviceAccount.name | default (printf "%s-%s" (include "lock-operator.fullname" (first .)) (last .)) }}
{{- end -}}

{{/* Its user name. */}}
{{- define "lock-operator.user" -}}
system:serviceaccount:{{ (first .).Release.Namespace }}:{{ include "lock-operator.account" . }}
{{- end -}}

{{/* IP families of a Service. */}}
{{- define "lock-operator.families" -}}
{{- with .Values.serviceIPFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .Values.serviceIPFamilies }}
ipFamilies:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The labels of namespaces that may read metrics. Not a default of the value, to which Helm would add those of a user. */}}
{{- define "lock-operator.metrics-namespace" -}}
{{ toYaml (.Values.networkPolicy.metricsNamespaceLabels | default (dict "metrics" "enabled")) }}
{{- end -}}
