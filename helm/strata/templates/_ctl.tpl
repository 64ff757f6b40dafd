{{/* The spec of a pod that runs `strata ctl` against the router once. */}}
{{- define "strata.ctl" -}}
{{- $root := .root -}}
serviceAccountName: {{ include "strata.serviceAccount" $root }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- include "strata.podSecurity" 10001 | nindent 2 }}
containers:
  - name: {{ .name }}
    image: {{ include "strata.image" $root | quote }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    args: [ctl, "--server=http://{{ include "strata.fullname" $root }}-router:7420", {{ join ", " .args }}]
    {{- with .secret }}
    env:
      - name: STRATA_API_KEY
        valueFrom: { secretKeyRef: { name: {{ . | quote }}, key: api-key } }
    {{- end }}
    securityContext: {{- include "strata.containerSecurity" $root | nindent 6 }}
    resources: { requests: { cpu: 10m, memory: 32Mi }, limits: { memory: 128Mi } }
{{- end }}
