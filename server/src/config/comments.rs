//! Comments in a configuration file: from `//` to the end of the line, and between `/*` and `*/`, outside of strings.
//!
//! JSON has none, and a file that people keep needs some. They are blanked out, so that what is wrong behind them is named
//! with its line and column.

/// The same text with spaces where comments were. One that does not end is left for the parser to refuse.
pub(super) fn blank(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (taken, is_comment) = match first {
            '"' => (string_bytes(rest), false),
            '/' => match comment_bytes(rest) {
                Some(bytes) => (bytes, true),
                None => (1, false),
            },
            other => (other.len_utf8(), false),
        };
        let (taken, after) = rest.split_at(taken);
        match is_comment {
            true => out.extend(taken.chars().map(|char| if char == '\n' { '\n' } else { ' ' })),
            false => out.push_str(taken),
        }
        rest = after;
    }
    out
}

/// Of the string that this begins with, quotes included; all of it, if it does not end.
fn string_bytes(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Of the comment that this begins with, if it is one.
fn comment_bytes(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    let inner = text.strip_prefix("/*")?;
    Some("/*".len() + inner.find("*/")? + "*/".len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn comments_are_blanked_where_they_are_comments() {
        for (text, wanted) in [
            ("{} // a", "{}     "),
            ("// a\n{}", "    \n{}"),
            ("/* a\nb */{}", "    \n    {}"),
            (r#"{"a//b": "/* c */"} //"#, r#"{"a//b": "/* c */"}   "#),
            (r#""a\"//" // b"#, r#""a\"//"     "#),
            (r#""a\\" // b"#, r#""a\\"     "#),
            ("/", "/"),
            ("/* a", "/* a"),
            ("\"// a", "\"// a"),
            ("/**/1", "    1"),
            ("// größe\r\n1", "         \n1"),
        ] {
            assert_eq!(blank(text), wanted, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_keeps_its_characters_and_lines(text in r#"[ "/*\\a\n\u{e9}]*"#) {
            let blanked = blank(&text);
            prop_assert_eq!(blanked.chars().count(), text.chars().count());
            prop_assert_eq!(blanked.lines().count(), text.lines().count());
        }

        #[test]
        fn what_has_no_comment_is_left_as_it_is(text in r#"[ "*\\a\n\u{e9}]*"#) {
            prop_assert_eq!(blank(&text), text);
        }
    }
}
