{{/* What needs a restart: its digest stands in the pods' annotations. */}}
{{- define "strata.config.static" -}}
{{- $name := include "strata.fullname" . -}}
{{- $config := dict
  "data_dir" "/var/lib/strata"
  "server" (dict "grace_seconds" .Values.graceSeconds)
  "embedder" (dict "model_dir" "/usr/share/strata/models/use-multilingual-v3")
  "peers" (dict
    "working" (printf "http://%s-working:7420" $name)
    "session" (printf "http://%s-session:7420" $name)
    "longterm" (printf "http://%s-longterm:7420" $name))
  "telemetry" (dict "format" "json" "filter" .Values.telemetry.filter "sample_ratio" .Values.telemetry.sampleRatio)
-}}
{{- with .Values.telemetry.otlpEndpoint }}{{ $_ := set $config.telemetry "otlp_endpoint" . }}{{ end -}}
{{- if .Values.longterm.backups.storage }}{{ $_ := set $config "storage" (dict "backup_dir" "/var/lib/strata-backups") }}{{ end -}}
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
