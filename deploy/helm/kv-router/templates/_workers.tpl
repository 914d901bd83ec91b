{{/* The labels of the workers' pods: those of networkPolicy.workers, or what config.kubernetes_selector asks for.
Comparisons (a>1) are left out, as no policy knows them: more pods than are workers are allowed then. */}}
{{- define "kv-router.workers" -}}
{{- $labels := dict }}
{{- $expressions := list }}
{{- range regexFindAll "[^,(]+(\\([^)]*\\))?" (.Values.config.kubernetes_selector | default "") -1 }}
  {{- $term := trim . }}
  {{- if contains "(" $term }}
    {{- $words := regexSplit "\\s+|\\(" $term 3 }}
    {{- $values := regexSplit "\\s*,\\s*" (regexReplaceAll "^[^(]*\\(\\s*|\\s*\\)$" $term "") -1 }}
    {{- $operator := eq (index $words 1) "in" | ternary "In" "NotIn" }}
    {{- $expressions = append $expressions (dict "key" (index $words 0) "operator" $operator "values" $values) }}
  {{- else if contains "!=" $term }}
    {{- $sides := regexSplit "\\s*!=\\s*" $term 2 }}
    {{- $expressions = append $expressions (dict "key" (index $sides 0) "operator" "NotIn" "values" (list (index $sides 1))) }}
  {{- else if contains "=" $term }}
    {{- $sides := regexSplit "\\s*==?\\s*" $term 2 }}
    {{- $_ := set $labels (index $sides 0) (index $sides 1) }}
  {{- else if hasPrefix "!" $term }}
    {{- $expressions = append $expressions (dict "key" (trimPrefix "!" $term | trim) "operator" "DoesNotExist") }}
  {{- else if not (regexMatch "[<>]" $term) }}
    {{- $expressions = append $expressions (dict "key" $term "operator" "Exists") }}
  {{- end }}
{{- end }}
{{- $selector := dict }}
{{- with $labels }}{{ $_ := set $selector "matchLabels" . }}{{ end }}
{{- with $expressions }}{{ $_ := set $selector "matchExpressions" . }}{{ end }}
{{- toYaml (.Values.networkPolicy.workers | default $selector) }}
{{- end }}

{{/* Whether config.kubernetes_selector is about pods, so that it says where workers are. */}}
{{- define "kv-router.finds-pods" -}}
{{- $config := .Values.config }}
{{- if and (eq ($config.discover | default "off") "kubernetes") $config.kubernetes_selector (ne ($config.kubernetes_kind | default "pods") "endpointslices") }}yes{{ end }}
{{- end }}

{{/* The port of a URL; of one without, that of its scheme. */}}
{{- define "kv-router.port-of" -}}
{{- $url := urlParse . }}
{{- $own := dict "http" "80" "https" "443" }}
{{- regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) | default (get $own $url.scheme | default "6379") }}
{{- end }}
