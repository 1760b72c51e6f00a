//! See each module.
