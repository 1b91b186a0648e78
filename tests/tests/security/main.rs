//! What the security model takes for granted, asked of a real API server with its Node authorizer and `NodeRestriction`.

mod kubelet;
