variable "cluster_name" {
  description = "The cluster's name, as in cloudProvider.aws.clusterName. It begins the names of what is made."
  type        = string
  validation {
    condition     = can(regex("^[a-zA-Z0-9_-]{1,38}$", var.cluster_name))
    error_message = "Up to 38 letters, digits, hyphens and underscores: names of rules have no more room."
  }
}

variable "autoscaling_group_names" {
  description = "Auto Scaling groups whose terminations wait until their nodes are empty."
  type        = set(string)
  default     = []
}

variable "heartbeat_timeout" {
  description = "How many seconds those groups wait for a sign of life; they wait a hundred times as long at most."
  type        = number
  default     = 300
}
