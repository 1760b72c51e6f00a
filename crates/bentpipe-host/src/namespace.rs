//! Privilege and network namespaces.
//!
//! As root, namespaces are made directly. Without root the process first enters a user namespace of its own, in which
//! it keeps its user identity and may make network namespaces. Namespaces are held only by file descriptors of this
//! process, so the kernel removes them when it ends, however it ends.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Whose rights the emulator works with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Privilege {
    /// Root's own (or equal capabilities).
    Root,
    /// An own user namespace.
    UserNamespace,
}

/// Why no namespace could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NamespaceError {
    /// User namespaces are closed to this user.
    #[error(
        "cannot make a user namespace ({0}). Some systems forbid it to ordinary users: see the sysctls \
         kernel.unprivileged_userns_clone, user.max_user_namespaces and kernel.apparmor_restrict_unprivileged_userns, \
         or run bentpipe as root"
    )]
    UserNamespace(io::Error),
    /// The kernel refused a network namespace.
    #[error(
        "cannot make a network namespace ({0}); this needs Linux with CONFIG_NET_NS and room below user.max_net_namespaces"
    )]
    NetworkNamespace(io::Error),
    /// Work inside a namespace failed.
    #[error("cannot work inside a network namespace ({0})")]
    Enter(io::Error),
}

/// Bits of `CapEff`: CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_ADMIN (linux/capability.h).
const NEEDED_CAPABILITIES: u64 = 1 << 12 | 1 << 13 | 1 << 21;

/// Gains the rights to make namespaces. Must be called before the process has a second thread.
pub fn acquire_privilege() -> Result<Privilege, NamespaceError> {
    raise_descriptor_limit();
    if effective_capabilities() & NEEDED_CAPABILITIES == NEEDED_CAPABILITIES {
        return Ok(Privilege::Root);
    }
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    enter_user_namespace(uid, gid).map_err(NamespaceError::UserNamespace)?;
    Ok(Privilege::UserNamespace)
}

/// A scenario needs a few descriptors for each interface; many systems allow 1024 unless one asks for more.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // Refused: the limit stays, and running into it says so.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

fn enter_user_namespace(uid: u32, gid: u32) -> io::Result<()> {
    // SAFETY: unshare(CLONE_NEWUSER) touches no memory; the kernel refuses it in a process with several threads.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWUSER) }?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// The calling thread's effective capabilities, a bit each.
pub(crate) fn effective_capabilities() -> u64 {
    capabilities("CapEff:")
}

/// The calling thread's permitted capabilities, a bit each.
pub(crate) fn permitted_capabilities() -> u64 {
    capabilities("CapPrm:")
}

fn capabilities(which: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(which));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

/// A network namespace that lives as long as this value (and the processes inside).
#[derive(Clone, Debug)]
pub struct Namespace {
    handle: Arc<OwnedFd>,
}

impl Namespace {
    /// A new, empty network namespace.
    pub fn new() -> Result<Namespace, NamespaceError> {
        let make = || -> io::Result<OwnedFd> {
            // SAFETY: unshare(CLONE_NEWNET) touches no memory and concerns only this thread, which ends here.
            unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }?;
            Ok(File::open("/proc/thread-self/ns/net")?.into())
        };
        let handle = on_a_thread(make).map_err(NamespaceError::NetworkNamespace)?;
        Ok(Namespace { handle: Arc::new(handle) })
    }

    /// Runs `work` on a thread of its own inside the namespace. Sockets it opens stay in the namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> Result<T, NamespaceError> {
        on_a_thread(|| {
            self.enter()?;
            work()
        })
        .map_err(NamespaceError::Enter)
    }

    /// Moves the calling thread into the namespace, for good.
    pub fn enter(&self) -> io::Result<()> {
        let kind = Some(rustix::thread::LinkNameSpaceType::Network);
        Ok(rustix::thread::move_into_link_name_space(self.handle.as_fd(), kind)?)
    }

    /// The descriptor that holds it.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// Runs `work` on a thread of its own, which may be refused.
fn on_a_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().spawn_scoped(scope, work)?;
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Writes a kernel setting of the calling thread's network namespace. `name` is dotted (`net.ipv4.tcp_sack`).
pub fn write_sysctl(name: &str, value: &str) -> io::Result<()> {
    std::fs::write(sysctl_path(name), value)
}

/// Reads a kernel setting of the calling thread's network namespace.
pub fn read_sysctl(name: &str) -> io::Result<String> {
    let text = std::fs::read_to_string(sysctl_path(name))?;
    Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn sysctl_path(name: &str) -> String {
    // /proc/sys/net is the namespace of the thread that opens it.
    format!("/proc/sys/{}", name.replace('.', "/"))
}
