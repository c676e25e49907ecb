//! Writing JSON by hand, for answers whose shape is fixed and whose number is large.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub(super) fn put_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// A string with the base64 of `bytes`.
pub(super) fn put_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    let at = out.len();
    out.resize(at + bytes.len().div_ceil(3) * 4, 0);
    // The room is exactly what the padded encoding needs.
    let written = STANDARD.encode_slice(bytes, &mut out[at..]).unwrap_or(0);
    out.truncate(at + written);
    out.push(b'"');
}

/// A string: quotes, backslashes and control characters are escaped, all else stays as it is.
pub(super) fn put_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    put_escaped(out, text);
    out.push(b'"');
}

/// A part of what is between the quotes of a string.
pub(super) fn put_escaped(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    let mut plain = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        if byte >= b' ' && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[plain..at]);
        put_escape(out, byte);
        plain = at + 1;
    }
    out.extend_from_slice(&bytes[plain..]);
}

fn put_escape(out: &mut Vec<u8>, byte: u8) {
    const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";
    match byte {
        b'"' => out.extend_from_slice(br#"\""#),
        b'\\' => out.extend_from_slice(br"\\"),
        b'\n' => out.extend_from_slice(br"\n"),
        b'\r' => out.extend_from_slice(br"\r"),
        b'\t' => out.extend_from_slice(br"\t"),
        control => {
            out.extend_from_slice(br"\u00");
            out.push(HEX_DIGITS[usize::from(control >> 4)]);
            out.push(HEX_DIGITS[usize::from(control & 15)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_is_read_back(text: String) {
            let mut out = Vec::new();
            put_string(&mut out, &text);
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }

        #[test]
        fn any_bytes_are_decoded_back(bytes: Vec<u8>) {
            let mut out = Vec::new();
            put_base64(&mut out, &bytes);
            let text = serde_json::from_slice::<String>(&out).unwrap();
            prop_assert_eq!(STANDARD.decode(text).unwrap(), bytes);
        }
    }

    #[test]
    fn every_control_character_is_escaped() {
        let text: String = (0_u8..=0x7f).map(char::from).collect();
        let mut out = Vec::new();
        put_string(&mut out, &text);
        assert!(out.iter().all(|byte| *byte >= b' '));
        assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
    }
}
