{{- define "strata.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "strata.labels" -}}
app.kubernetes.io/name: strata
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end }}

{{/* The pod of a role. The configuration's folder is mounted, not its file: an update swaps the folder's link. */}}
{{- define "strata.pod" -}}
{{- $root := .root }}
{{- $values := index $root.Values .role }}
metadata:
  labels: {{- include "strata.labels" . | nindent 4 }}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: {{ add $root.Values.graceSeconds 10 }}
  securityContext: { runAsNonRoot: true, runAsUser: 10001, runAsGroup: 10001, fsGroup: 10001, seccompProfile: { type: RuntimeDefault } }
  containers:
    - name: {{ .role }}
      image: {{ include "strata.image" $root | quote }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args:
        - serve
        - --config=/etc/strata/strata.toml
        - --roles={{ .role }}
        - {{ eq .role "router" | ternary "--listen" "--internal-listen" }}=0.0.0.0:7420
      env:
        - { name: STRATA_SIGNING_KEYS_FILE, value: /etc/strata-signing/signing-keys }
        - name: STRATA_REDIS__URL
          valueFrom: { secretKeyRef: { name: {{ $root.Values.storesSecret | quote }}, key: redis-url } }
        {{- if and (eq .role "longterm") $root.Values.qdrantUrl }}
        - { name: STRATA_QDRANT__URL, value: {{ $root.Values.qdrantUrl | quote }} }
        - name: STRATA_QDRANT__API_KEY
          valueFrom: { secretKeyRef: { name: {{ $root.Values.storesSecret | quote }}, key: qdrant-api-key, optional: true } }
        {{- end }}
        - name: STRATA_TELEMETRY__INSTANCE
          valueFrom: { fieldRef: { fieldPath: metadata.name } }
      ports: [{ name: grpc, containerPort: 7420 }]
      # Readiness follows the stores; liveness only asks whether the process listens, so that a store that is down
      # never restarts a healthy process.
      readinessProbe: { grpc: { port: 7420 }, periodSeconds: 5 }
      livenessProbe: { tcpSocket: { port: 7420 }, periodSeconds: 10, failureThreshold: 6 }
      securityContext: { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: [ALL] } }
      resources: {{- toYaml $values.resources | nindent 8 }}
      volumeMounts:
        - { name: config, mountPath: /etc/strata, readOnly: true }
        - { name: signing, mountPath: /etc/strata-signing, readOnly: true }
        - { name: data, mountPath: /var/lib/strata }
        - { name: tmp, mountPath: /tmp }
  volumes:
    - { name: config, configMap: { name: {{ $root.Release.Name }}-strata } }
    - { name: signing, secret: { secretName: {{ $root.Values.signingKeysSecret | quote }} } }
    - { name: tmp, emptyDir: {} }
    {{- if ne .role "longterm" }}
    - { name: data, emptyDir: {} }
    {{- end }}
{{- end }}
