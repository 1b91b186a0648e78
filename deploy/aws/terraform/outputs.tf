output "queue_url" {
  description = "The value of interruption.queueUrl."
  value       = aws_sqs_queue.notices.url
}

output "queue_name" {
  description = "What replaces QUEUE_NAME in deploy/iam/interruptions.json."
  value       = aws_sqs_queue.notices.name
}

output "lifecycle_hook_name" {
  description = "What interruption.completeLifecycleHooks is to name."
  value       = "${var.cluster_name}-spot-migrator"
}
