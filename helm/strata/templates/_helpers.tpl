{{/* Short enough that every name made from it stays below 63 characters. */}}
{{- define "strata.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- (contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name)) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* What selects the pods of one component; never changes between versions. */}}
{{- define "strata.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | trunc 63 }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .role }}
{{- end }}

{{- define "strata.labels" -}}
{{ include "strata.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* An image by digest, or by tag; `tag` is the default of the tag. */}}
{{- define "strata.imageOf" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .tag }}
{{- end -}}
{{- end }}

{{- define "strata.image" -}}
{{ include "strata.imageOf" (dict "image" .Values.image "tag" .Chart.AppVersion) }}
{{- end }}

{{/* Where routers find working memory: each of its replicas by its own name, which outlives the pod. */}}
{{- define "strata.workingPeers" -}}
{{- $name := include "strata.fullname" . -}}
{{- $scheme := empty .Values.tls.internal.secret | ternary "http" "https" -}}
{{- $peers := list -}}
{{- range $n := until (int .Values.working.replicas) -}}
{{- $peers = append $peers (printf "%s://%s-working-%d.%s-working:7420" $scheme $name $n $name) -}}
{{- end -}}
{{- join "," $peers -}}
{{- end }}

{{- define "strata.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "strata.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end }}

{{- define "strata.signingSecret" -}}
{{ .Values.signingKeys.existingSecret | default (printf "%s-signing" (include "strata.fullname" .)) }}
{{- end }}

{{- define "strata.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: { drop: [ALL] }
{{- end }}

{{/* Security of a pod; `uid` is also the group that owns its volumes. */}}
{{- define "strata.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{/* What no schema can say of one value alone. */}}
{{- define "strata.validate" -}}
{{- with .Values -}}
{{- if and (not .signingKeys.existingSecret) (not .signingKeys.generate) -}}
{{- fail "signingKeys.existingSecret is required: kubectl create secret generic strata-signing --from-literal=signing-keys=\"k1:$(openssl rand -hex 32)\" --from-literal=secret=\"$(openssl rand -hex 32)\"; or, for a trial, signingKeys.generate=true" -}}
{{- end -}}
{{- if and .signingKeys.existingSecret .signingKeys.generate -}}
{{- fail "signingKeys: set existingSecret or generate, not both" -}}
{{- end -}}
{{- if and (not .auth.apiKeys) (not .config.auth) -}}
{{- fail "auth.apiKeys is required, since the router can be reached from outside: strata config new-key --id me --tenant acme | grep -v '^#' > keys.toml (the key itself is in the line that is left out); --set-file auth.apiKeys=keys.toml" -}}
{{- end -}}
{{- if contains "shown once" .auth.apiKeys -}}
{{- fail "auth.apiKeys still holds the key itself, in the line `# The key, shown once`: keep it elsewhere and take the line out (grep -v '^#')" -}}
{{- end -}}
{{- $redis := list -}}
{{- if .redis.existingSecret }}{{ $redis = append $redis "existingSecret" }}{{ end -}}
{{- if .redis.url }}{{ $redis = append $redis "url" }}{{ end -}}
{{- if .redis.inChart.enabled }}{{ $redis = append $redis "inChart" }}{{ end -}}
{{- if ne (len $redis) 1 -}}
{{- fail (printf "redis: set one of existingSecret, url and inChart.enabled; set are %d (%s)" (len $redis) (join ", " $redis)) -}}
{{- end -}}
{{- if and .qdrant.url .qdrant.inChart.enabled -}}
{{- fail "qdrant: set url or inChart.enabled, not both" -}}
{{- end -}}
{{- if and (or .tls.public.secret .tls.internal.secret) (not .metrics.enabled) -}}
{{- fail "tls needs metrics.enabled: a kubelet's gRPC probes speak no TLS, so pods are probed at the endpoint of the metrics" -}}
{{- end -}}
{{- if and .tls.public.mutual (not (and .tls.public.secret .tls.public.clientSecret)) -}}
{{- fail "tls.public.mutual needs secret, and clientSecret for the chart's own jobs" -}}
{{- end -}}
{{- if and .longterm.backups.schedule (not (and .longterm.backups.storage .longterm.backups.apiKeySecret)) -}}
{{- fail "longterm.backups.schedule needs storage and apiKeySecret" -}}
{{- end -}}
{{- end -}}
{{- end }}
