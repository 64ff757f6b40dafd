{{/* What needs a restart: its digest stands in the pods' annotations. */}}
{{- define "strata.config.static" -}}
{{- $name := include "strata.fullname" . -}}
{{- $scheme := empty .Values.tls.internal.secret | ternary "http" "https" -}}
{{- $config := dict
  "data_dir" "/var/lib/strata"
  "server" (dict "grace_seconds" .Values.graceSeconds)
  "storage" (dict "erasure_log_dir" "/var/lib/strata-erasures")
  "embedder" (dict "model_dir" "/usr/share/strata/models/use-multilingual-v3")
  "peers" (dict
    "working" (printf "%s://%s-working:7420" $scheme $name)
    "session" (printf "%s://%s-session:7420" $scheme $name)
    "longterm" (printf "%s://%s-longterm:7420" $scheme $name))
  "telemetry" (dict "format" "json" "filter" .Values.telemetry.filter "sample_ratio" .Values.telemetry.sampleRatio)
-}}
{{- if .Values.metrics.enabled }}{{ $_ := set $config.telemetry "prometheus_listen" "0.0.0.0:9464" }}{{ end -}}
{{- if .Values.tls.internal.secret -}}
{{- $_ := set $config.server "internal_tls" (dict
  "certificate_file" "/etc/strata-internal-tls/tls.crt"
  "key_file" "/etc/strata-internal-tls/tls.key"
  "authorities_file" "/etc/strata-internal-tls/ca.crt") -}}
{{- end -}}
{{- with .Values.telemetry.otlpEndpoint }}{{ $_ := set $config.telemetry "otlp_endpoint" . }}{{ end -}}
{{- if .Values.longterm.backups.storage }}{{ $_ := set $config.storage "backup_dir" "/var/lib/strata-backups" }}{{ end -}}
{{- if .Values.qdrant.inChart.enabled -}}
{{- $_ := set $config "qdrant" (dict "url" (printf "http://%s-qdrant:6334" $name)) -}}
{{- else if .Values.qdrant.url -}}
{{- $_ := set $config "qdrant" (dict "url" .Values.qdrant.url) -}}
{{- end -}}
{{- include "strata.toml.table" (dict "path" "" "table" (mustMergeOverwrite $config (deepCopy .Values.config))) }}
{{ .Values.auth.apiKeys | trim }}
{{- end }}

{{/* What running processes follow. */}}
{{- define "strata.config.live" -}}
{{- include "strata.toml.table" (dict "path" "" "table" (dict "modes" .Values.modes "policy" .Values.policy)) }}
{{- end }}
