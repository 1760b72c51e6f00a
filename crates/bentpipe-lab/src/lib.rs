//! Scenario → run → record → report.

pub mod live;
pub mod record;
pub mod report;
pub mod scenario;
pub mod sweep;
