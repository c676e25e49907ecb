//! What browsers are told about pages of other origins.
//!
//! It says whose pages may read answers, and sends nobody away: a browser delivers what a page sends without asking first, as
//! long as it looks like a form. Against that, there is the API key.

use std::sync::Arc;

use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderValue};

use crate::config::AllowedOrigins;

/// Whose pages may read answers; clones share it.
#[derive(Clone)]
pub(super) struct Cors(Arc<AllowedOrigins>);

impl Cors {
    pub(super) fn new(allowed: AllowedOrigins) -> Self {
        Self(Arc::new(allowed))
    }

    /// Adds to an answer what its reader, who says to be of `origin`, has to know. If it came from another node, what that one
    /// says counts no more.
    pub(super) fn put(&self, origin: Option<&HeaderValue>, answer: &mut HeaderMap) {
        const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, DELETE, OPTIONS");
        const HEADERS: HeaderValue = HeaderValue::from_static("Content-Type, X-API-Key");
        for name in [
            ACCESS_CONTROL_ALLOW_ORIGIN,
            ACCESS_CONTROL_ALLOW_METHODS,
            ACCESS_CONTROL_ALLOW_HEADERS,
            VARY,
        ] {
            answer.remove(name);
        }
        let allowed = match &*self.0 {
            AllowedOrigins::Any => HeaderValue::from_static("*"),
            AllowedOrigins::These(these) => {
                if !these.is_empty() {
                    // A cache must not show one origin what was meant for another.
                    answer.insert(VARY, HeaderValue::from_static("Origin"));
                }
                let listed = |origin: &&HeaderValue| these.iter().any(|these| origin.as_bytes() == these.as_bytes());
                let Some(origin) = origin.filter(listed) else { return };
                origin.clone()
            }
        };
        answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
        answer.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        answer.insert(ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(allowed: AllowedOrigins, origin: Option<&'static str>) -> HeaderMap {
        let mut answer = HeaderMap::new();
        let origin = origin.map(HeaderValue::from_static);
        Cors::new(allowed).put(origin.as_ref(), &mut answer);
        answer
    }

    fn these(origins: &[&str]) -> AllowedOrigins {
        AllowedOrigins::These(origins.iter().map(|&origin| origin.to_owned()).collect())
    }

    #[test]
    fn any_origin_is_told_so_whether_it_says_who_it_is_or_not() {
        for origin in [None, Some("https://a.example")] {
            let answer = headers(AllowedOrigins::Any, origin);
            assert_eq!(
                (answer.len(), &answer[ACCESS_CONTROL_ALLOW_ORIGIN]),
                (3, &"*".parse().unwrap())
            );
            assert_eq!(answer[ACCESS_CONTROL_ALLOW_METHODS], "GET, POST, DELETE, OPTIONS");
            assert_eq!(answer[ACCESS_CONTROL_ALLOW_HEADERS], "Content-Type, X-API-Key");
        }
    }

    #[test]
    fn of_a_list_the_one_that_asks_is_named_and_no_other() {
        let list = || these(&["https://a.example", "https://b.example:8443"]);
        for origin in ["https://a.example", "https://b.example:8443"] {
            let answer = headers(list(), Some(origin));
            assert_eq!(answer[ACCESS_CONTROL_ALLOW_ORIGIN], origin);
            assert_eq!((answer.len(), &answer[VARY]), (4, &"Origin".parse().unwrap()));
        }
        for origin in [
            None,
            Some("https://b.example"),
            Some("null"),
            Some("*"),
            Some("https://a.example.evil"),
        ] {
            let answer = headers(list(), origin);
            assert_eq!(
                (answer.len(), &answer[VARY]),
                (1, &"Origin".parse().unwrap()),
                "{origin:?}"
            );
        }
    }

    #[test]
    fn what_another_node_says_does_not_count() {
        let mut answer = headers(AllowedOrigins::Any, None);
        let origin = HeaderValue::from_static("https://a.example");
        Cors::new(these(&["https://a.example"])).put(Some(&origin), &mut answer);
        assert_eq!(
            answer,
            headers(these(&["https://a.example"]), Some("https://a.example"))
        );
        Cors::new(these(&[])).put(Some(&origin), &mut answer);
        assert!(answer.is_empty());
    }

    #[test]
    fn an_empty_list_says_nothing() {
        assert!(headers(these(&[]), Some("https://a.example")).is_empty());
    }
}
