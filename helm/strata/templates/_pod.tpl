{{/* The pod of a role. */}}
{{- define "strata.pod" -}}
{{- $root := .root }}
{{- $role := .role }}
{{- $values := index $root.Values $role }}
{{- $name := include "strata.fullname" $root }}
metadata:
  # No versions here: a chart that changes nothing of a pod restarts none.
  labels:
    {{- include "strata.selector" . | nindent 4 }}
    {{- with $values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    checksum/config: {{ include "strata.config.static" $root | sha256sum }}
    {{- with $values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "strata.serviceAccount" $root }}
  automountServiceAccountToken: false
  # Variables such as STRATA_ROUTER_PORT of the services around it are no configuration.
  enableServiceLinks: false
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  terminationGracePeriodSeconds: {{ add $root.Values.preStopSeconds $root.Values.graceSeconds 10 }}
  securityContext: {{- include "strata.podSecurity" 10001 | nindent 4 }}
  {{- with $values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.topologySpread }}
  topologySpreadConstraints:
    {{- range $key, $when := dict "kubernetes.io/hostname" .hosts "topology.kubernetes.io/zone" .zones }}
    - maxSkew: 1
      topologyKey: {{ $key }}
      whenUnsatisfiable: {{ $when }}
      # Of one version only: else the pods being replaced decide where the new ones go.
      matchLabelKeys: [pod-template-hash]
      labelSelector:
        matchLabels: {{- include "strata.selector" (dict "root" $root "role" $role) | nindent 10 }}
    {{- end }}
  {{- end }}
  containers:
    - name: {{ $role }}
      image: {{ include "strata.image" $root | quote }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args:
        - serve
        - --config=/etc/strata/strata.toml
        - --roles={{ $role }}
        - {{ eq $role "router" | ternary "--listen" "--internal-listen" }}=0.0.0.0:7420
      env:
        - { name: STRATA_SIGNING_KEYS_FILE, value: {{ printf "/etc/strata-signing/%s" $root.Values.signingKeys.key | quote }} }
        - name: STRATA_REDIS__URL
          {{- if $root.Values.redis.existingSecret }}
          valueFrom: { secretKeyRef: { name: {{ $root.Values.redis.existingSecret | quote }}, key: {{ $root.Values.redis.key | quote }} } }
          {{- else }}
          value: {{ $root.Values.redis.url | default (printf "redis://%s-redis:6379/0" $name) | quote }}
          {{- end }}
        {{- if and (eq $role "longterm") $root.Values.qdrant.existingSecret }}
        - name: STRATA_QDRANT__API_KEY
          valueFrom: { secretKeyRef: { name: {{ $root.Values.qdrant.existingSecret | quote }}, key: {{ $root.Values.qdrant.key | quote }} } }
        {{- end }}
        - name: STRATA_TELEMETRY__INSTANCE
          valueFrom: { fieldRef: { fieldPath: metadata.name } }
        {{- with $values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - { name: grpc, containerPort: 7420 }
      # Long-term memory checks its whole file before it listens: ten minutes, then something is wrong.
      startupProbe: { grpc: { port: 7420, service: liveness }, periodSeconds: 2, failureThreshold: 300, timeoutSeconds: 2 }
      # Whether the process answers, whatever its stores do: a store that is down must not restart a healthy process.
      livenessProbe: { grpc: { port: 7420, service: liveness }, periodSeconds: 10, failureThreshold: 6, timeoutSeconds: 5 }
      # Whether every service of the process serves; not any more as soon as it is told to stop.
      readinessProbe: { grpc: { port: 7420 }, periodSeconds: 5, failureThreshold: 2, timeoutSeconds: 2 }
      lifecycle:
        preStop: { sleep: { seconds: {{ $root.Values.preStopSeconds }} } }
      securityContext: {{- include "strata.containerSecurity" $root | nindent 8 }}
      resources: {{- toYaml $values.resources | nindent 8 }}
      volumeMounts:
        # The folder, not the file in it: only then is a change of the ConfigMap seen.
        - { name: config, mountPath: /etc/strata, readOnly: true }
        - { name: signing, mountPath: /etc/strata-signing, readOnly: true }
        - { name: data, mountPath: /var/lib/strata }
        {{- if and (eq $role "longterm") $root.Values.longterm.backups.storage }}
        - { name: backups, mountPath: /var/lib/strata-backups }
        {{- end }}
        - { name: tmp, mountPath: /tmp }
        {{- with $values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: config
      configMap: { name: {{ $name }} }
    - name: signing
      secret: { secretName: {{ include "strata.signingSecret" $root | quote }}, defaultMode: 0440 }
    - name: tmp
      emptyDir: { sizeLimit: 1Gi }
    {{- with $values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- if ne $role "longterm" }}
    - name: data
      emptyDir: { sizeLimit: 1Gi }
    {{- end }}
{{- end }}

{{/* A claim of a StatefulSet. */}}
{{- define "strata.claim" -}}
- apiVersion: v1
  kind: PersistentVolumeClaim
  metadata:
    name: {{ .name }}
  spec:
    accessModes: [ReadWriteOnce]
    {{- with .class }}
    storageClassName: {{ . | quote }}
    {{- end }}
    resources: { requests: { storage: {{ .size }} } }
{{- end }}
