//! Scenario → run → record → report.

pub mod live;
pub mod predict;
pub mod record;
pub mod report;
pub mod scenario;
