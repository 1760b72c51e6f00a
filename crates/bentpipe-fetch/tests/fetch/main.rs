//! The library against servers of its own: well-behaved ones, and all kinds of others.

mod ftp;
mod hostile;
mod http;
mod place;
mod put;
mod tls;
