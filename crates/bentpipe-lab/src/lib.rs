//! Scenario → run → record → report.

mod collect;
pub mod events;
pub mod files;
pub mod live;
pub mod page;
mod pair;
pub mod record;
pub mod registry;
pub mod report;
pub mod scenario;
mod schedule;
pub mod simulated;
pub mod thinning;
