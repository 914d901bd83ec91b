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

{{/* A probe of a path; where clients need certificates, which probes have none of, only of the port. */}}
{{- define "kv-router.probe" -}}
{{- $config := index . 1 }}
{{- if $config.tls_client_ca -}}
tcpSocket: {port: http}
{{- else if $config.tls_cert -}}
httpGet: {path: {{ index . 0 }}, port: http, scheme: HTTPS}
{{- else -}}
httpGet: {path: {{ index . 0 }}, port: http}
{{- end }}
{{- end }}
