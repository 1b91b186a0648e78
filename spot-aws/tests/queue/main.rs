//! The notices of a queue, before a strict double of SQS and of Auto Scaling's lifecycle hooks.
