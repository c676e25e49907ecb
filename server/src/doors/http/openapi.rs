//! `/openapi.json`: the description of this API for programs.

use axum::http::StatusCode;
use axum::response::Response;

use super::router::json;

/// Written by hand. Tests hold it against the routes, and against what the server answers.
const DOCUMENT: &str = include_str!("openapi.json");

pub(super) async fn document() -> Response {
    json(StatusCode::OK, DOCUMENT)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::super::routes::{ROUTES, Verb};
    use super::*;
    use crate::access::{Need, Operation};

    fn document() -> Value {
        serde_json::from_str(DOCUMENT).unwrap()
    }

    #[test]
    fn it_has_every_route_and_no_other() {
        let document = document();
        let paths = document["paths"].as_object().unwrap();
        let described: BTreeSet<_> = paths
            .iter()
            .flat_map(|(path, methods)| {
                methods
                    .as_object()
                    .unwrap()
                    .keys()
                    .map(move |method| (path.as_str(), method.as_str()))
            })
            .collect();
        let served: BTreeSet<_> = ROUTES
            .iter()
            .map(|route| match route.verb {
                // GET stands for all of them.
                Verb::Any | Verb::Get | Verb::Take => (route.path, "get"),
                Verb::Post => (route.path, "post"),
            })
            .collect();
        assert_eq!(described, served);
        assert_eq!(served.len(), ROUTES.len(), "a path stands twice in the table");
    }

    #[test]
    fn it_is_of_this_version() {
        let document = document();
        assert_eq!(document["openapi"], "3.1.0");
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn operations_have_names_of_their_own_and_say_which_need_no_key() {
        let document = document();
        let mut names = BTreeSet::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for operation in methods.as_object().unwrap().values() {
                let name = operation["operationId"].as_str().unwrap();
                assert!(names.insert(name.to_owned()), "{name} stands twice");
                let open = Operation::of_http(path).need == Need::Nothing;
                assert_eq!(operation.get("security").is_some(), open, "{path}");
            }
        }
    }
}
