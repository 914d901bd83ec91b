{{/* What could not run is refused, whatever the single values are. */}}
{{- define "kv-router.refuse" -}}
{{- $config := .Values.config }}
{{- $network := .Values.networkPolicy }}
{{- $variables := list }}
{{- range .Values.env }}{{ $variables = append $variables .name }}{{ end }}
{{- range list "host" "port" "epp_port" "tls_cert" "tls_client_ca" }}
  {{- $variable := printf "KV_ROUTER_%s" (upper .) }}
  {{- if has $variable $variables }}
    {{- fail (printf "env: %s: expected config.%s instead, which ports and probes are made of" $variable .) }}
  {{- end }}
{{- end }}
{{- range $name := list "admin_key" "api_key" "worker_api_key" }}
  {{- $given := index $config $name | default list }}
  {{- range kindIs "slice" $given | ternary $given (list $given) }}
    {{- if not (and (eq $name "api_key") (hasPrefix "sha256:" .)) }}
      {{- fail (printf "config.%s: a ConfigMap is no place for a key: expected KV_ROUTER_%s in the Secret that secretName names" $name (upper $name)) }}
    {{- end }}
  {{- end }}
{{- end }}
{{- if not (has ($config.host | default "0.0.0.0") (list "0.0.0.0" "::")) }}
  {{- fail (printf "config.host: expected 0.0.0.0 or ::, where probes and the Service reach it, got %s" $config.host) }}
{{- end }}
{{- if eq (int ($config.port | default 8000)) (int ($config.epp_port | default 0)) }}
  {{- fail "config.epp_port: expected another port than config.port" }}
{{- end }}
{{- with $config.record }}
  {{- $writable := list "/tmp" "/home/kv-router" }}
  {{- range $.Values.extraVolumeMounts }}{{ if not .readOnly }}{{ $writable = append $writable .mountPath }}{{ end }}{{ end }}
  {{- $found := false }}
  {{- range $writable }}{{ if hasPrefix (printf "%s/" (trimSuffix "/" .)) (printf "%s/" $config.record) }}{{ $found = true }}{{ end }}{{ end }}
  {{- if not $found }}
    {{- fail (printf "config.record: %s cannot be written to: expected a directory in one of extraVolumeMounts" .) }}
  {{- end }}
{{- end }}
{{- if and .Values.podMonitor.enabled (eq ($config.protect_metrics | default "off") "on") (not .Values.podMonitor.authorization) }}
  {{- fail "podMonitor.authorization: expected the Secret of a client's key, since config.protect_metrics is on" }}
{{- end }}
{{- if and $network.enabled (not $network.workers) (not $network.egress) (not (include "kv-router.finds-pods" .)) }}
  {{- fail "networkPolicy.workers: expected the labels of the workers' pods (or networkPolicy.egress), which no selector of pods in config.kubernetes_selector tells" }}
{{- end }}
{{- $limited := or $config.max_inflight $config.max_worker_inflight (has "KV_ROUTER_MAX_INFLIGHT" $variables) (has "KV_ROUTER_MAX_WORKER_INFLIGHT" $variables) }}
{{- if and .Values.autoscaling.enabled (eq .Values.autoscaling.metric "kv_router_waiting_requests") (not $limited) }}
  {{- fail "autoscaling: expected config.max_worker_inflight or config.max_inflight, too: without a limit no request ever waits" }}
{{- end }}
{{- end }}
