//! Scenario → run → record → report.

pub mod live;
pub mod parity;
pub mod record;
pub mod report;
pub mod scenario;
