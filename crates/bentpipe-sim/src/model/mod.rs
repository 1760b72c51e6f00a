//! Analytic models of TCP over satellite links, each with its source, its range and its limits.
//!
//! All are pure functions. A loss probability `p` is that of one data segment, `0 ≤ p < 1`; a value outside is the caller's
//! mistake and panics. Where a formula divides by `p`, values below [`P_MIN`] count as no loss. `docs/reference/models.md` says what
//! each model is good for.

pub mod asymmetry;
pub mod cardwell;
pub mod cubic;
pub mod kruse;
pub mod mathis;
pub mod pftk;
pub mod window;

/// A smaller loss probability is taken as none: at a million segments a second, one loss in eleven days.
pub const P_MIN: f64 = 1e-12;

/// `p`, once it is known to be a probability below one.
fn probability(p: f64) -> f64 {
    assert!((0.0..1.0).contains(&p), "{p} is no loss probability; allowed: 0 to less than 1");
    if p < P_MIN { 0.0 } else { p }
}
