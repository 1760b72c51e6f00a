//! An interactive shell whose prompt begins with the link's name.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// A shell to start.
#[derive(Debug)]
pub struct PromptingShell {
    /// The shell and its arguments.
    pub argv: Vec<OsString>,
    /// Variables that change its prompt.
    pub environment: Vec<(String, String)>,
}

/// `shell` with `(NAME) ` before its prompt. A prompt that the user's own start-up files set is kept behind the name by bash and
/// fish; other shells read the prompt from the environment, and their start-up files win.
pub fn prompting_shell(shell: OsString, link: &str) -> PromptingShell {
    // Shells expand their prompts.
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
    let name: String = link.chars().filter(is_plain).collect();
    let variable = |key: &str, value: String| vec![(key.to_owned(), value)];
    let own = std::env::var("PS1").ok();
    let (arguments, environment) = match Path::new(&shell).file_name().and_then(OsStr::to_str) {
        // Run before the first prompt, when the start-up files have set PS1 (bash(1), PROMPT_COMMAND).
        Some("bash") => (vec![], variable("PROMPT_COMMAND", format!("PS1=\"({name}) $PS1\"; unset PROMPT_COMMAND"))),
        Some("fish") => {
            let line = format!(
                "functions --copy fish_prompt bentpipe_own_prompt; \
                 function fish_prompt; echo -n '({name}) '; bentpipe_own_prompt; end"
            );
            (vec!["--init-command".into(), line.into()], vec![])
        }
        Some("zsh") => (vec![], variable("PS1", format!("({name}) {}", own.as_deref().unwrap_or("%m%# ")))),
        _ => {
            let default = if rustix::process::geteuid().is_root() { "# " } else { "$ " };
            (vec![], variable("PS1", format!("({name}) {}", own.as_deref().unwrap_or(default))))
        }
    };
    PromptingShell { argv: [vec![shell], arguments].concat(), environment }
}
