//! Prometheus text format, version 0.0.4.
//!
//! The numbers lie in the queue plane, the log and the doors, each of which counts in its own way; they are read when
//! somebody asks. So there is no registry that would hold them a second time: this only writes them down.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use boltq_core::histogram::{Distribution, Scale};

/// Collects samples and writes them sorted by name, with `HELP` and `TYPE` once for each.
#[derive(Debug, Default)]
pub struct Exposition(BTreeMap<&'static str, Family>);

#[derive(Debug)]
struct Family {
    help: &'static str,
    kind: &'static str,
    /// What follows the name of the family, and the value.
    samples: Vec<(String, String)>,
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

    /// As [`Exposition::labelled_counter`], of time, in seconds.
    pub fn labelled_seconds(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
        value: Duration,
    ) {
        self.family(name, help, "counter")
            .push((written(labels), seconds(value)));
    }

    /// How many values there were in each class, which is told apart by its end, and what they are together.
    pub fn histogram(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
        values: &Distribution,
    ) {
        let Scale { ends, per_unit } = values.scale;
        let shown = |value: u64| (value as f64 / *per_unit as f64).to_string();
        let samples = self.family(name, help, "histogram");
        let ends = ends.iter().map(|end| shown(*end)).chain(["+Inf".to_owned()]);
        let mut count = 0;
        for (end, class) in ends.zip(values.classes) {
            count += class;
            let labels = [labels, &[("le", end.as_str())]].concat();
            samples.push((format!("_bucket{}", written(&labels)), count.to_string()));
        }
        samples.push((format!("_sum{}", written(labels)), shown(values.sum)));
        samples.push((format!("_count{}", written(labels)), count.to_string()));
    }

    fn add(&mut self, name: &'static str, help: &'static str, kind: &'static str, labels: String, value: u64) {
        self.family(name, help, kind).push((labels, value.to_string()));
    }

    fn family(&mut self, name: &'static str, help: &'static str, kind: &'static str) -> &mut Vec<(String, String)> {
        let family = self.0.entry(name).or_insert_with(|| Family {
            help,
            kind,
            samples: Vec::new(),
        });
        &mut family.samples
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

fn seconds(duration: Duration) -> String {
    duration.as_secs_f64().to_string()
}

fn written(labels: &[(&str, &str)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
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
    use boltq_core::histogram::{COUNT, Histogram, LATENCY};

    use super::*;

    #[test]
    fn families_are_sorted_and_described_once() {
        let mut exposition = Exposition::default();
        exposition.labelled_gauge("b", "Bees.", &[("hive", "one")], 1);
        exposition.counter("a", "Ants.", 7);
        exposition.labelled_gauge("b", "Bees.", &[("hive", "a\"b\\c\nd")], 2);
        exposition.labelled_counter("c", "Crabs.", &[("sea", "north"), ("depth", "9")], 3);
        exposition.labelled_seconds("d", "Ducks.", &[("pond", "one")], Duration::from_millis(1_500));
        let eels = Histogram::new(&LATENCY);
        for nanos in [100_000, 100_001, 12_000_000_000] {
            eels.record(nanos);
        }
        exposition.histogram("e", "Eels.", &[("river", "one")], &eels.get());
        exposition.histogram("f", "Foxes.", &[], &Histogram::new(&COUNT).get());
        let written = exposition.into_text();
        let (first, histograms) = written.split_once("# HELP e").unwrap();
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
# HELP d Ducks.
# TYPE d counter
d{pond="one"} 1.5
"#;
        assert_eq!(first, text);
        for line in [
            "# TYPE e histogram",
            r#"e_bucket{river="one",le="0.0001"} 1"#,
            r#"e_bucket{river="one",le="0.00025"} 2"#,
            r#"e_bucket{river="one",le="10"} 2"#,
            r#"e_bucket{river="one",le="30"} 3"#,
            r#"e_bucket{river="one",le="+Inf"} 3"#,
            r#"e_sum{river="one"} 12.000200001"#,
            r#"e_count{river="one"} 3"#,
            r#"f_bucket{le="65536"} 0"#,
            "f_sum 0",
            "f_count 0",
        ] {
            assert!(
                histograms.lines().any(|written| written == line),
                "{line}\n{histograms}"
            );
        }
    }
}
