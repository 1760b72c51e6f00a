//! Workloads, live and in virtual time, against closed forms and each other; and the UDP sockets that programs get.

#![allow(missing_docs)]

mod datagram_sockets;
mod datagrams;
mod support;
mod typing;
