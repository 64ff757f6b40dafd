{{/* The spec of a pod that runs `strata ctl` against the router once. */}}
{{- define "strata.ctl" -}}
{{- $root := .root -}}
{{- $tls := $root.Values.tls.public -}}
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
    args: [ctl, "--server={{ empty $tls.secret | ternary "http" "https" }}://{{ include "strata.fullname" $root }}-router:7420", {{ join ", " .args }}]
    {{- if or .secret $tls.secret }}
    env:
      {{- with .secret }}
      - { name: STRATA_API_KEY_FILE, value: /etc/strata-key/api-key }
      {{- end }}
      {{- if $tls.secret }}
      - { name: STRATA_CA_FILE, value: /etc/strata-tls/ca.crt }
      {{- end }}
      {{- if $tls.mutual }}
      - { name: STRATA_CERTIFICATE_FILE, value: /etc/strata-tls/tls.crt }
      - { name: STRATA_PRIVATE_KEY_FILE, value: /etc/strata-tls/tls.key }
      {{- end }}
    {{- end }}
    securityContext: {{- include "strata.containerSecurity" $root | nindent 6 }}
    resources: { requests: { cpu: 10m, memory: 32Mi }, limits: { memory: 128Mi } }
    {{- if or .secret $tls.secret }}
    volumeMounts:
      {{- if .secret }}
      - { name: key, mountPath: /etc/strata-key, readOnly: true }
      {{- end }}
      {{- if $tls.secret }}
      - { name: tls, mountPath: /etc/strata-tls, readOnly: true }
      {{- end }}
    {{- end }}
{{- if or .secret $tls.secret }}
volumes:
  {{- with .secret }}
  - name: key
    secret: { secretName: {{ . | quote }}, defaultMode: 0440, items: [{ key: api-key, path: api-key }] }
  {{- end }}
  {{- if $tls.secret }}
  - name: tls
    secret:
      secretName: {{ $tls.mutual | ternary $tls.clientSecret $tls.secret | quote }}
      defaultMode: 0440
      {{- if not $tls.mutual }}
      items: [{ key: ca.crt, path: ca.crt }]
      {{- end }}
  {{- end }}
{{- end }}
{{- end }}
