//! Prometheus text format, version 0.0.4.
//!
//! The numbers lie in the queue plane, the log and the doors, each of which counts in its own way; they are read when
//! somebody asks. So there is no registry that would hold them a second time: this only writes them down.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Collects samples and writes them sorted by name, with `HELP` and `TYPE` once for each.
#[derive(Debug, Default)]
pub struct Exposition(BTreeMap<&'static str, Family>);

#[derive(Debug)]
struct Family {
    help: &'static str,
    kind: &'static str,
    samples: Vec<(String, u64)>,
}

impl Exposition {
    /// A number that only goes up.
    pub fn counter(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.add(name, help, "counter", String::new(), value);
    }

    /// A number that goes up and down.
    pub fn gauge(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.add(name, help, "gauge", String::new(), value);
    }

    /// One of several numbers of a name that only go up, told apart by labels.
    pub fn labelled_counter(&mut self, name: &'static str, help: &'static str, labels: &[(&str, &str)], value: u64) {
        self.add(name, help, "counter", written(labels), value);
    }

    /// One of several numbers of a name, told apart by labels.
    pub fn labelled_gauge(&mut self, name: &'static str, help: &'static str, labels: &[(&str, &str)], value: u64) {
        self.add(name, help, "gauge", written(labels), value);
    }

    fn add(&mut self, name: &'static str, help: &'static str, kind: &'static str, labels: String, value: u64) {
        let family = self.0.entry(name).or_insert_with(|| Family {
            help,
            kind,
            samples: Vec::new(),
        });
        family.samples.push((labels, value));
    }

    /// The whole text.
    pub fn into_text(self) -> String {
        let mut text = String::new();
        for (name, Family { help, kind, samples }) in self.0 {
            // Writing to a String does not fail.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, value) in samples {
                let _ = writeln!(text, "{name}{labels} {value}");
            }
        }
        text
    }
}

fn written(labels: &[(&str, &str)]) -> String {
    let pairs = labels
        .iter()
        .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
}

fn escaped(label: &str) -> String {
    label.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_sorted_and_described_once() {
        let mut exposition = Exposition::default();
        exposition.labelled_gauge("b", "Bees.", &[("hive", "one")], 1);
        exposition.counter("a", "Ants.", 7);
        exposition.labelled_gauge("b", "Bees.", &[("hive", "a\"b\\c\nd")], 2);
        exposition.labelled_counter("c", "Crabs.", &[("sea", "north"), ("depth", "9")], 3);
        let text = r#"# HELP a Ants.
# TYPE a counter
a 7
# HELP b Bees.
# TYPE b gauge
b{hive="one"} 1
b{hive="a\"b\\c\nd"} 2
# HELP c Crabs.
# TYPE c counter
c{sea="north",depth="9"} 3
"#;
        assert_eq!(exposition.into_text(), text);
    }
}
