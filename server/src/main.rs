//! `boltq-server`: reads the configuration, starts a node, stops it on SIGTERM or SIGINT. SIGHUP reads the
//! configuration again.

use std::env;
use std::io::Write;
use std::process::ExitCode;

use boltq_server::config::{Action, Config, Flags, Loaded, load, with_double_dashes};
use boltq_server::node::Node;
use boltq_server::preflight;
use boltq_server::reload::Reloader;
use boltq_server::telemetry::{LogHandle, start_logging};
use clap::Parser;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Frees what is no longer used to the system again, and does not scatter buffers over arenas: the resident size stays
/// near what is in use.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Wrong usage or configuration.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let flags = Flags::parse_from(with_double_dashes(env::args_os()));
    let action = flags.action;
    let loaded = match load(&flags, env::vars_os()) {
        Ok(loaded) => loaded,
        Err(error) => return fail(&error, EXIT_USAGE),
    };
    if action == Some(Action::CheckConfig) {
        return show(&loaded);
    }
    let log = match start_logging(&loaded.config.log) {
        Ok(log) => log,
        Err(error) => return fail(&error, 1),
    };
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    match runtime(&loaded.config) {
        Ok(runtime) => runtime.block_on(serve(&loaded, flags, log)),
        Err(error) => fail(&error, 1),
    }
}

/// What is in effect on stdout; on stderr, warnings and what this machine cannot do.
fn show(loaded: &Loaded) -> ExitCode {
    let findings = preflight::check(&loaded.config);
    let said = [
        ("warning", &loaded.warnings),
        ("warning", &findings.warnings),
        ("error", &findings.errors),
    ];
    for (kind, sentences) in said {
        for sentence in sentences {
            // Nobody is left to tell if this cannot be written.
            let _ = writeln!(std::io::stderr(), "{kind}: {sentence}");
        }
    }
    match std::io::stdout().write_all(loaded.in_effect.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => fail(&error, 1),
        _ if findings.errors.is_empty() => ExitCode::SUCCESS,
        _ => ExitCode::from(EXIT_USAGE),
    }
}

fn runtime(config: &Config) -> std::io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    if let Some(threads) = config.performance.worker_threads {
        builder.worker_threads(threads.get());
    }
    builder.enable_all().build()
}

async fn serve(loaded: &Loaded, flags: Flags, log: LogHandle) -> ExitCode {
    let config = &loaded.config;
    // Before the ports open: whoever sees the node ready may stop it at once.
    let signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    let [Ok(mut terminate), Ok(mut interrupt), Ok(hangup)] = signals else {
        return fail(&"cannot listen for signals", 1);
    };
    let node = match Node::start(config).await {
        Ok(node) => node,
        Err(error) => return fail(&error, 1),
    };
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        messaging = %node.messaging(),
        admin = %node.admin(),
        storage = config.storage.mode.name(),
        "ready"
    );
    let reloader = node.reloader(log, loaded.values.clone());
    tokio::spawn(reload(hangup, reloader, flags));
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    match node.run(stop).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, 1),
    }
}

/// Reads the configuration again for each SIGHUP, from where it was read at the start.
async fn reload(mut hangup: Signal, mut reloader: Reloader, flags: Flags) {
    while hangup.recv().await.is_some() {
        let flags = flags.clone();
        let applied = tokio::task::spawn_blocking(move || {
            reloader.apply(load(&flags, env::vars_os()));
            reloader
        });
        // It fails only if the process ends.
        let Ok(applied) = applied.await else { return };
        reloader = applied;
    }
}

fn fail(error: &dyn std::fmt::Display, code: u8) -> ExitCode {
    // Nobody is left to tell if this cannot be written.
    let _ = writeln!(std::io::stderr(), "boltq-server: {error}");
    ExitCode::from(code)
}
