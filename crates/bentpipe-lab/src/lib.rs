//! Scenario → run → record → report.
pub mod record;
