//! The accelerator: a pair of gateways that relay other sites' TCP connections over one warm connection between them.
//!
//! Pure: the gateway is a [`bentpipe_net::interception::GatewayProgram`], sans-I/O. The path of a byte:
//! an intercepted connection → [`Gateway`] → [`satellite`] → the link → the other gateway's [`satellite`] → its [`Gateway`] →
//! the server.

mod compression;
pub mod config;
pub mod dial;
pub mod file;
pub mod front_end;
mod gateway;
pub mod log_event;
pub mod metrics;
mod protocol;
mod relay;
pub mod satellite;
pub mod settings;

pub use config::GatewayConfig;
pub use file::{GatewayFile, InterceptRules, Role};
pub use gateway::Gateway;
pub use log_event::{LinkDirection, LogEvent, Outcome, Server, Unanswered};
pub use metrics::Metrics;
pub use settings::{Compression, Fail, Interactive, Memory, Open, Rate, Settings};
