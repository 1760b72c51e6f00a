//! The server's side of the command line (RFC 959 §5.3).

/// A command that the server knows, with its argument where it has one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Command {
    User,
    Pass,
    Acct,
    Syst,
    Feat,
    Type(String),
    Pwd,
    Cwd(String),
    Cdup,
    Mode(String),
    Stru(String),
    Opts(String),
    Noop,
    Allo,
    Stat,
    Size(String),
    Mdtm(String),
    Pasv,
    Epsv(String),
    Retr(String),
    Stor(String),
    List,
    Rest(String),
    Abor,
    Quit,
    Help,
    /// Known to RFC 959 and its successors, but not here.
    NotImplemented,
    Unknown,
}

impl Command {
    /// Reads a line without its end. Anything is allowed in.
    pub fn parse(line: &[u8]) -> Command {
        // Telnet's Interrupt Process and Synch go before ABOR (RFC 959 §4.1.3): IAC and the codes that follow it.
        let start = line.iter().position(|b| *b < 0xf0).unwrap_or(line.len());
        let text = String::from_utf8_lossy(&line[start..]);
        let (verb, argument) = text.split_once(' ').unwrap_or((text.trim_end(), ""));
        let argument = argument.to_owned();
        match verb.to_ascii_uppercase().as_str() {
            "USER" => Command::User,
            "PASS" => Command::Pass,
            "ACCT" => Command::Acct,
            "SYST" => Command::Syst,
            "FEAT" => Command::Feat,
            "TYPE" => Command::Type(argument),
            "PWD" | "XPWD" => Command::Pwd,
            "CWD" | "XCWD" => Command::Cwd(argument),
            "CDUP" | "XCUP" => Command::Cdup,
            "MODE" => Command::Mode(argument),
            "STRU" => Command::Stru(argument),
            "OPTS" => Command::Opts(argument),
            "NOOP" => Command::Noop,
            "ALLO" => Command::Allo,
            "STAT" => Command::Stat,
            "SIZE" => Command::Size(argument),
            "MDTM" => Command::Mdtm(argument),
            "PASV" => Command::Pasv,
            "EPSV" => Command::Epsv(argument),
            "RETR" => Command::Retr(argument),
            "STOR" => Command::Stor(argument),
            "LIST" | "NLST" => Command::List,
            "REST" => Command::Rest(argument),
            "ABOR" => Command::Abor,
            "QUIT" => Command::Quit,
            "HELP" => Command::Help,
            "PORT" | "EPRT" | "LPRT" | "LPSV" | "APPE" | "STOU" | "RNFR" | "RNTO" | "DELE" | "MKD" | "XMKD" | "RMD"
            | "XRMD" | "SITE" | "REIN" | "SMNT" | "MLSD" | "MLST" | "AUTH" | "PBSZ" | "PROT" | "HOST" | "LANG" => {
                Command::NotImplemented
            }
            _ => Command::Unknown,
        }
    }

    /// True if it is obeyed before the login (RFC 2389 §3 wants FEAT to be).
    pub fn needs_login(&self) -> bool {
        !matches!(
            self,
            Command::User
                | Command::Pass
                | Command::Acct
                | Command::Syst
                | Command::Feat
                | Command::Noop
                | Command::Quit
                | Command::Help
                | Command::NotImplemented
                | Command::Unknown
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn commands_in_any_case_with_their_arguments() {
        assert_eq!(Command::parse(b"RETR 1 2.bin"), Command::Retr("1 2.bin".to_owned()));
        assert_eq!(Command::parse(b"epsv"), Command::Epsv(String::new()));
        assert_eq!(Command::parse(b"QUIT "), Command::Quit);
        assert_eq!(Command::parse(b"\xff\xf4\xff\xf2ABOR"), Command::Abor);
        assert_eq!(Command::parse(b"PORT 1,2,3,4,5,6"), Command::NotImplemented);
        assert_eq!(Command::parse(b""), Command::Unknown);
        assert_eq!(Command::parse(b"\xff\xff"), Command::Unknown);
        assert_eq!(Command::parse(b"GET / HTTP/1.1"), Command::Unknown);
    }

    proptest! {
        #[test]
        fn any_line_is_read(line in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = Command::parse(&line);
        }
    }
}
