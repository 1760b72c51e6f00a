//! Analytic models of TCP over satellite links, each with its source.
