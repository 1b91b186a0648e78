//! Every call that the adapter makes, by the name of the right that it needs.

use std::fmt;

macro_rules! actions {
    ($($(#[$doc:meta])* $action:ident = $right:literal, $kind:ident;)*) => {
        /// A call, and the right that it needs: metric label, word in messages, and entry of the policy.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Action { $($(#[$doc])* $action,)* }

        impl Action {
            /// Every action.
            pub const ALL: [Self; [$(Self::$action),*].len()] = [$(Self::$action),*];

            /// Its name in IAM.
            #[must_use]
            pub const fn right(self) -> &'static str {
                match self { $(Self::$action => $right,)* }
            }

            /// Whether it changes anything.
            #[must_use]
            pub const fn is_write(self) -> bool {
                matches!(match self { $(Self::$action => Effect::$kind,)* }, Effect::Write)
            }
        }
    };
}

impl Action {
    /// The policy that allows it, in this project's sources.
    #[must_use]
    pub const fn policy(self) -> &'static str {
        if matches!(
            self,
            Self::GetQueueAttributes
                | Self::ReceiveMessage
                | Self::ChangeMessageVisibility
                | Self::DeleteMessage
                | Self::RecordLifecycleActionHeartbeat
                | Self::CompleteLifecycleAction
        ) {
            return "deploy/iam/interruptions.json";
        }
        if matches!(
            self,
            Self::DescribeLaunchTemplates
                | Self::DescribeLaunchTemplateVersions
                | Self::CreateLaunchTemplate
                | Self::CreateLaunchTemplateVersion
                | Self::DeleteLaunchTemplate
                | Self::DeleteLaunchTemplateVersions
                | Self::RequestSpotFleet
                | Self::CancelSpotFleetRequests
                | Self::DescribeSpotFleetRequestHistory
                | Self::DescribeSubnets
                | Self::DescribeSecurityGroups
                | Self::DescribeImages
                | Self::DescribeInstanceTypes
                | Self::DescribeKeyPairs
                | Self::RunInstances
                | Self::GetInstanceProfile
                | Self::GetRole
                | Self::ListAttachedRolePolicies
                | Self::ListRolePolicies
                | Self::CreateRole
                | Self::AttachRolePolicy
                | Self::CreateServiceLinkedRole
        ) {
            return "deploy/iam/spot-fleet.json";
        }
        "deploy/iam/spot-migrator.json"
    }
}

enum Effect {
    Read,
    Write,
}

