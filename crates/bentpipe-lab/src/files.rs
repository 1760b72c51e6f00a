//! Text files that a user names.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The most that a scenario, a list or a link file may have, in bytes: a thousand times what the largest here have.
pub const TEXT_BYTES_MAX: u64 = 16 << 20;

/// Reads a file of at most `bytes_max`. Devices and FIFOs, which may never end, are refused, but for the
/// process's own descriptors (`/dev/stdin`, a shell's `<(…)`).
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    let too_long = || io::Error::other(format!("it has more than {bytes_max} B"));
    let metadata = std::fs::metadata(path)?;
    let is_descriptor = ["/dev/stdin", "/dev/fd", "/proc/self/fd"].iter().any(|own| path.starts_with(own));
    if !metadata.is_file() && !metadata.is_dir() && !is_descriptor {
        return Err(io::Error::other("it is no ordinary file"));
    }
    if metadata.is_file() && metadata.len() > bytes_max {
        return Err(too_long());
    }
    let mut text = String::new();
    File::open(path)?.take(bytes_max.saturating_add(1)).read_to_string(&mut text)?;
    if text.len() as u64 > bytes_max { Err(too_long()) } else { Ok(text) }
}
