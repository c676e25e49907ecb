//! What may reach a terminal as it is.
//!
//! Names, headers and payloads come from whoever could publish. Control characters move the cursor and overwrite what was
//! printed; those that set the direction of text let it be read in another order than it has.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a character shows as itself and changes nothing around it.
pub(super) fn is_plain(c: char) -> bool {
    !c.is_control() && !sets_direction(c)
}

/// The marks, embeddings, overrides and isolates of the bidirectional algorithm.
fn sets_direction(c: char) -> bool {
    matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// Text on one line, with what is not plain as `\n` or `\u{202e}`.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, is_plain)
}

/// As [`printable`], and line ends stay.
pub(crate) fn printable_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\n' || is_plain(c))
}

/// Text of several lines or with tabs, with what sets its direction as `\u{202e}`.
pub(super) fn directed(text: &str) -> Cow<'_, str> {
    escaped(text, |c| !sets_direction(c))
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(&stays) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match stays(c) {
            true => shown.push(c),
            false => shown.extend(c.escape_default()),
        }
    }
    Cow::Owned(shown)
}

/// Escapes, inside strings of JSON text, what JSON lets stand and a terminal acts on; outside of strings it has none of it.
pub(super) fn json_escaped(json: &str) -> Cow<'_, str> {
    let stays = |c: char| c.is_ascii_control() && c != '\u{7f}' || is_plain(c);
    if json.chars().all(stays) {
        return Cow::Borrowed(json);
    }
    let mut shown = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match stays(c) {
            true => shown.push(c),
            // All of them have one unit of UTF-16. Writing to a String does not fail.
            false => {
                let _ = write!(shown, "\\u{:04x}", u32::from(c));
            }
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_those_that_set_the_direction_are_escaped() {
        assert_eq!(printable("größe\u{1f600}"), "größe\u{1f600}");
        let tricks = "\u{61c}\u{200e}\u{200f}\u{202a}\u{202e}\u{2066}\u{2069}\u{7f}\u{9b}\n\u{1b}";
        assert!(printable(tricks).is_ascii(), "{}", printable(tricks));
        assert_eq!(printable("a\u{202e}b\n"), "a\\u{202e}b\\n");
        assert_eq!(printable_lines("a\u{202e}b\n\r"), "a\\u{202e}b\n\\r");
        // Neighbours are ordinary characters.
        let others = "\u{200d}\u{2010}\u{2030}\u{2070}";
        assert_eq!(printable(others), others);
    }

    #[test]
    fn json_keeps_its_meaning() {
        let json = "{\t\"a\u{202e}\": \"\u{7f}\u{9b}ü\\n\"}";
        assert_eq!(json_escaped(json), "{\t\"a\\u202e\": \"\\u007f\\u009bü\\n\"}");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&json_escaped(json)), value(json));
    }
}
