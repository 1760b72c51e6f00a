//! The capabilities of this process: those it needs, and dropping the rest.

use std::ffi::CString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW (linux/capability.h).
const KEPT: [u32; 3] = [10, 12, 13];

/// Rights over the network that a gateway can use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rights {
    /// To intercept connections, and to use their clients' addresses: CAP_NET_ADMIN and CAP_NET_RAW.
    pub network: bool,
}

impl Rights {
    /// Those of the calling thread.
    #[must_use]
    pub fn now() -> Rights {
        let effective = crate::namespace::effective_capabilities();
        Rights { network: effective & (1 << 12) != 0 && effective & (1 << 13) != 0 }
    }
}

/// Lets a program that is started from here change this network, as far as we may ourselves.
pub fn lend(command: &mut Command) -> &mut Command {
    let effective = crate::namespace::effective_capabilities() as u32;
    let lent = KEPT.iter().fold(0, |bits, cap| bits | effective & (1 << cap));
    // SAFETY: between fork and exec only system calls on plain numbers.
    unsafe { command.pre_exec(move || crate::spawn::keep_capabilities(lent)) }
}

/// Becomes `user` for good, keeping only the rights over the network that we have. For a process with one thread.
pub fn become_user(user: &str) -> io::Result<()> {
    let unknown = || io::Error::new(io::ErrorKind::NotFound, format!("there is no user '{user}'"));
    let name = CString::new(user).map_err(|_| unknown())?;
    // SAFETY: the process has one thread, so nobody else uses the static result, which is copied at once; the other calls
    // take plain numbers and a C string that lives through them.
    unsafe {
        *libc::__errno_location() = 0;
        let entry = libc::getpwnam(name.as_ptr());
        if entry.is_null() {
            return Err(unknown());
        }
        let (uid, gid) = ((*entry).pw_uid, (*entry).pw_gid);
        check(libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0))?;
        check(libc::initgroups(name.as_ptr(), gid))?;
        check(libc::setresgid(gid, gid, gid))?;
        check(libc::setresuid(uid, uid, uid))?;
    }
    Ok(())
}

/// Gives up every right but those over the network that we have, and the way to gain new ones. For a process with one
/// thread.
pub fn give_up_the_rest() -> io::Result<()> {
    let kept = KEPT.iter().fold(0, |bits, cap| bits | crate::namespace::permitted_capabilities() as u32 & (1 << cap));
    crate::spawn::keep_capabilities(kept)?;
    // SAFETY: takes plain numbers.
    unsafe { check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
