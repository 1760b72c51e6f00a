//! Keys of gateways: made once for each, and shown so that the other gateway's file can name them.

use super::super::BadInput;
use crate::cli::KeysArguments;
use bentpipe_gateway::satellite::keys::PrivateKey;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::ExitCode;

/// Bytes of a key file that are read at most.
const FILE_MAX: u64 = 4096;
/// Readable or writable by others than the owner.
const OTHERS: u32 = 0o077;

/// Makes or shows a key.
pub fn run(arguments: &KeysArguments) -> anyhow::Result<ExitCode> {
    let key = match (&arguments.out, &arguments.show) {
        (Some(out), _) => make(out)?,
        (None, Some(file)) => read(file)?,
        (None, None) => anyhow::bail!(BadInput("give --out FILE to make a key, or --show FILE to see one".into())),
    };
    writeln!(io::stdout(), "{}", key.public())?;
    Ok(ExitCode::SUCCESS)
}

fn make(out: &Path) -> anyhow::Result<PrivateKey> {
    let key = PrivateKey::generate()?;
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(out);
    let mut file = file.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            BadInput(format!("{} exists already, and a key that is in use must not be lost", out.display()))
        }
        _ => BadInput(format!("cannot make {}: {error}", out.display())),
    })?;
    writeln!(file, "{}", key.to_secret_text())?;
    file.sync_all()?;
    Ok(key)
}

/// Reads a private key, whose file must be for its owner only.
pub fn read(path: &Path) -> Result<PrivateKey, BadInput> {
    use std::io::Read;
    let name = path.display();
    let file = std::fs::File::open(path).map_err(|error| BadInput(format!("cannot read the key {name}: {error}")))?;
    let mode = file.metadata().map_or(0, |about| about.permissions().mode());
    if mode & OTHERS != 0 {
        return Err(BadInput(format!("the key {name} is open to others (mode {:o}): chmod 600 {name}", mode & 0o777)));
    }
    let mut text = String::new();
    let read = file.take(FILE_MAX).read_to_string(&mut text);
    read.map_err(|error| BadInput(format!("cannot read the key {name}: {error}")))?;
    text.parse().map_err(|error| BadInput(format!("{name}: {error}")))
}
