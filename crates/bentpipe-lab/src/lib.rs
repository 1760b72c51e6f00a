//! Scenario → run → record → report.

mod collect;
pub mod experiment;
pub mod live;
mod page;
mod pair;
pub mod parity;
pub mod predict;
pub mod record;
pub mod report;
pub mod scenario;
mod schedule;
pub mod simulated;
pub mod sweep;
pub mod tune;

pub use schedule::Progress;
