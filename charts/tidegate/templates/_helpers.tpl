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
{{- /* The chart's own stay: objects select by them, and a label that is there twice is no YAML. */}}
{{- with omit .Values.commonLabels "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "app.kubernetes.io/part-of" "app.kubernetes.io/component" "helm.sh/chart" }}
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

{{/* The pods of jobs, drivers and executors: the operator gives each this label. */}}
{{- define "tidegate.jobPods" -}}
matchExpressions:
  - {key: tidegate.io/launch, operator: Exists}
{{- end -}}

{{/* The account of executors. */}}
{{- define "tidegate.executorAccount" -}}
{{- $account := .Values.spark.serviceAccount -}}
{{- $account.executorName | default (ternary (printf "%s-executor" $account.name) $account.name $account.create) -}}
{{- end -}}

{{/*
Whom Tidegate's pods may connect to: everybody but link-local addresses, and those where clouds hand out the machine's
credentials. These answer on port 80.
*/}}
{{- define "tidegate.egress" -}}
# DNS by its port alone: a node's own cache has a link-local address.
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
# The API server by its ports alone: with some network plugins no address block has the addresses of nodes.
- ports:
    - {port: 443, protocol: TCP}
    - {port: 6443, protocol: TCP}
# Brokers that are pods: with some network plugins no address block has these either.
- to:
    - namespaceSelector: {}
# Brokers elsewhere.
- to:
    - ipBlock:
        cidr: 0.0.0.0/0
        except: [169.254.0.0/16, 100.100.100.200/32, 168.63.129.16/32]
    - ipBlock:
        cidr: "::/0"
        except: ["fe80::/10", "fd00:ec2::254/128", "fd20:ce::254/128"]
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

{{/* Whether the admission policies on rights and jobs are rendered: not empty where they are. */}}
{{- define "tidegate.rightsPolicy" -}}
{{- $served := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" -}}
{{- if or (eq .Values.rbac.admissionPolicy "always") (and (eq .Values.rbac.admissionPolicy "auto") $served) -}}
yes
{{- end -}}
{{- end -}}

{{/* In CEL: whether an image is the chart's own or an allowed one; called with the root and the expression of the image. */}}
{{- define "tidegate.imageIsAllowed" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $exact := list (include "tidegate.image" (list $root $root.Values.spark.image)) -}}
{{- $below := list -}}
{{- range $root.Values.spark.allowedImages -}}
{{- if hasSuffix "/*" . -}}
{{- $below = append $below (trimSuffix "*" .) -}}
{{- else -}}
{{- $exact = append $exact . -}}
{{- end -}}
{{- end -}}
({{ $image }} in {{ $exact | toJson }}{{ if $below }} || {{ $below | toJson }}.exists(path, {{ $image }}.startsWith(path)){{ end }})
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

{{/* Where the operator may read Secrets, as a JSON list; empty: in the whole cluster, by an explicit value only. */}}
{{- define "tidegate.secretNamespaces" -}}
{{- $secrets := .Values.rbac.secrets -}}
{{- if and $secrets.clusterWide (or .Values.watchNamespaces $secrets.namespaces) -}}
{{- fail "rbac.secrets.clusterWide lets the operator read every Secret of the cluster: leave watchNamespaces and rbac.secrets.namespaces empty with it, or set it to false" -}}
{{- end -}}
{{- range $secrets.namespaces -}}
{{- if and $.Values.watchNamespaces (not (has . $.Values.watchNamespaces)) -}}
{{- fail (printf "rbac.secrets.namespaces has %s, which watchNamespaces does not have: no connection is served there" .) -}}
{{- end -}}
{{- end -}}
{{- if $secrets.clusterWide -}}
[]
{{- else -}}
{{- $secrets.namespaces | default .Values.watchNamespaces | default (list .Release.Namespace) | uniq | sortAlpha | toJson -}}
{{- end -}}
{{- end -}}

{{/*
The namespaces whose KafkaConnections name Secrets that the operator may not read, as a JSON list. Only where a cluster is
asked: `helm template` finds none.
*/}}
{{- define "tidegate.secretsUnreadable" -}}
{{- $without := list -}}
{{- $readable := include "tidegate.secretNamespaces" . | fromJsonArray -}}
{{- $served := .Capabilities.APIVersions.Has "tidegate.io/v1alpha1/KafkaConnection" -}}
{{- if and .Values.rbac.create $served $readable -}}
{{- /* Whoever installs for some namespaces may list nothing in the others. "" is all of them. */ -}}
{{- range $namespace := .Values.watchNamespaces | default (list "") -}}
{{- if not (has $namespace $readable) -}}
{{- range (lookup "tidegate.io/v1alpha1" "KafkaConnection" $namespace "").items -}}
{{- if and (contains "\"secretName\"" (toJson .spec)) (not (has .metadata.namespace $readable)) -}}
{{- $without = append $without .metadata.namespace -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $without | uniq | sortAlpha | toJson -}}
{{- end -}}

{{- define "tidegate.secretRules" -}}
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
{{- end -}}

{{/* The operator's rights in a namespace that it serves; those to Secrets are apart. */}}
{{- define "tidegate.servedRules" -}}
- apiGroups: [tidegate.io]
  resources: [kafkaconnections, consumergrouppauses, offsetresetpolicies, offsetresets, offsetresetapprovals, offsetbackups, offsetmirrors]
  verbs: [get, list, watch]
# Finalizers: connections, approvals, backups and mirrors have none, a policy one of an earlier version of Tidegate only.
- apiGroups: [tidegate.io]
  resources: [consumergrouppauses, offsetresetpolicies, offsetresets]
  verbs: [patch]
# The resets that policies ask for. They are deleted when a policy asks for another, or when their time is over.
- apiGroups: [tidegate.io]
  resources: [offsetresets]
  verbs: [create, delete]
# The pauses that resets ask for (until.then: Pause). They are deleted when the reset fails after all.
- apiGroups: [tidegate.io]
  resources: [consumergrouppauses]
  verbs: [create, delete]
- apiGroups: [tidegate.io]
  resources:
    - kafkaconnections/status
    - consumergrouppauses/status
    - offsetresetpolicies/status
    - offsetresets/status
    - offsetresetapprovals/status
    - offsetbackups/status
    - offsetmirrors/status
  verbs: [update]
# Deleted is what was kept for an undo of an OffsetReset that is gone.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, create, update, delete]
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
{{- include "tidegate.scaleRules" . }}
{{- end -}}

{{- define "tidegate.scaleRules" -}}
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

{{/*
The rights by which uninstalling undoes, in a namespace that is served, what the operator may do there; those to Secrets
are apart.
*/}}
{{- define "tidegate.uninstallRules" -}}
- apiGroups: [tidegate.io]
  resources: [kafkaconnections, consumergrouppauses, offsetresetpolicies, offsetresets, offsetresetapprovals]
  verbs: [get, list]
- apiGroups: [tidegate.io]
  resources: [offsetbackups]
  verbs: [get]
- apiGroups: [tidegate.io]
  resources: [consumergrouppauses, offsetresetpolicies, offsetresets]
  verbs: [patch]
- apiGroups: [tidegate.io]
  resources: [kafkaconnections/status, consumergrouppauses/status, offsetresets/status]
  verbs: [update]
# The runs, what an undo will need of them, and what is kept for none.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, create, update, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- if eq (include "tidegate.sparkRunner" .) "sparkapplication" }}
# Jobs that are at work.
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications]
  verbs: [get, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, delete]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
{{- end }}
{{- include "tidegate.scaleRules" . }}
{{- end -}}

{{/* What the operator is told, for its Deployment and for uninstalling. */}}
{{- define "tidegate.env" -}}
- name: TIDEGATE_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: TIDEGATE_NAMESPACES
  value: {{ join "," .Values.watchNamespaces | quote }}
- name: TIDEGATE_LOG_LEVEL
  value: {{ .Values.operator.logLevel | quote }}
- name: TIDEGATE_LOG_FORMAT
  value: {{ .Values.operator.logFormat | quote }}
- name: TIDEGATE_RUNTIME_DIRECTORY
  value: /run/tidegate/files # the mount itself is root's, and the operator wants a folder of its own
- name: TIDEGATE_SEPARATE_APPROVER
  value: {{ .Values.approval.separateApprover | quote }}
- name: TIDEGATE_OBSERVE
  value: {{ .Values.operator.observe | quote }}
{{- /* A number of a values file is a floating-point one, which would be written as 1e+06 from a million on. */}}
- name: TIDEGATE_UNDO_KEPT_S
  value: {{ int64 .Values.operator.undoKeptSeconds | quote }}
- name: TIDEGATE_SPARK_RUNNER
  value: {{ include "tidegate.sparkRunner" . | quote }}
- name: TIDEGATE_SPARK_ALLOWED_CONF
  value: {{ join "," .Values.spark.allowedConf | quote }}
{{- if eq (include "tidegate.sparkRunner" .) "sparkapplication" }}
- name: TIDEGATE_SPARK_IMAGE
  value: {{ include "tidegate.image" (list . .Values.spark.image) | quote }}
- name: TIDEGATE_SPARK_IMAGE_PULL_POLICY
  value: {{ .Values.spark.image.pullPolicy | quote }}
- name: TIDEGATE_SPARK_ALLOWED_IMAGES
  value: {{ join "," .Values.spark.allowedImages | quote }}
- name: TIDEGATE_SPARK_SERVICE_ACCOUNT
  value: {{ .Values.spark.serviceAccount.name | quote }}
- name: TIDEGATE_SPARK_EXECUTOR_SERVICE_ACCOUNT
  value: {{ include "tidegate.executorAccount" . | quote }}
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
  value: {{ int64 .Values.spark.timeToLiveSeconds | quote }}
- name: TIDEGATE_SPARK_START_TIMEOUT_S
  value: {{ .Values.spark.startTimeoutSeconds | quote }}
{{- end }}
{{- end -}}
