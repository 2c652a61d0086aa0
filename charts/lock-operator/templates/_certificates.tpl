{{/* The Secret with the certificate of a component. Call with (list $ "facade"). */}}
{{- define "lock-operator.secret" -}}
{{- $root := first . }}
{{- $named := index $root.Values.certificates.existing (printf "%sSecret" (last .)) }}
{{- if and (eq $root.Values.certificates.provider "existing") $named }}{{ $named }}
{{- else }}{{ include "lock-operator.fullname" $root }}-{{ last . }}
{{- end }}
{{- end -}}

{{/* Webhook configurations of a file, with the authority of the webhook's certificate if the operator does not fill it in. The audit, whose answer API servers ignore, is waited for no longer. */}}
{{- define "lock-operator.webhooks" -}}
{{- $root := .root }}
{{- $certificates := $root.Values.certificates }}
{{- range $document := rest (splitList "---\n" (include "lock-operator.manifests" .)) }}
{{- $object := fromYaml $document }}
{{- if hasSuffix "WebhookConfiguration" $object.kind }}
{{- range $webhook := $object.webhooks }}
{{- if eq $webhook.failurePolicy "Fail" }}
{{- $_ := set $webhook "timeoutSeconds" (int $root.Values.webhook.timeoutSeconds) }}
{{- end }}
{{- end }}
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

{{/* Refuses a duration of less than an hour, for which neither the controllers nor cert-manager issue a certificate. Call with (list $ "lifetime"). */}}
{{- define "lock-operator.anHour" -}}
{{- $name := last . }}
{{- with index (first .).Values.certificates $name }}
{{- if lt (include "lock-operator.seconds" . | int64) 3600 }}
{{- fail (printf "certificates.%s, %s, must be at least 1h" $name .) }}
{{- end }}
{{- end }}
{{- end -}}

{{/*
How long cert-manager's certificates are valid: at most a quarter of the authority that the chart makes. cert-manager renews the
authority when a third of its life is left, and issues no other certificate then, so the last one of the former authority has
to be renewed within that third. Nothing for an issuer of the user's own, whose authority is not known.
*/}}
{{- define "lock-operator.certManager.lifetime" -}}
{{- $certificates := .Values.certificates }}
{{- $lifetime := $certificates.lifetime }}
{{- if not $certificates.certManager.issuer.name }}
{{- with $certificates.authorityLifetime }}
{{- $quarter := div (include "lock-operator.seconds" .) 4 }}
{{- if lt $quarter 3600 }}
{{- fail (printf "certificates.authorityLifetime, %s, must be at least 4h with cert-manager, which issues no certificate for less than an hour, and here for at most a quarter of the authority" .) }}
{{- end }}
{{- if $lifetime }}
{{- if gt (include "lock-operator.seconds" $lifetime | int64) $quarter }}
{{- fail (printf "certificates.authorityLifetime, %s, must be at least 4 times certificates.lifetime, %s, with cert-manager: raise the former, lower the latter, or leave one of them unset" . $lifetime) }}
{{- end }}
{{- end }}
{{- if lt $quarter (include "lock-operator.seconds" "2160h" | int64) }}
{{- $lifetime = $lifetime | default (printf "%ds" $quarter) }}
{{- end }}
{{- end }}
{{- $lifetime = $lifetime | default "2160h" }}
{{- end }}
{{- include "lock-operator.anHour" (list . "lifetime") }}
{{- $lifetime | default "" }}
{{- end -}}

{{/* How long cert-manager's authority is valid: ten years, or long enough for its certificates. */}}
{{- define "lock-operator.certManager.authorityLifetime" -}}
{{- with .Values.certificates }}
{{- if .authorityLifetime }}{{ .authorityLifetime }}
{{- else }}{{ printf "%dh" (max 87600 (div (add (mul 4 (include "lock-operator.seconds" (.lifetime | default "2160h"))) 3599) 3600)) }}
{{- end }}
{{- end }}
{{- end -}}
