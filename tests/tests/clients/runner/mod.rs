//! Runs scenarios with the client for Rust; `tests/conformance/README.md` is the reference.

mod answers;
mod cache;
mod context;
mod many;
mod matching;
mod queues;
mod routing;
mod steps;
mod workers;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use boltq::Error;
use boltq_tests::testbed::BedThread;
use serde_json::Value;

use context::Context;

const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Deadlines are not about speed.
const GRACE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// One file.
pub(crate) struct Scenario {
    pub(crate) name: String,
    on: Vec<String>,
    steps: Vec<Value>,
}

impl Scenario {
    /// All of them by name.
    pub(crate) fn all() -> Vec<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance/scenarios");
        let mut all: Vec<Self> = std::fs::read_dir(folder)
            .expect("the scenarios")
            .map(|entry| Self::read(&entry.expect("a file").path()))
            .collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).expect("a scenario");
        let json: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let name = json["name"].as_str().expect("a name").to_owned();
        assert_eq!(path.file_stem().and_then(|stem| stem.to_str()), Some(name.as_str()));
        assert!(json["about"].is_string(), "{name} says what it is about");
        let on = json["on"].as_array().expect("where").iter();
        Self {
            on: on.map(|on| on.as_str().expect("a text").to_owned()).collect(),
            steps: json["steps"].as_array().expect("steps").clone(),
            name,
        }
    }

    /// Whether it is run on one node, or on three.
    pub(crate) fn is_on(&self, bed: &str) -> bool {
        self.on.iter().any(|on| on == bed)
    }
}

/// Carries out a scenario; what failed if it did.
pub(crate) async fn run(scenario: &Scenario, bed: &Arc<BedThread>) -> Result<(), String> {
    let context = Context::new(bed.clone());
    for (number, step) in scenario.steps.iter().enumerate() {
        let outcome = carry_out(&context, step).await;
        outcome.map_err(|why| format!("step {}, {step}: {why}", number + 1))?;
    }
    Ok(())
}

/// Repeats a step until it is as it should be, if it says so.
async fn carry_out(context: &Arc<Context>, step: &Value) -> Result<(), String> {
    let step = context.interpolate(step);
    let end = Instant::now() + duration(&step["within"]).unwrap_or_default() + GRACE;
    loop {
        let failure = match attempt(context, &step).await {
            Ok(()) => return Ok(()),
            Err(failure) => failure,
        };
        if step["within"].is_null() || Instant::now() > end {
            return Err(failure);
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn attempt(context: &Arc<Context>, step: &Value) -> Result<(), String> {
    let timeout = duration(&step["timeout"]).unwrap_or(TIMEOUT_DEFAULT);
    if let Some(name) = step["background"].as_str() {
        context.start(name, step.clone(), timeout);
        return Ok(());
    }
    let done = steps::perform(context, step, timeout);
    let outcome = tokio::time::timeout(timeout + GRACE, done).await;
    let outcome = outcome.map_err(|_| format!("not done within {timeout:?}"))?;
    match (&step["error"], outcome) {
        (Value::Null, Ok(answer)) => {
            matching::check(&step["expect"], &answer)?;
            for (path, variable) in step["save"].as_object().into_iter().flatten() {
                let value = matching::at(&answer, path).ok_or_else(|| format!("{path} is not in {answer}"))?;
                context.save(variable.as_str().expect("a name"), value.clone());
            }
            Ok(())
        }
        (Value::Null, Err(error)) => Err(format!("it failed: {error}")),
        (expected, Ok(answer)) => Err(format!("it was done, {answer}, and {expected} was expected")),
        (expected, Err(error)) => matching::check(expected, &failure(expected, &error)),
    }
}

/// A failure as scenarios see it, with the metadata that is asked for.
fn failure(expected: &Value, error: &Error) -> Value {
    let asked = expected["metadata"].as_object().into_iter().flatten();
    let metadata = asked.filter_map(|(key, _)| Some((key.clone(), Value::from(error.metadata(key)?))));
    serde_json::json!({
        "code": answers::screaming(&format!("{:?}", error.code())),
        "reason": error.reason(),
        "retriable": error.is_retriable(),
        "metadata": Value::Object(metadata.collect()),
    })
}

/// A duration as scenarios write it.
pub(crate) fn duration(value: &Value) -> Option<Duration> {
    let text = value.as_str()?;
    let digits = text.find(|c: char| !c.is_ascii_digit()).expect("a unit");
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().expect("a whole number");
    Some(match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number * 60),
        "h" => Duration::from_secs(number * 3_600),
        _ => panic!("{text:?} is no duration"),
    })
}
