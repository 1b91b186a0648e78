{{/* Refuses values that can't work, all that is wrong at once. */}}
{{- define "spot-migrator.check" -}}
{{- $config := include "spot-migrator.effective" . | fromYaml -}}
{{- $wrong := list -}}
{{- $variables := list -}}
{{- range .Values.extraEnv -}}{{- $variables = append $variables .name -}}{{- end -}}
{{- $region := or $config.cloudProvider.aws.region (has "AWS_REGION" $variables) (has "AWS_DEFAULT_REGION" $variables) -}}
{{- if not .Values.image.repository -}}
{{- $wrong = append $wrong "image.repository: where is the image? Build one with the Dockerfile of the repository, and name it by --set image.repository=…" -}}
{{- end -}}
{{- if eq $config.cloudProvider.name "aws" -}}
{{- $aws := $config.cloudProvider.aws -}}
{{- if not $aws.clusterName -}}
{{- $wrong = append $wrong "config.cloudProvider.aws.clusterName: which cluster is it? Provider aws needs its name, as the instances are tagged: --set config.cloudProvider.aws.clusterName=… (with Karpenter, KWOK or kind, --set config.cloudProvider.name=node-object instead)" -}}
{{- end -}}
{{- if not $region -}}
{{- $wrong = append $wrong "config.cloudProvider.aws.region: where is it? Provider aws needs a region: --set config.cloudProvider.aws.region=eu-west-1" -}}
{{- end -}}
{{- else if and $config.interruption.queueUrl (not $region) -}}
{{- $wrong = append $wrong "config.interruption.queueUrl: where is the queue? It is read through AWS with every provider, which needs a region: --set config.cloudProvider.aws.region=eu-west-1, the one in the URL" -}}
{{- end -}}
{{- if and (not $config.leaderElection.enabled) (gt (int .Values.replicas) 1) -}}
{{- $wrong = append $wrong "replicas: without leaderElection.enabled only one may run: --set replicas=1" -}}
{{- end -}}
{{- if and .Values.webhookSecret.name (dig "notifications" "webhookUrlFile" "" .Values.config) -}}
{{- $wrong = append $wrong "webhookSecret.name sets config.notifications.webhookUrlFile: leave out one of the two" -}}
{{- end -}}
{{- if eq $config.state.configMap (printf "%s-config" (include "spot-migrator.fullname" .)) -}}
{{- $wrong = append $wrong (printf "config.state.configMap: %s holds the configuration; choose another name" $config.state.configMap) -}}
{{- end -}}
{{- if hasKey .Values.files "config.yaml" -}}
{{- $wrong = append $wrong "files: config.yaml is the configuration itself, and is written under `config`" -}}
{{- end -}}
{{- if and .Values.agent.enabled .Values.agent.namespace.create (eq .Values.agent.namespace.name .Release.Namespace) -}}
{{- $wrong = append $wrong "agent.namespace.create: the release's own namespace is there already: --set agent.namespace.create=false, or give the agents another by agent.namespace.name" -}}
{{- end -}}
{{- if $wrong -}}
{{- fail (printf "\n\nThe values can't work yet:\n- %s\n" (join "\n- " $wrong)) -}}
{{- end -}}
{{- end -}}
