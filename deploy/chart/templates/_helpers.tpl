{{/* The name of everything that is the release's. */}}
{{- define "spot-migrator.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{/* The name of the account. */}}
{{- define "spot-migrator.account" -}}
{{- .Values.serviceAccount.name | default (ternary (include "spot-migrator.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{/* Labels of every object. */}}
{{- define "spot-migrator.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What tells the migrator's pods from all others. */}}
{{- define "spot-migrator.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: migrator
{{- end -}}

{{/* What tells the agents from all others. */}}
{{- define "spot-migrator.agent.selector" -}}
app.kubernetes.io/name: spot-agent
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* The image. */}}
{{- define "spot-migrator.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The configuration file: what was given, and where the webhook's URL is mounted. */}}
{{- define "spot-migrator.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- if .Values.webhookSecret.name -}}
{{- $url := dict "notifications" (dict "webhookUrlFile" (printf "/etc/spot-migrator-webhook/%s" .Values.webhookSecret.key)) -}}
{{- $config = mergeOverwrite $config $url -}}
{{- end -}}
{{ toYaml $config }}
{{- end -}}

{{/* The configuration as the process takes it: what is not given has its default. */}}
{{- define "spot-migrator.effective" -}}
{{- $defaults := .Files.Get "files/defaults.yaml" | fromYaml -}}
{{ mergeOverwrite $defaults (include "spot-migrator.config" . | fromYaml) | toYaml }}
{{- end -}}

{{/* The keys that the running process does not take over: a pod is replaced when one of them changes. */}}
{{- define "spot-migrator.fixed" -}}
{{- $effective := include "spot-migrator.effective" . | fromYaml -}}
{{- $fixed := dict -}}
{{- range tuple "cloudProvider" "dryRun" "interruption" "leaderElection" "loadBalancer" "log.format" "selection.capacityLabels" "selection.unlabelledNodes" "server" "shutdown" "state" -}}
{{- $value := $effective -}}
{{- range splitList "." . -}}
{{- $value = get $value . -}}
{{- end -}}
{{- $_ := set $fixed . $value -}}
{{- end -}}
{{ toYaml $fixed }}
{{- end -}}

{{/* The namespace of the ConfigMap that outlives a process, and of the lease. */}}
{{- define "spot-migrator.stateNamespace" -}}
{{- (include "spot-migrator.effective" . | fromYaml).state.namespace | default .Release.Namespace -}}
{{- end -}}

{{/* The port of metrics and health. */}}
{{- define "spot-migrator.port" -}}
{{- (include "spot-migrator.effective" . | fromYaml).server.address | regexFind "[0-9]+$" -}}
{{- end -}}

{{/* The whole seconds of a duration as `1h2m3s`. */}}
{{- define "spot-migrator.seconds" -}}
{{- $text := regexReplaceAll "[0-9]+ms$" . "" -}}
{{- $of := dict -}}
{{- range tuple "h" "m" "s" -}}
{{- $_ := regexFind (printf "[0-9]+%s" .) $text | trimSuffix . | default "0" | int | set $of . -}}
{{- end -}}
{{- add (mul $of.h 3600) (mul $of.m 60) $of.s -}}
{{- end -}}

{{/* Variables that tell the process which pod it is. */}}
{{- define "spot-migrator.env" -}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: POD_UID
  valueFrom: {fieldRef: {fieldPath: metadata.uid}}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* A container that runs one command and ends; from a list of context, name and arguments. */}}
{{- define "spot-migrator.command" -}}
{{- $root := index . 0 -}}
- name: {{ index . 1 }}
  image: {{ include "spot-migrator.image" $root }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  command: [spot-migrator]
  args: {{ toJson (concat (index . 2) (list "--config" "/etc/spot-migrator/config.yaml")) }}
  env:
    {{- include "spot-migrator.env" $root | nindent 4 }}
  volumeMounts:
    {{- include "spot-migrator.mounts" $root | nindent 4 }}
  resources:
    {{- toYaml $root.Values.resources | nindent 4 }}
  securityContext:
    {{- toYaml $root.Values.securityContext | nindent 4 }}
{{- end -}}

{{/* Where the files are in a container. A folder, and not a file of it: so the process sees it change. */}}
{{- define "spot-migrator.mounts" -}}
- name: config
  mountPath: /etc/spot-migrator
  readOnly: true
{{- if .Values.webhookSecret.name }}
- name: webhook
  mountPath: /etc/spot-migrator-webhook
  readOnly: true
{{- end }}
{{- end -}}

{{/* What every pod of the migrator has: whose it is, where it may be, what is mounted. */}}
{{- define "spot-migrator.pod" -}}
serviceAccountName: {{ include "spot-migrator.account" . | quote }}
automountServiceAccountToken: true
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
volumes:
  - name: config
    configMap: {name: {{ include "spot-migrator.fullname" . }}-config}
  {{- with .Values.webhookSecret.name }}
  - name: webhook
    secret: {secretName: {{ . | quote }}}
  {{- end }}
{{- end -}}
