//! Servers for tests of clients, which are not written in Rust: started by a process of their own, and told what to do by lines
//! of its input. `tests/conformance/README.md` is the reference.
//!
//! Nothing outlives the process that has started it: when the input ends, servers and data go.

mod bed;
mod options;
mod thread;

use std::io::{self, BufRead, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Value, json};

pub use bed::Bed;
pub use options::TestBedOptions;
pub use thread::BedThread;

/// Starts servers, says so, and carries out commands until the input ends.
///
/// # Errors
/// Input or output broke, or the options contradict each other.
///
/// # Panics
/// When the servers do not start.
pub fn serve(options: &TestBedOptions, input: impl BufRead, output: &mut impl Write) -> io::Result<()> {
    let mut bed = Bed::start(options)?;
    say(output, &bed.ready())?;
    for line in input.lines() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        say(output, &answer(&mut bed, &line))?;
    }
    Ok(())
}

fn say(output: &mut impl Write, line: &Value) -> io::Result<()> {
    writeln!(output, "{line}")?;
    output.flush()
}

/// The harness panics when something does not happen in time, which is how a test fails. Here it is an answer.
fn answer(bed: &mut Bed, line: &str) -> Value {
    let done = catch_unwind(AssertUnwindSafe(|| bed.carry_out(line)));
    let failure = match done {
        Ok(Ok(mut answer)) => {
            answer["ok"] = true.into();
            return answer;
        }
        Ok(Err(failure)) => failure,
        Err(panic) => match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
            (Some(text), _) => text.clone(),
            (None, Some(text)) => (*text).to_owned(),
            (None, None) => "it panicked".to_owned(),
        },
    };
    json!({"ok": false, "error": failure})
}
