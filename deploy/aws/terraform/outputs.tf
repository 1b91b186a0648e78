output "queue_url" {
  description = "The value of interruption.queueUrl."
  value       = aws_sqs_queue.notices.url
}

output "queue_name" {
  description = "What replaces QUEUE_NAME in deploy/iam/interruptions.json."
  value       = aws_sqs_queue.notices.name
}
