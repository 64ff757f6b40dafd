{{/*
A value in TOML. Helm reads every number of a values file as a fraction: whole ones are written without, which TOML
readers take for both. JSON's strings are TOML's basic strings.
*/}}
{{- define "strata.toml.value" -}}
{{- if kindIs "map" . -}}
{ {{- range $index, $key := keys . | sortAlpha }}{{ if $index }},{{ end }} {{ include "strata.toml.key" $key }} = {{ include "strata.toml.value" (get $ $key) }}{{ end }} }
{{- else if kindIs "slice" . -}}
[{{- range $index, $item := . }}{{ if $index }}, {{ end }}{{ include "strata.toml.value" $item }}{{ end -}}]
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}
{{ int64 . }}
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end }}

{{- define "strata.toml.key" -}}
{{ regexMatch "^[A-Za-z0-9_-]+$" . | ternary . (toJson .) }}
{{- end }}

{{/* A table with its header, then the tables in it; `path` is empty for the whole file. A null leaves its key out. */}}
{{- define "strata.toml.table" -}}
{{- $path := .path -}}
{{- $table := .table -}}
{{- if $path }}
[{{ $path }}]
{{- end }}
{{- range $key := keys $table | sortAlpha }}
{{- $value := get $table $key }}
{{- if not (or (kindIs "map" $value) (kindIs "invalid" $value)) }}
{{ include "strata.toml.key" $key }} = {{ include "strata.toml.value" $value }}
{{- end }}
{{- end }}
{{- range $key := keys $table | sortAlpha }}
{{- $value := get $table $key }}
{{- if kindIs "map" $value }}
{{- $name := include "strata.toml.key" $key }}
{{- include "strata.toml.table" (dict "path" (list $path $name | compact | join ".") "table" $value) }}
{{- end }}
{{- end }}
{{- end }}
