//! vsftpd on a port that the system chooses, as whoever runs the test: no root is needed.

use crate::place::{Place, have};
use parking_lot::Mutex;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::Arc;

/// A server of the folder `files` in a place. It lasts as long as the test process, its sessions no longer than the value.
pub struct FtpServer {
    /// Of the folder, with a slash at its end.
    pub url: String,
    sessions: Arc<Mutex<Vec<Child>>>,
}

impl FtpServer {
    /// With anonymous users who may do everything, and these lines of vsftpd.conf besides. `None` without vsftpd.
    pub fn start(place: &Place, more: &str) -> Option<FtpServer> {
        FtpServer::start_after(place, more, "")
    }

    /// The same; before each session the shell runs this line.
    pub fn start_after(place: &Place, more: &str, line: &str) -> Option<FtpServer> {
        if !have(&["vsftpd"]) {
            return None;
        }
        if !place.at("files").exists() {
            place.make_folder("files");
        }
        FtpServer::configure(place, more);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("ftp://{}/", listener.local_addr().unwrap());
        let sessions = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&sessions);
        let line = format!("{line}\nexec \"$(command -v vsftpd || echo /usr/sbin/vsftpd)\" vsftpd.conf");
        let mut command = place.command("sh");
        command.args(["-c", &line]);
        std::thread::spawn(move || {
            // As inetd does it: each connection gets a server process, whose standard input and output it is.
            for stream in listener.incoming() {
                let socket = OwnedFd::from(stream.unwrap());
                let input = Stdio::from(socket.try_clone().unwrap());
                command.stdin(input).stdout(Stdio::from(socket)).stderr(Stdio::null());
                all.lock().push(command.spawn().unwrap());
            }
        });
        Some(FtpServer { url, sessions })
    }

    /// For the sessions that begin from now on.
    pub fn configure(place: &Place, more: &str) {
        // Of a setting that occurs twice the last counts.
        let config = format!(
            "listen=NO\nlisten_ipv6=NO\nrun_as_launching_user=YES\nanonymous_enable=YES\nlocal_enable=NO\n\
             no_anon_password=YES\nanon_root={}\nwrite_enable=YES\nanon_upload_enable=YES\nanon_umask=022\n\
             anon_other_write_enable=YES\nanon_world_readable_only=NO\nseccomp_sandbox=NO\nxferlog_enable=NO\n{more}\n",
            place.at("files").display()
        );
        place.write("vsftpd.conf", config);
    }

    /// Ends the sessions at once, as a server that loses its power.
    pub fn end_sessions(&self) {
        for mut session in self.sessions.lock().drain(..) {
            // It may have ended by itself.
            let _ = session.kill();
            let _ = session.wait();
        }
    }
}

/// The command that serves the folder `files` of a place on FTP's own port; in a network namespace anyone may bind it. `None`
/// without vsftpd.
pub fn at_the_hub(place: &Place) -> Option<String> {
    if !have(&["vsftpd"]) {
        return None;
    }
    place.make_folder("files");
    FtpServer::configure(place, "listen=YES\nbackground=NO");
    Some(format!("/usr/sbin/vsftpd {}", place.at("vsftpd.conf").display()))
}

impl Drop for FtpServer {
    fn drop(&mut self) {
        self.end_sessions();
    }
}
