//! Traces that a link names by their files.

use crate::files::read_text;
use bentpipe_net::problem::KeyProblem;
use std::path::Path;
use toml::{Table, Value};

/// Largest file of a trace, in bytes.
const BYTES_MAX: u64 = 64 << 20;

/// `file = "…"` of a `rate_trace` or of a jitter becomes the file's lines, in the keys of a link. Relative names start at
/// `folder`, that of the file that has the keys.
pub fn read_traces(link: &mut Table, folder: &Path) -> Result<(), KeyProblem> {
    read_direction(link, folder)?;
    for side in ["forward", "return"] {
        if let Some(direction) = link.get_mut(side).and_then(Value::as_table_mut) {
            read_direction(direction, folder).map_err(|problem| problem.under(side))?;
        }
    }
    Ok(())
}

fn read_direction(direction: &mut Table, folder: &Path) -> Result<(), KeyProblem> {
    for key in ["rate_trace", "jitter"] {
        if let Some(trace) = direction.get_mut(key).and_then(Value::as_table_mut) {
            read_trace(trace, folder).map_err(|problem| problem.under(key))?;
        }
    }
    let impairments = direction.get_mut("impairments").and_then(Value::as_array_mut);
    for (number, impairment) in impairments.into_iter().flatten().enumerate() {
        // Other kinds may have a key of this name that means something else.
        let jitter =
            impairment.as_table_mut().filter(|table| table.get("kind").and_then(Value::as_str) == Some("jitter"));
        if let Some(jitter) = jitter {
            read_trace(jitter, folder).map_err(|problem| problem.under(&format!("impairments.{number}")))?;
        }
    }
    Ok(())
}

fn read_trace(trace: &mut Table, folder: &Path) -> Result<(), KeyProblem> {
    let Some(name) = trace.remove("file") else { return Ok(()) };
    let fail = |what: String| KeyProblem::new("file", what);
    let name = name.as_str().ok_or_else(|| fail("must be text: the name of a file".to_owned()))?;
    let path = folder.join(name);
    let unreadable = |error: std::io::Error| fail(format!("cannot read {}: {error}", path.display()));
    let lines = read_text(&path, BYTES_MAX).map_err(unreadable)?;
    trace.insert("lines".to_owned(), Value::String(lines));
    Ok(())
}
