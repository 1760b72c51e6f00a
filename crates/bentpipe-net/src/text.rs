//! Text from files, programs and other machines, on its way to a terminal.

/// Without terminal escapes, control characters and direction overrides: whatever the text holds, it moves no cursor, changes no
/// title and shows in the order it has. Line feeds and tabs stay.
#[must_use]
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            // ECMA-48 control sequence: ESC [, parameters, one final byte from @ to ~.
            '\u{1b}' if chars.peek() == Some(&'[') => {
                chars.next();
                while chars.next().is_some_and(|c| !('@'..='~').contains(&c)) {}
            }
            '\r' if chars.peek() == Some(&'\n') => {}
            '\r' => out.push('\n'),
            '\n' | '\t' => out.push(c),
            c if is_direction(c) => {}
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// JSON with the same meaning in which what a terminal would obey is escaped (RFC 8259 §7). JSON itself asks for that below
/// U+0020 only.
#[must_use]
pub fn printable_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\n' | '\t' | '\r' => out.push(c),
            c if is_direction(c) || c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// Direction overrides would show a text in another order than it has (Unicode Standard Annex 9).
fn is_direction(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_reaches_the_terminal_but_text() {
        for (text, shown) in [
            ("plain, ü and 衛星\tand a tab\n", "plain, ü and 衛星\tand a tab\n"),
            ("\u{1b}[2J\u{1b}[1;31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;title\u{7}", "\u{fffd}]0;title\u{fffd}"),
            ("10 %\r20 %\r\n", "10 %\n20 %\n"),
            ("\u{9b}2J\u{7f}\u{0}", "\u{fffd}2J\u{fffd}\u{fffd}"),
            ("a\u{202e}b\u{2066}c", "abc"),
            ("never ends \u{1b}[12", "never ends "),
        ] {
            assert_eq!(printable(text), shown, "{text:?}");
        }
        assert_eq!(printable_json("{\"a\u{9b}\": \"\u{202e}\"}\n"), "{\"a\\u009b\": \"\\u202e\"}\n");
    }

    proptest! {
        #[test]
        fn whatever_it_holds(text: String) {
            for shown in [printable(&text), printable_json(&text)] {
                prop_assert!(shown.chars().all(|c| matches!(c, '\n' | '\t' | '\r') || !c.is_control() && !is_direction(c)));
            }
        }
    }
}
