{{/*
The objects of a file of files/manifests, under the names of the release. Call with (dict "root" $ "file" "crd.yaml"),
and "annotations" for more of these.
*/}}
{{- define "lock-operator.manifests" -}}
{{- $root := .root }}
{{- $annotations := merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
{{- $text := .root.Files.Get (printf "files/manifests/%s" .file) }}
{{- range $component := list "facade" "controllers" "webhook" }}
{{- /* Where it is the name of a service account, and not that of a role or a Service. */}}
{{- $account := printf "(system:serviceaccount:release-namespace:|erviceAccount:?\\s+name: )release-lock-operator-%s\\b" $component }}
{{- $text = regexReplaceAll $account $text (printf "${1}%s" (include "lock-operator.account" (list $root $component))) }}
{{- end }}
{{- $text = $text | replace "release-namespace" .root.Release.Namespace | replace "release-lock-operator" (include "lock-operator.fullname" .root) }}
{{- range $document := rest (splitList "---\n" $text) }}
{{- $object := fromYaml $document }}
{{- if hasKey $object "Error" }}{{ fail $object.Error }}{{ end }}
{{- $labels := merge ($object.metadata.labels | default dict) (dict "app.kubernetes.io/name" "lock-operator") (include "lock-operator.release-labels" $root | fromYaml) }}
{{- $_ := set $object.metadata "labels" $labels }}
{{- with merge ($object.metadata.annotations | default dict) $annotations }}
{{- $_ := set $object.metadata "annotations" . }}
{{- end }}
---
{{ toYaml $object }}
{{- end }}
{{- end -}}