actions! {
    /// Classes, states, names and tags of instances.
    DescribeInstances = "ec2:DescribeInstances", Read;
    /// Termination protection, which instances do not tell.
    DescribeInstanceAttribute = "ec2:DescribeInstanceAttribute", Read;
    /// The targets of EC2 Fleets.
    DescribeFleets = "ec2:DescribeFleets", Read;
    /// The members of EC2 Fleets.
    DescribeFleetInstances = "ec2:DescribeFleetInstances", Read;
    /// The targets of Spot Fleets.
    DescribeSpotFleetRequests = "ec2:DescribeSpotFleetRequests", Read;
    /// The members of Spot Fleets.
    DescribeSpotFleetInstances = "ec2:DescribeSpotFleetInstances", Read;
    /// Deletes an instance that no group keeps.
    TerminateInstances = "ec2:TerminateInstances", Write;
    /// Lowers the target of an EC2 Fleet.
    ModifyFleet = "ec2:ModifyFleet", Write;
    /// Lowers the target of a Spot Fleet.
    ModifySpotFleetRequest = "ec2:ModifySpotFleetRequest", Write;
    /// The group of an instance.
    DescribeAutoScalingInstances = "autoscaling:DescribeAutoScalingInstances", Read;
    /// Sizes, members and rules of groups.
    DescribeAutoScalingGroups = "autoscaling:DescribeAutoScalingGroups", Read;
    /// Whether a group is being rolled.
    DescribeInstanceRefreshes = "autoscaling:DescribeInstanceRefreshes", Read;
    /// The names of hooks that hold an instance.
    DescribeLifecycleHooks = "autoscaling:DescribeLifecycleHooks", Read;
    /// Deletes a member of a group, and lowers the group's desired capacity.
    TerminateInstanceInAutoScalingGroup = "autoscaling:TerminateInstanceInAutoScalingGroup", Write;
    /// Whether a managed node group is being updated.
    DescribeNodegroup = "eks:DescribeNodegroup", Read;
    /// Classic load balancers and their instances.
    DescribeLoadBalancers = "elasticloadbalancing:DescribeLoadBalancers", Read;
    /// Which load balancers are the cluster's.
    DescribeTags = "elasticloadbalancing:DescribeTags", Read;
    /// Whether a classic load balancer still serves an instance.
    DescribeInstanceHealth = "elasticloadbalancing:DescribeInstanceHealth", Read;
    /// Target groups.
    DescribeTargetGroups = "elasticloadbalancing:DescribeTargetGroups", Read;
    /// Whether a target group still serves an instance.
    DescribeTargetHealth = "elasticloadbalancing:DescribeTargetHealth", Read;
    /// Takes an instance out of a classic load balancer.
    DeregisterInstancesFromLoadBalancer = "elasticloadbalancing:DeregisterInstancesFromLoadBalancer", Write;
    /// Takes an instance out of a target group.
    DeregisterTargets = "elasticloadbalancing:DeregisterTargets", Write;
    /// Puts an instance that stays back into a classic load balancer.
    RegisterInstancesWithLoadBalancer = "elasticloadbalancing:RegisterInstancesWithLoadBalancer", Write;
    /// Puts an instance that stays back into a target group.
    RegisterTargets = "elasticloadbalancing:RegisterTargets", Write;
    /// Launch templates of pools.
    DescribeLaunchTemplates = "ec2:DescribeLaunchTemplates", Read;
    /// Their versions.
    DescribeLaunchTemplateVersions = "ec2:DescribeLaunchTemplateVersions", Read;
    /// Makes the launch template of a pool.
    CreateLaunchTemplate = "ec2:CreateLaunchTemplate", Write;
    /// Makes another version of it.
    CreateLaunchTemplateVersion = "ec2:CreateLaunchTemplateVersion", Write;
    /// Deletes the launch template of a pool that is gone.
    DeleteLaunchTemplate = "ec2:DeleteLaunchTemplate", Write;
    /// Deletes versions that no fleet launches any more.
    DeleteLaunchTemplateVersions = "ec2:DeleteLaunchTemplateVersions", Write;
    /// Makes the fleet of a pool.
    RequestSpotFleet = "ec2:RequestSpotFleet", Write;
    /// Ends the fleet of a pool.
    CancelSpotFleetRequests = "ec2:CancelSpotFleetRequests", Write;
    /// What a fleet says of its failures.
    DescribeSpotFleetRequestHistory = "ec2:DescribeSpotFleetRequestHistory", Read;
    /// What spot capacity costs.
    DescribeSpotPriceHistory = "ec2:DescribeSpotPriceHistory", Read;
    /// Whether a pool's subnets are there, and in one network.
    DescribeSubnets = "ec2:DescribeSubnets", Read;
    /// Whether a pool's security groups are there, and in the network of its subnets.
    DescribeSecurityGroups = "ec2:DescribeSecurityGroups", Read;
    /// Whether a pool's AMI is there, and what its root device is.
    DescribeImages = "ec2:DescribeImages", Read;
    /// Whether a pool's instance types are there, and run its AMI.
    DescribeInstanceTypes = "ec2:DescribeInstanceTypes", Read;
    /// Whether a pool's SSH key is there.
    DescribeKeyPairs = "ec2:DescribeKeyPairs", Read;
    /// Whether EC2 would launch what a pool's launch template says: only ever a dry run.
    RunInstances = "ec2:RunInstances", Write;
    /// Whether a pool's instance profile is there.
    GetInstanceProfile = "iam:GetInstanceProfile", Read;
    /// Whether the role of Spot Fleet is there, and whom it trusts.
    GetRole = "iam:GetRole", Read;
    /// Whether the role of Spot Fleet may do what it has to.
    ListAttachedRolePolicies = "iam:ListAttachedRolePolicies", Read;
    /// Whether it may do so by rights that are its own.
    ListRolePolicies = "iam:ListRolePolicies", Read;
    /// Makes the role of Spot Fleet.
    CreateRole = "iam:CreateRole", Write;
    /// Gives the role of Spot Fleet its rights.
    AttachRolePolicy = "iam:AttachRolePolicy", Write;
    /// Makes the roles that EC2 Spot and Spot Fleet use by themselves.
    CreateServiceLinkedRole = "iam:CreateServiceLinkedRole", Write;
    /// Whether the queue of notices is there, and where.
    GetQueueAttributes = "sqs:GetQueueAttributes", Read;
    /// Reads the queue, and keeps what was read from others for a while.
    ReceiveMessage = "sqs:ReceiveMessage", Write;
    /// Keeps a message that is being answered, or lets go of it.
    ChangeMessageVisibility = "sqs:ChangeMessageVisibility", Write;
    /// Settles a message.
    DeleteMessage = "sqs:DeleteMessage", Write;
    /// Has a lifecycle action wait on.
    RecordLifecycleActionHeartbeat = "autoscaling:RecordLifecycleActionHeartbeat", Write;
    /// Has a lifecycle action wait no longer.
    CompleteLifecycleAction = "autoscaling:CompleteLifecycleAction", Write;
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.right())
    }
}
