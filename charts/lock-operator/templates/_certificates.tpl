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

{{/*
Refuses own certificates that live for less than the controllers accept. Without a lifetime, they live for a quarter of the
authority, unless four times the overlap is more. Refuses an overlap in which not every pod sees a new authority.
*/}}
{{- define "lock-operator.issues" -}}
{{- with .Values.certificates }}
{{- $text := "the alert on a shorter one would come before its renewal" }}
{{- if .lifetime }}
{{- if lt (include "lock-operator.seconds" .lifetime | int64) 14400 }}
{{- fail (printf "certificates.lifetime, %s, must be at least 4h: %s" .lifetime $text) }}
{{- end }}
{{- else if .authorityLifetime }}
{{- if lt (include "lock-operator.seconds" .authorityLifetime | int64) 57600 }}
{{- fail (printf "certificates.authorityLifetime, %s, must be at least 16h, four times the lifetime of a certificate, and that at least 4h: %s" .authorityLifetime $text) }}
{{- end }}
{{- end }}
{{- if .authorityOverlap }}
{{- if lt (include "lock-operator.seconds" .authorityOverlap | int64) 300 }}
{{- fail (printf "certificates.authorityOverlap, %s, must be at least 5m: kubelets take up to two minutes to bring a new authority into a pod" .authorityOverlap) }}
{{- end }}
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
{{- include "lock-operator.fits" (list . "lifetime" "authorityLifetime" 4) }}
{{- with $certificates.authorityLifetime }}
{{- $quarter := div (include "lock-operator.seconds" .) 4 }}
{{- if lt $quarter 3600 }}
{{- fail (printf "certificates.authorityLifetime, %s, must be at least 4h with cert-manager, which issues no certificate for less than an hour, and here for at most a quarter of the authority" .) }}
{{- end }}
{{- if lt $quarter (include "lock-operator.seconds" "2160h" | int64) }}
{{- $lifetime = $lifetime | default (printf "%ds" $quarter) }}
{{- end }}
{{- end }}
{{- $lifetime = $lifetime | default "2160h" }}
{{- end }}
{{- with $lifetime }}
{{- if lt (include "lock-operator.seconds" . | int64) 3600 }}
{{- fail (printf "certificates.lifetime, %s, must be at least 1h with cert-manager, which issues no certificate for less" .) }}
{{- end }}
{{- . }}
{{- end }}
{{- end -}}

{{/* How long cert-manager's authority is valid: ten years, or long enough for its certificates. */}}
{{- define "lock-operator.certManager.authorityLifetime" -}}
{{- with .Values.certificates }}
{{- if .authorityLifetime }}{{ .authorityLifetime }}
{{- else }}{{ printf "%dh" (max 87600 (div (add (mul 4 (include "lock-operator.seconds" (.lifetime | default "2160h"))) 3599) 3600)) }}
{{- end }}
{{- end }}
{{- end -}}
