//! Writing results so that a full disk or a crash never leaves half a file under the final name.

use anyhow::Context;
use std::io::Write;
use std::path::Path;

/// Writes `bytes` to `path`: into a temporary file in the same folder, synced, then renamed.
pub fn write_whole(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let name = path.file_name().context("the path names no file")?.to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let write = || {
        let mut file = std::fs::File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    };
    write().map_err(|error| {
        // Best effort: the error that matters is the first.
        let _ = std::fs::remove_file(&temporary);
        anyhow::Error::new(error).context(format!("cannot write {}", path.display()))
    })
}
