//! Scenario → run → record → report.

pub mod record;
pub mod report;
pub mod scenario;
