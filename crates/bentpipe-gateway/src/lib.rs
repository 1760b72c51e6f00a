//! The accelerator: a pair of gateways that relay other sites' TCP connections over one warm connection between them.
//!
//! Pure: the gateway is a [`bentpipe_net::interception::GatewayProgram`], sans-I/O. The path of a byte:
//! an intercepted connection → [`Gateway`] → [`satellite`] → the link → the other gateway's [`satellite`] → its [`Gateway`] →
//! the server.

mod compression;
pub mod config;
pub mod figures;
pub mod file;
pub mod front_end;
mod gateway;
pub mod notice;
mod protocol;
mod relay;
pub mod satellite;
pub mod settings;

pub use config::GatewayConfig;
pub use figures::Figures;
pub use file::{CaptureRules, GatewayFile, Network, Role};
pub use gateway::Gateway;
pub use notice::{Notice, Outcome, Server};
pub use settings::{Compression, Fail, Interactive, Memory, Open, Rate, Settings};
