//! Text tables and their snapshots.

use std::path::Path;

/// Prints `text` and compares it with `expected/NAME.txt`.
pub fn check(name: &str, text: &str) {
    println!("{text}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/analytic/expected/{name}.txt"));
    if std::env::var_os("ANALYTIC_WRITE").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{name}: the numbers moved; if that is meant, run again with ANALYTIC_WRITE=1");
}

/// How far `seen` is from `model`, in tenths of a percent.
pub fn permille(seen: f64, model: f64) -> i64 {
    (1000.0 * (seen / model - 1.0)).round() as i64
}

/// A number in hundredths.
pub fn hundredths(value: f64) -> i64 {
    (value * 100.0).round() as i64
}

/// A number in thousandths.
pub fn thousandths(value: f64) -> i64 {
    (value * 1000.0).round() as i64
}
