{{- define "tidegate.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "tidegate.fullname" -}}
{{- $name := include "tidegate.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What selects the operator's pod. Never changes: a Deployment's selector can't. */}}
{{- define "tidegate.selectorLabels" -}}
app.kubernetes.io/name: {{ include "tidegate.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: operator
{{- end -}}

{{/* The Deployment of a shard, and its Lease: (root, number). */}}
{{- define "tidegate.shardName" -}}
{{- $root := index . 0 -}}
{{- include "tidegate.fullname" $root -}}
{{- if gt (int $root.Values.shards) 1 }}-shard-{{ index . 1 }}{{ end -}}
{{- end -}}

{{/* The names of all of them, as JSON. */}}
{{- define "tidegate.shardNames" -}}
{{- $names := list -}}
{{- range $shard := until (int .Values.shards) -}}
{{- $names = append $names (include "tidegate.shardName" (list $ $shard)) -}}
{{- end -}}
{{- $names | toJson -}}
{{- end -}}

{{/* What selects the pods of a shard: (root, number). */}}
{{- define "tidegate.shardLabels" -}}
{{- $root := index . 0 -}}
{{- include "tidegate.selectorLabels" $root }}
{{- if gt (int $root.Values.shards) 1 }}
tidegate.io/shard: {{ index . 1 | quote }}
{{- end }}
{{- end -}}

{{- define "tidegate.labels" -}}
app.kubernetes.io/name: {{ include "tidegate.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/part-of: tidegate
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tidegate.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "tidegate.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* An image's reference; called with a list of the root and the image's values. */}}
{{- define "tidegate.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository ($image.tag | default $root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* sparkapplication or none. */}}
{{- define "tidegate.sparkRunner" -}}
{{- if ne .Values.spark.runner "auto" -}}
{{- .Values.spark.runner -}}
{{- else if .Capabilities.APIVersions.Has "sparkoperator.k8s.io/v1beta2" -}}
sparkapplication
{{- else -}}
none
{{- end -}}
{{- end -}}

{{/* Where jobs run, as a JSON list. */}}
{{- define "tidegate.sparkNamespaces" -}}
{{- .Values.spark.namespaces | default .Values.watchNamespaces | default (list .Release.Namespace) | uniq | toJson -}}
{{- end -}}

{{- define "tidegate.webhookSecret" -}}
{{- include "tidegate.fullname" . }}-webhook-tls
{{- end -}}

{{/* Who makes the certificates of webhook and metrics: cert-manager, the operator itself (own), or nobody. */}}
{{- define "tidegate.certificates" -}}
{{- if not (or .Values.webhook.enabled .Values.metrics.tls) -}}
none
{{- else if .Values.webhook.certManager.enabled -}}
cert-manager
{{- else -}}
own
{{- end -}}
{{- end -}}

{{/* Whether admission policies are rendered: not empty where they are. */}}
{{- define "tidegate.admissionPolicy" -}}
{{- $served := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" -}}
{{- if or (eq .Values.approval.admissionPolicy "always") (and (eq .Values.approval.admissionPolicy "auto") $served) -}}
yes
{{- else if .Values.approval.required -}}
{{- fail "approval.required is enforced by a ValidatingAdmissionPolicy, which is not rendered: the cluster does not serve any, or was not asked. With Kubernetes 1.30 or later set approval.admissionPolicy to always" -}}
{{- end -}}
{{- end -}}

{{/* Where admission policies hold: in the namespaces that this release serves. */}}
{{- define "tidegate.admissionNamespaces" -}}
{{- if .Values.watchNamespaces -}}
matchResources:
  namespaceSelector:
    matchExpressions:
      - key: kubernetes.io/metadata.name
        operator: In
        values: {{- .Values.watchNamespaces | uniq | toYaml | nindent 10 }}
{{- end -}}
{{- end -}}

{{/* A hook's annotations; called with its weight. Argo CD and Flux read the same ones. */}}
{{- define "tidegate.uninstallHook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/* The operator's rights in a namespace that it serves. */}}
{{- define "tidegate.servedRules" -}}
- apiGroups: [tidegate.io]
  resources: [kafkaconnections, consumergrouppauses, offsetresetpolicies, offsetresets, offsetresetapprovals, offsetbackups]
  verbs: [get, list, watch]
# Finalizers: connections, approvals and backups have none, a policy one of an earlier version of Tidegate only.
- apiGroups: [tidegate.io]
  resources: [consumergrouppauses, offsetresetpolicies, offsetresets]
  verbs: [patch]
# The resets that policies ask for. They are deleted when a policy asks for another, or when their time is over.
- apiGroups: [tidegate.io]
  resources: [offsetresets]
  verbs: [create, delete]
- apiGroups: [tidegate.io]
  resources:
    - kafkaconnections/status
    - consumergrouppauses/status
    - offsetresetpolicies/status
    - offsetresets/status
    - offsetresetapprovals/status
    - offsetbackups/status
  verbs: [update]
# Deleted is what was kept for an undo of an OffsetReset that is gone.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, create, update, delete]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- if eq (include "tidegate.sparkRunner" .) "sparkapplication" }}
# Runs as SparkApplications: the driver's end, and why.
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications]
  verbs: [get, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, delete]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
{{- end }}
{{- if .Values.webhook.enabled }}
# Injection: which pods have their policy's settings, and with `rollout: Restart` one after the other made anew.
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
- apiGroups: [""]
  resources: [pods/eviction]
  verbs: [create]
- apiGroups: [apps]
  resources: [replicasets, statefulsets, daemonsets]
  verbs: [get]
- apiGroups: [""]
  resources: [replicationcontrollers]
  verbs: [get]
{{- end }}
{{- if .Values.scale.enabled }}
# Pauses by scaling.
- apiGroups: [apps]
  resources: [deployments/scale, statefulsets/scale]
  verbs: [get, patch]
{{- range .Values.scale.workloads }}
- apiGroups: [{{ .apiGroup | quote }}]
  resources: [{{ .resource }}/scale]
  verbs: [get, patch]
{{- end }}
{{- if .Values.scale.keda }}
- apiGroups: [keda.sh]
  resources: [scaledobjects]
  verbs: [list, patch]
{{- end }}
{{- end }}
{{- end -}}

{{/* What the operator is told, for its Deployment and for uninstalling. */}}
{{- define "tidegate.env" -}}
- name: TIDEGATE_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: TIDEGATE_NAMESPACES
  value: {{ join "," .Values.watchNamespaces | quote }}
- name: TIDEGATE_LOG_LEVEL
  value: {{ .Values.operator.logLevel | quote }}
- name: TIDEGATE_RUNTIME_DIRECTORY
  value: /run/tidegate/files # the mount itself is root's, and the operator wants a folder of its own
- name: TIDEGATE_SEPARATE_APPROVER
  value: {{ .Values.approval.separateApprover | quote }}
- name: TIDEGATE_SPARK_RUNNER
  value: {{ include "tidegate.sparkRunner" . | quote }}
- name: TIDEGATE_SPARK_ALLOWED_CONF
  value: {{ join "," .Values.spark.allowedConf | quote }}
{{- if eq (include "tidegate.sparkRunner" .) "sparkapplication" }}
- name: TIDEGATE_SPARK_IMAGE
  value: {{ include "tidegate.image" (list . .Values.spark.image) | quote }}
- name: TIDEGATE_SPARK_IMAGE_PULL_POLICY
  value: {{ .Values.spark.image.pullPolicy | quote }}
- name: TIDEGATE_SPARK_SERVICE_ACCOUNT
  value: {{ .Values.spark.serviceAccount.name | quote }}
- name: TIDEGATE_SPARK_DRIVER_CORES
  value: {{ .Values.spark.driver.cores | quote }}
- name: TIDEGATE_SPARK_DRIVER_MEMORY
  value: {{ .Values.spark.driver.memory | quote }}
- name: TIDEGATE_SPARK_EXECUTOR_INSTANCES
  value: {{ .Values.spark.executor.instances | quote }}
- name: TIDEGATE_SPARK_EXECUTOR_CORES
  value: {{ .Values.spark.executor.cores | quote }}
- name: TIDEGATE_SPARK_EXECUTOR_MEMORY
  value: {{ .Values.spark.executor.memory | quote }}
- name: TIDEGATE_SPARK_CONF
  value: {{ .Values.spark.conf | toJson | quote }}
- name: TIDEGATE_SPARK_TIME_TO_LIVE_S
  value: {{ .Values.spark.timeToLiveSeconds | quote }}
- name: TIDEGATE_SPARK_START_TIMEOUT_S
  value: {{ .Values.spark.startTimeoutSeconds | quote }}
{{- end }}
{{- end -}}
