//! The built program from outside: real processes, real packets, real signals; as root and as an ordinary user.
//!
//! What a machine lacks is said on standard error and skipped; with `CI` set, a missing program of `make test`'s list
//! fails instead. No test here asserts that something was fast: a packet that comes too early is a mistake, one that comes
//! late is only judged when the run itself says that it was punctual.

mod bad_input;
mod bit_errors;
mod capture;
mod catalogue;
mod cleanup;
mod command_line;
mod experiments;
mod ftp_server;
mod gateways;
mod get;
mod networks;
mod parity;
mod place;
mod processes;
mod put;
mod recorded;
mod results;
mod runs;
mod shell;
mod sweep;
mod tune;
mod virtual_runs;
mod windows;
