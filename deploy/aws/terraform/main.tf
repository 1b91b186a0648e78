# The queue of one cluster's notices: EventBridge puts into it what is announced of machines, and spot-migrator
# empties their nodes.

terraform {
  required_version = ">= 1.3"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}

locals {
  rules = {
    # Spot capacity is taken back in two minutes.
    spot-interruptions = {
      source      = ["aws.ec2"]
      detail-type = ["EC2 Spot Instance Interruption Warning"]
    }
    # A spot machine is likelier than others to be taken back.
    rebalance-recommendations = {
      source      = ["aws.ec2"]
      detail-type = ["EC2 Instance Rebalance Recommendation"]
    }
    # A machine is to be retired, rebooted or worked on.
    scheduled-changes = {
      source      = ["aws.health"]
      detail-type = ["AWS Health Event"]
      detail = {
        service           = ["EC2"]
        eventTypeCategory = ["scheduledChange"]
      }
    }
    # An Auto Scaling group launches or terminates a machine, and waits for an answer.
    lifecycle-actions = {
      source      = ["aws.autoscaling"]
      detail-type = ["EC2 Instance-launch Lifecycle Action", "EC2 Instance-terminate Lifecycle Action"]
    }
    # A machine stops, or is terminated. What starts needs no answer, and all machines of the account do.
    state-changes = {
      source      = ["aws.ec2"]
      detail-type = ["EC2 Instance State-change Notification"]
      detail = {
        state = ["stopping", "stopped", "shutting-down", "terminated"]
      }
    }
  }
}

data "aws_caller_identity" "current" {}

resource "aws_sqs_queue" "dead_letters" {
  name                      = "${var.cluster_name}-notices-dead"
  message_retention_seconds = 1209600
  sqs_managed_sse_enabled   = true
}

resource "aws_sqs_queue" "notices" {
  name = "${var.cluster_name}-notices"
  # Changes are scheduled up to two weeks ahead, and their messages wait here until it is time to begin.
  message_retention_seconds  = 1209600
  visibility_timeout_seconds = 15
  receive_wait_time_seconds  = 20
  sqs_managed_sse_enabled    = true
  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead_letters.arn
    # A message that waits is received again and again; one that does harm would be after 25 minutes, too.
    maxReceiveCount = 100
  })
}

resource "aws_sqs_queue_policy" "notices" {
  queue_url = aws_sqs_queue.notices.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "FromTheRulesAlone"
        Effect    = "Allow"
        Principal = { Service = "events.amazonaws.com" }
        Action    = ["sqs:SendMessage"]
        Resource  = aws_sqs_queue.notices.arn
        Condition = {
          StringEquals = { "aws:SourceAccount" = data.aws_caller_identity.current.account_id }
          ArnEquals    = { "aws:SourceArn" = [for rule in aws_cloudwatch_event_rule.notices : rule.arn] }
        }
      },
      {
        Sid       = "NeverInTheClear"
        Effect    = "Deny"
        Principal = "*"
        Action    = ["sqs:*"]
        Resource  = aws_sqs_queue.notices.arn
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      },
    ]
  })
}

resource "aws_cloudwatch_event_rule" "notices" {
  for_each      = local.rules
  name          = "${var.cluster_name}-${each.key}"
  event_pattern = jsonencode(each.value)
}

resource "aws_cloudwatch_event_target" "notices" {
  for_each = local.rules
  rule     = aws_cloudwatch_event_rule.notices[each.key].name
  arn      = aws_sqs_queue.notices.arn
}

resource "aws_autoscaling_lifecycle_hook" "empty_before_termination" {
  for_each = var.autoscaling_group_names
  # Hooks are told apart by their names alone, and another cluster has one too.
  name                   = "${var.cluster_name}-spot-migrator"
  autoscaling_group_name = each.value
  lifecycle_transition   = "autoscaling:EC2_INSTANCE_TERMINATING"
  heartbeat_timeout      = var.heartbeat_timeout
  default_result         = "CONTINUE"
}
