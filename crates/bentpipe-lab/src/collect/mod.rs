//! From what a case left to its record: what live and virtual runs share.

pub mod bills;
pub mod gateways;
pub mod links;
pub mod tcp;
pub mod workloads;
