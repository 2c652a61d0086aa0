{{/* The groups of alerts without those that the user has left out. */}}
{{- define "lock-operator.alerts" -}}
{{- $disabled := .Values.metrics.alerts.disabled }}
{{- $names := list }}
{{- $groups := list }}
{{- range $group := (.Files.Get "files/alerts.yaml" | required "the chart has no files/alerts.yaml" | fromYaml).groups }}
{{- $rules := list }}
{{- range $group.rules }}
{{- $names = append $names .alert }}
{{- if not (has .alert $disabled) }}
{{- $rules = append $rules . }}
{{- end }}
{{- end }}
{{- if $rules }}
{{- $groups = append $groups (set $group "rules" $rules) }}
{{- end }}
{{- end }}
{{- range $disabled }}
{{- if not (has . $names) }}
{{- fail (printf "metrics.alerts.disabled: there is no alert %s; docs/alerts.md names them" .) }}
{{- end }}
{{- end }}
{{- toYaml $groups }}
{{- end -}}
