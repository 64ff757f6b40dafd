{{/* The pod of a role. */}}
{{- define "strata.pod" -}}
{{- $root := .root }}
{{- $role := .role }}
{{- $values := index $root.Values $role }}
{{- $name := include "strata.fullname" $root }}
{{- $qdrant := and (eq $role "longterm") $root.Values.qdrant.existingSecret }}
{{- $public := and (eq $role "router") $root.Values.tls.public.secret }}
metadata:
  # No versions here: a chart that changes nothing of a pod restarts none.
  labels:
    {{- include "strata.selector" . | nindent 4 }}
    {{- if $root.Values.metrics.enabled }}
    strata/metrics: "true"
    {{- end }}
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
      matchLabelKeys: [{{ eq $role "working" | ternary "controller-revision-hash" "pod-template-hash" }}]
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
        # Secrets are files: a variable would be seen by whoever may look at the pod.
        - { name: STRATA_SIGNING_KEYS_FILE, value: {{ printf "/etc/strata-signing/%s" $root.Values.signingKeys.key | quote }} }
        {{- with $root.Values.signingKeys.secretKey }}
        - { name: STRATA_SECRET__FILE, value: {{ printf "/etc/strata-signing/%s" . | quote }} }
        {{- end }}
        {{- if $root.Values.redis.existingSecret }}
        - { name: STRATA_REDIS__URL__FILE, value: {{ printf "/etc/strata-redis/%s" $root.Values.redis.key | quote }} }
        {{- else }}
        - { name: STRATA_REDIS__URL, value: {{ $root.Values.redis.url | default (printf "redis://%s-redis:6379/0" $name) | quote }} }
        {{- end }}
        {{- if $qdrant }}
        - { name: STRATA_QDRANT__API_KEY__FILE, value: {{ printf "/etc/strata-qdrant/%s" $root.Values.qdrant.key | quote }} }
        {{- end }}
        {{- if $public }}
        # The router's alone: a layer would look for the files too.
        - { name: STRATA_SERVER__TLS__CERTIFICATE_FILE, value: /etc/strata-tls/tls.crt }
        - { name: STRATA_SERVER__TLS__KEY_FILE, value: /etc/strata-tls/tls.key }
        {{- if $root.Values.tls.public.mutual }}
        - { name: STRATA_SERVER__TLS__AUTHORITIES_FILE, value: /etc/strata-tls/ca.crt }
        {{- end }}
        {{- end }}
        - name: STRATA_TELEMETRY__INSTANCE
          valueFrom: { fieldRef: { fieldPath: metadata.name } }
        {{- if gt (int $root.Values.working.replicas) 1 }}
        # Here and not in the file: another number of replicas restarts no other role.
        {{- if eq $role "router" }}
        - { name: STRATA_PEERS__WORKING, value: {{ include "strata.workingPeers" $root | quote }} }
        {{- else if eq $role "working" }}
        - { name: STRATA_WORKING__SHARED, value: "true" }
        {{- end }}
        {{- end }}
        {{- with $values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - { name: grpc, containerPort: 7420 }
        {{- if $root.Values.metrics.enabled }}
        - { name: metrics, containerPort: 9464 }
        {{- end }}
      {{- $live := "grpc: { port: 7420, service: liveness }" }}
      {{- $ready := "grpc: { port: 7420 }" }}
      {{- if (eq $role "router" | ternary $root.Values.tls.public $root.Values.tls.internal).secret }}
      # A kubelet's gRPC probes speak no TLS.
      {{- $live = "httpGet: { path: /livez, port: metrics }" }}
      {{- $ready = "httpGet: { path: /readyz, port: metrics }" }}
      {{- end }}
      # Long-term memory checks its whole file before it listens: ten minutes, then something is wrong.
      startupProbe: { {{ $live }}, periodSeconds: 2, failureThreshold: 300, timeoutSeconds: 2 }
      # Whether the process answers, whatever its stores do: a store that is down must not restart a healthy process.
      livenessProbe: { {{ $live }}, periodSeconds: 10, failureThreshold: 6, timeoutSeconds: 5 }
      # Whether every service of the process serves; not any more as soon as it is told to stop.
      readinessProbe: { {{ $ready }}, periodSeconds: 5, failureThreshold: 2, timeoutSeconds: 2 }
      lifecycle:
        preStop: { sleep: { seconds: {{ $root.Values.preStopSeconds }} } }
      securityContext: {{- include "strata.containerSecurity" $root | nindent 8 }}
      resources: {{- toYaml $values.resources | nindent 8 }}
      volumeMounts:
        # The folder, not the file in it: only then is a change of the ConfigMap seen.
        - { name: config, mountPath: /etc/strata, readOnly: true }
        - { name: signing, mountPath: /etc/strata-signing, readOnly: true }
        {{- if $root.Values.redis.existingSecret }}
        - { name: redis, mountPath: /etc/strata-redis, readOnly: true }
        {{- end }}
        {{- if $qdrant }}
        - { name: qdrant, mountPath: /etc/strata-qdrant, readOnly: true }
        {{- end }}
        - { name: data, mountPath: /var/lib/strata }
        {{- if eq $role "longterm" }}
        - { name: erasures, mountPath: /var/lib/strata-erasures }
        {{- end }}
        {{- if and (eq $role "longterm") $root.Values.longterm.backups.storage }}
        - { name: backups, mountPath: /var/lib/strata-backups }
        {{- end }}
        - { name: tmp, mountPath: /tmp }
        {{- if $public }}
        - { name: tls, mountPath: /etc/strata-tls, readOnly: true }
        {{- end }}
        {{- if $root.Values.tls.internal.secret }}
        - { name: internal-tls, mountPath: /etc/strata-internal-tls, readOnly: true }
        {{- end }}
        {{- with $values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: config
      configMap: { name: {{ $name }} }
    - name: signing
      secret: { secretName: {{ include "strata.signingSecret" $root | quote }}, defaultMode: 0440 }
    {{- with $root.Values.redis.existingSecret }}
    - name: redis
      secret: { secretName: {{ . | quote }}, defaultMode: 0440 }
    {{- end }}
    {{- if $qdrant }}
    - name: qdrant
      secret: { secretName: {{ $root.Values.qdrant.existingSecret | quote }}, defaultMode: 0440 }
    {{- end }}
    - name: tmp
      emptyDir: { sizeLimit: 1Gi }
    {{- if $public }}
    - name: tls
      secret: { secretName: {{ $root.Values.tls.public.secret | quote }}, defaultMode: 0440 }
    {{- end }}
    {{- with $root.Values.tls.internal.secret }}
    - name: internal-tls
      secret: { secretName: {{ . | quote }}, defaultMode: 0440 }
    {{- end }}
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
