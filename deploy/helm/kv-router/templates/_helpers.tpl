{{- define "kv-router.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 63 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "kv-router.selector" -}}
app.kubernetes.io/name: kv-router
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kv-router.meta" -}}
name: {{ include "kv-router.name" . }}
labels:
  {{- include "kv-router.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}
