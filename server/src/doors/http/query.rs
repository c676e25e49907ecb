//! Parameters of a query. Names are as they stand in the documentation, unknown ones are ignored, and of a name that is given
//! twice the first counts. A query that is no UTF-8 is refused as a whole: names that differ would become one.

use std::time::Duration;

use axum::extract::{FromRequestParts, Query};
use axum::http::Uri;
use axum::http::request::Parts;
use boltq_core::limits::BATCH_MESSAGES_MAX;

use super::refusal::Refusal;
use crate::config::{format_duration, parse_duration};
use crate::doors::body::shortened;
use crate::doors::bounds::PAGE_DEFAULT;

/// Longest part of a value that is repeated in an error.
const ECHO_BYTES_MAX: usize = 100;

/// All of them.
pub(super) struct Parameters(Vec<(String, String)>);

/// Which part of a list is wanted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page<'a> {
    /// The last name of the page before; empty for the first one.
    pub(super) after: &'a str,
    /// Entries at most.
    pub(super) size: usize,
}

impl Parameters {
    /// What is not encoded well is taken as it stands, as long as it is text.
    pub(super) fn of(uri: &Uri) -> Result<Self, Refusal> {
        if uri
            .query()
            .is_some_and(|query| std::str::from_utf8(&decoded(query)).is_err())
        {
            return Err(Refusal::bad_request(
                "the query is not UTF-8 when its %-escapes are decoded",
            ));
        }
        Ok(Self(
            Query::try_from_uri(uri).map(|Query(pairs)| pairs).unwrap_or_default(),
        ))
    }

    /// Empty if there is none of this name.
    pub(super) fn text(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(other, _)| other == name);
        found.map_or("", |(_, value)| value)
    }

    /// False if there is none of this name.
    pub(super) fn switch(&self, name: &str) -> Result<bool, Refusal> {
        match self.text(name) {
            "" | "false" | "0" => Ok(false),
            "true" | "1" => Ok(true),
            other => Err(refused(name, other, "true and false")),
        }
    }

    /// `default` if there is none of this name, or it is 0.
    pub(super) fn count(&self, name: &str, default: usize, max: usize) -> Result<usize, Refusal> {
        let text = self.text(name);
        if text.is_empty() {
            return Ok(default);
        }
        match text.parse() {
            Ok(0) => Ok(default),
            Ok(count) if count <= max => Ok(count),
            _ => Err(refused(name, text, &format!("0 to {max}"))),
        }
    }

    /// Zero if there is none of this name.
    pub(super) fn duration(&self, name: &str, max: Duration) -> Result<Duration, Refusal> {
        let text = self.text(name);
        if text.is_empty() {
            return Ok(Duration::ZERO);
        }
        let parsed = parse_duration(text).filter(|duration| *duration <= max);
        parsed.ok_or_else(|| refused(name, text, &format!("0s to {}", format_duration(max))))
    }

    pub(super) fn page(&self) -> Result<Page<'_>, Refusal> {
        Ok(Page {
            after: self.text("page_token"),
            size: self.count("page_size", PAGE_DEFAULT, BATCH_MESSAGES_MAX)?,
        })
    }
}

/// The bytes that a query stands for. What separates its parts is ASCII, and so in no character of several bytes.
fn decoded(query: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(query.len());
    let mut rest = query.as_bytes();
    while let [byte, after @ ..] = rest {
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let escaped = match after {
            [high, low, ..] if *byte == b'%' => digit(*high).zip(digit(*low)),
            _ => None,
        };
        let (byte, length) = escaped.map_or((*byte, 1), |(high, low)| (high << 4 | low, 3));
        out.push(byte);
        rest = &rest[length..];
    }
    out
}

fn refused(name: &str, value: &str, allowed: &str) -> Refusal {
    let value = shortened(value, ECHO_BYTES_MAX);
    Refusal::bad_request(format!("{name} is {value:?}; {allowed} are allowed"))
}

impl<S: Sync> FromRequestParts<S> for Parameters {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        Self::of(&parts.uri)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(query: &str) -> Parameters {
        Parameters::of(&format!("/x?{query}").parse().unwrap()).unwrap()
    }

    fn refusal<T: std::fmt::Debug>(result: Result<T, Refusal>) -> String {
        match result.unwrap_err() {
            Refusal::Error(status, text) => {
                assert_eq!(status, 400);
                text
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn names_and_values_are_decoded_and_the_first_counts() {
        let read = parameters("topic=a%20b+c&topic=d&x&%zz=%f&n=%C3%a9");
        assert_eq!((read.text("topic"), read.text("x"), read.text("y")), ("a b c", "", ""));
        assert_eq!(read.text("n"), "é");
        assert_eq!(Parameters::of(&"/x".parse().unwrap()).unwrap().text("x"), "");
    }

    #[test]
    fn what_is_no_text_is_refused_wherever_it_stands() {
        for query in ["topic=%ff", "a=1&%fe=2", "a=%c3&b=%a9", "a=%ED%A0%80"] {
            let text = refusal(Parameters::of(&format!("/x?{query}").parse().unwrap()).map(drop));
            assert!(text.contains("not UTF-8"), "{text}");
        }
    }

    #[test]
    fn switches_are_true_or_false() {
        for (query, wanted) in [
            ("", false),
            ("on=", false),
            ("on=false", false),
            ("on=0", false),
            ("on=true", true),
            ("on=1", true),
        ] {
            assert_eq!(parameters(query).switch("on"), Ok(wanted), "{query}");
        }
        let text = refusal(parameters("on=maybe").switch("on"));
        assert_eq!(text, r#"on is "maybe"; true and false are allowed"#);
    }

    #[test]
    fn counts_have_a_default_and_a_bound() {
        for (query, wanted) in [("", 7), ("n=0", 7), ("n=1", 1), ("n=9", 9)] {
            assert_eq!(parameters(query).count("n", 7, 9), Ok(wanted), "{query}");
        }
        for query in ["n=10", "n=-1", "n=1.0", "n=x", "n=99999999999999999999999"] {
            let text = refusal(parameters(query).count("n", 7, 9));
            assert!(text.ends_with("; 0 to 9 are allowed"), "{text}");
        }
    }

    #[test]
    fn waits_have_a_unit_and_a_bound() {
        let max = Duration::from_secs(60);
        for (query, wanted) in [
            ("", 0),
            ("w=0", 0),
            ("w=0s", 0),
            ("w=250ms", 250),
            ("w=1m", 60_000),
            ("w=60s", 60_000),
        ] {
            let wanted = Duration::from_millis(wanted);
            assert_eq!(parameters(query).duration("w", max), Ok(wanted), "{query}");
        }
        for query in ["w=5", "w=61s", "w=-1s", "w=soon"] {
            let text = refusal(parameters(query).duration("w", max));
            assert!(text.ends_with("; 0s to 1m are allowed"), "{text}");
        }
        let long = refusal(parameters(&format!("w={}", "é".repeat(10_000))).duration("w", max));
        assert!(long.len() < 300, "{}", long.len());
    }
}
