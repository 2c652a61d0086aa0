{{/* The Secret with the certificate of a component. Call with (list $ "facade"). */}}
{{- define "lock-operator.secret" -}}
{{- $root := first . }}
{{- $named := index $root.Values.certificates.existing (printf "%sSecret" (last .)) }}
{{- if and (eq $root.Values.certificates.provider "existing") $named }}{{ $named }}
{{- else }}{{ include "lock-operator.fullname" $root }}-{{ last . }}
{{- end }}
{{- end -}}

{{/* Webhook configurations of a file, with the authority of the webhook's certificate if the operator does not fill it in. */}}
{{- define "lock-operator.webhooks" -}}
{{- $root := .root }}
{{- $certificates := $root.Values.certificates }}
{{- range $document := rest (splitList "---\n" (include "lock-operator.manifests" .)) }}
{{- $object := fromYaml $document }}
{{- if hasSuffix "WebhookConfiguration" $object.kind }}
{{- if eq $certificates.provider "cert-manager" }}
{{- $annotations := dict "cert-manager.io/inject-ca-from" (printf "%s/%s-webhook" $root.Release.Namespace (include "lock-operator.fullname" $root)) }}
{{- $_ := set $object.metadata "annotations" (merge $annotations ($object.metadata.annotations | default dict)) }}
{{- else if eq $certificates.provider "existing" }}
{{- range $webhook := $object.webhooks }}
{{- $_ := set $webhook.clientConfig "caBundle" ($certificates.existing.authority | b64enc) }}
{{- end }}
{{- end }}
{{- end }}
---
{{ toYaml $object }}
{{- end }}
{{- end -}}

{{/* The seconds of a duration such as "2160h". */}}
{{- define "lock-operator.seconds" -}}
{{- $date := toDate "2006-01-02" "2000-01-01" -}}
{{- sub (mustDateModify . $date | unixEpoch) (unixEpoch $date) -}}
{{- end -}}

{{/* Refuses two durations that are both set and do not fit. Call with (list $ "authorityOverlap" "lifetime" 4): the latter is at least four times the former. */}}
{{- define "lock-operator.fits" -}}
{{- $short := index (first .).Values.certificates (index . 1) }}
{{- $long := index (first .).Values.certificates (index . 2) }}
{{- if and $short $long }}
{{- if gt (mul (last .) (include "lock-operator.seconds" $short)) (include "lock-operator.seconds" $long | int64) }}
{{- fail (printf "certificates.%s, %s, must be at least %d times certificates.%s, %s: raise the former, lower the latter, or leave one of them unset" (index . 2) $long (last .) (index . 1) $short) }}
{{- end }}
{{- end }}
{{- end -}}
