{{/* When Helm deletes what a hook runs: not on failure, so that it can be asked for the reason. */}}
{{- define "lock-operator.kept-on-failure" -}}
before-hook-creation,hook-succeeded
{{- end -}}

{{/* The spec of a pod that runs one command of the operator and ends. Call with (dict "root" $ "account" "…" "arguments" (list …)), and "volumes" and "mounts". */}}
{{- define "lock-operator.command" -}}
restartPolicy: Never
serviceAccountName: {{ .account }}
{{ include "lock-operator.pod" .root | trim }}
{{- with .root.Values.hooks.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.hooks.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
- name: lock-operator
  image: {{ include "lock-operator.image" .root | quote }}
  {{- with .root.Values.image.pullPolicy }}
  imagePullPolicy: {{ . }}
  {{- end }}
  args:
    {{- toYaml .arguments | nindent 4 }}
  {{- with .root.Values.hooks.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- toYaml .root.Values.containerSecurityContext | nindent 4 }}
  {{- with .mounts }}
  volumeMounts:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- with .volumes }}
volumes:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
