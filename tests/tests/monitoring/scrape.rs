//! What `/metrics` says.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use boltq_tests::harness::http;

/// One answer of `/metrics`.
pub(crate) struct Scrape {
    text: String,
}

impl Scrape {
    /// Asks for it.
    pub(crate) fn of(admin: SocketAddr) -> Self {
        let response = http::get(admin, "/metrics").expect("an answer of /metrics");
        assert_eq!(response.status, 200);
        let text = response.text().to_owned();
        Self { text }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Names of families, with their kinds and what is said of them.
    pub(crate) fn families(&self) -> BTreeMap<&str, (&str, &str)> {
        let kinds = self.text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let helps = self.text.lines().filter_map(|line| line.strip_prefix("# HELP "));
        let kinds = kinds.filter_map(|line| line.split_once(' '));
        let helps = helps.filter_map(|line| line.split_once(' '));
        let pairs = kinds.zip(helps);
        pairs
            .map(|((name, kind), (same, help))| {
                assert_eq!(name, same);
                (name, (kind, help))
            })
            .collect()
    }

    /// The value of a sample, named with its labels as they are written.
    pub(crate) fn find(&self, sample: &str) -> Option<f64> {
        let value = self
            .text
            .lines()
            .find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        value.map(|value| value.parse().expect("a number"))
    }

    /// As [`Scrape::find`], of one that is there.
    pub(crate) fn value(&self, sample: &str) -> f64 {
        self.find(sample)
            .unwrap_or_else(|| panic!("no {sample} in\n{}", self.text))
    }

    /// Values of all samples of a family, by what stands in the braces.
    pub(crate) fn samples(&self, family: &str) -> BTreeMap<&str, f64> {
        let samples = self.text.lines().filter_map(|line| {
            let (labels, value) = line.strip_prefix(family)?.strip_prefix('{')?.rsplit_once("} ")?;
            Some((labels, value.parse().expect("a number")))
        });
        samples.collect()
    }
}
