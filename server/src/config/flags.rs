//! The command line of the server.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// What was typed. Values are checked together with those of the file and the environment.
#[derive(Debug, Clone, Default, Parser)]
#[command(name = "boltq-server", version, about = "The BoltQ message broker")]
pub struct Flags {
    /// JSON file with the configuration; docs/configuration.md lists its keys
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
    /// Admin port (server.http_port)
    #[arg(long, value_name = "PORT", global = true)]
    pub http_port: Option<String>,
    /// Messaging port (server.tcp_port)
    #[arg(long, value_name = "PORT", global = true)]
    pub tcp_port: Option<String>,
    /// Directory for the data (storage.data_dir)
    #[arg(long, value_name = "DIR", global = true)]
    pub data_dir: Option<String>,
    /// Where messages are kept: memory or disk (storage.mode)
    #[arg(long, value_name = "MODE", global = true)]
    pub storage_mode: Option<String>,
    /// Admin ports of nodes to ask for admission to their cluster, with commas; asked before cluster.seeds
    #[arg(long, value_name = "HOST:PORT", global = true)]
    pub join: Option<String>,
    /// What to do instead of serving.
    #[command(subcommand)]
    pub action: Option<Action>,
}

/// What the binary can do besides serving.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
pub enum Action {
    /// Check the configuration, print what is in effect, and exit
    CheckConfig,
}

/// Options that the documented single-dash form is accepted for.
const LONG: [&str; 8] = [
    "config",
    "http-port",
    "tcp-port",
    "data-dir",
    "storage-mode",
    "join",
    "help",
    "version",
];

/// Turns `-config` and `-config=FILE` into `--config`, which is what the parser knows.
///
/// Only the names of our options are touched, and nothing behind `--`. Every option takes a value that cannot sensibly
/// be one of those names.
pub fn with_double_dashes(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut options = true;
    arguments
        .into_iter()
        .map(|argument| {
            options &= argument != "--";
            match argument.to_str() {
                Some(text) if options && is_single_dash(text) => format!("-{text}").into(),
                _ => argument,
            }
        })
        .collect()
}

fn is_single_dash(text: &str) -> bool {
    text.strip_prefix('-')
        .map(|name| name.split_once('=').map_or(name, |(name, _)| name))
        .is_some_and(|name| LONG.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Flags, clap::Error> {
        Flags::try_parse_from(with_double_dashes(arguments.iter().map(OsString::from)))
    }

    #[test]
    fn one_dash_is_as_good_as_two() {
        for arguments in [
            &["boltq-server", "-config", "a.json"][..],
            &["boltq-server", "--config", "a.json"],
            &["boltq-server", "-config=a.json"],
            &["boltq-server", "--config=a.json"],
        ] {
            let flags = parse(arguments).unwrap();
            assert_eq!(flags.config, Some("a.json".into()), "{arguments:?}");
        }
    }

    #[test]
    fn options_stand_before_or_behind_the_action() {
        for arguments in [
            &["boltq-server", "check-config", "-config", "a.json"][..],
            &["boltq-server", "-config", "a.json", "check-config"],
        ] {
            let flags = parse(arguments).unwrap();
            assert_eq!(
                (flags.config, flags.action),
                (Some("a.json".into()), Some(Action::CheckConfig))
            );
        }
    }

    #[test]
    fn unknown_options_are_refused() {
        for wrong in ["--tcp-prot", "-tcp-prot", "-x", "serve"] {
            assert!(parse(&["boltq-server", wrong, "1"]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_option_has_its_single_dash_form() {
        use clap::CommandFactory;
        let mut command = Flags::command();
        command.build();
        let mut names: Vec<_> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
        let mut long = LONG;
        names.sort_unstable();
        long.sort_unstable();
        assert_eq!(names, long);
    }
}
