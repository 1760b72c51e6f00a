//! Datagrams, live and in virtual time: the sockets that programs get, and the workload `datagrams`.

#![allow(missing_docs)]

mod sockets;
mod workload;
