//! Accepts long options with one dash, as in `boltq publish -topic jobs -payload '{}'`.
//!
//! Clap reads `-topic` as the short options `t`, `o`, `p` … So before clap sees the arguments, a `-word` becomes
//! `--word`, with or without `=value`. Words that are no option too: clap then names the one that was meant, and
//! `-heder` is not `-h`. Never touched:
//!
//! - what stands after `--`;
//! - the value of an option that takes values with a leading dash, such as a payload: `-payload -topic` publishes
//!   the text `-topic`;
//! - what is no word: single letters, negative numbers, `-`;
//! - a short option with its value attached, as in `-ojson`.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;

use clap::Command;

/// The options of all commands; one name means the same in each.
#[derive(Default)]
struct Options {
    /// Whether the argument after a long option is its value, whatever that looks like.
    longs: HashMap<String, bool>,
    shorts_with_value: HashSet<char>,
}

/// Rewrites `args`, whose first is the name of the program.
pub(crate) fn rewrite(command: &Command, args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut options = Options::default();
    options.collect(command);

    let mut args = args.into_iter();
    let mut out: Vec<OsString> = args.next().into_iter().collect();
    let mut is_value = false;
    for arg in args.by_ref() {
        if is_value {
            out.push(arg);
            is_value = false;
            continue;
        }
        if arg == "--" {
            out.push(arg);
            break;
        }
        let (arg, swallows_next) = options.rewrite(arg);
        out.push(arg);
        is_value = swallows_next;
    }
    out.extend(args);
    out
}

impl Options {
    fn collect(&mut self, command: &Command) {
        for arg in command.get_arguments() {
            let takes_values = arg.get_action().takes_values();
            for long in arg.get_long_and_visible_aliases().unwrap_or_default() {
                let swallows_next = takes_values && arg.is_allow_hyphen_values_set();
                self.longs.insert(long.to_owned(), swallows_next);
            }
            self.shorts_with_value.extend(arg.get_short().filter(|_| takes_values));
        }
        for subcommand in command.get_subcommands() {
            self.collect(subcommand);
        }
    }

    /// The argument as clap takes it, and whether the next one is its value.
    fn rewrite(&self, arg: OsString) -> (OsString, bool) {
        let Some(text) = arg.to_str() else {
            return (arg, false);
        };
        let long = match text.strip_prefix("--") {
            Some(word) => word,
            None => match text.strip_prefix('-') {
                Some(word) if self.is_long(word) => word,
                _ => return (arg, false),
            },
        };
        let swallows_next = self.longs.get(long).copied().unwrap_or(false);
        (format!("--{long}").into(), swallows_next)
    }

    /// Whether what follows one dash is a word rather than short options.
    fn is_long(&self, word: &str) -> bool {
        let name = word.split_once('=').map_or(word, |(name, _)| name);
        let mut letters = name.chars();
        let first = letters.next();
        let is_word =
            first.is_some_and(|first| first.is_ascii_alphabetic() && !self.shorts_with_value.contains(&first));
        self.longs.contains_key(name) || (is_word && letters.next().is_some())
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Args;

    fn rewritten(line: &str) -> String {
        let args = line.split(' ').map(OsString::from);
        let args: Vec<_> = rewrite(&Args::command(), args)
            .into_iter()
            .map(|arg| arg.into_string().unwrap())
            .collect();
        args.join(" ")
    }

    #[test]
    fn long_options_may_have_one_dash() {
        for (line, expected) in [
            (
                "boltq publish -topic a -payload {}",
                "boltq publish --topic a --payload {}",
            ),
            (
                "boltq publish -queue=a -payload={}",
                "boltq publish --queue=a --payload={}",
            ),
            ("boltq -output json stats", "boltq --output json stats"),
            (
                "boltq consume -topic a -dead-letter -max 3",
                "boltq consume --topic a --dead-letter --max 3",
            ),
            ("boltq -help", "boltq --help"),
            ("boltq -version", "boltq --version"),
        ] {
            assert_eq!(rewritten(line), expected);
        }
    }

    #[test]
    fn values_are_left_alone() {
        for line in [
            "boltq publish --payload -5",
            "boltq publish --payload -topic",
            "boltq publish --payload --topic",
            "boltq publish --payload --",
            "boltq publish --header -topic=1",
            "boltq publish --priority -5",
            "boltq publish --payload=-topic",
            "boltq queue get -- -topic",
            "boltq publish -o json",
            "boltq publish -ojson",
            "boltq publish -h",
            "boltq publish --file -",
        ] {
            assert_eq!(rewritten(line), line);
        }
    }

    #[test]
    fn words_that_are_no_option_are_left_to_clap_as_words() {
        assert_eq!(
            rewritten("boltq publish -prioritty=3 -heder"),
            "boltq publish --prioritty=3 --heder"
        );
    }

    #[test]
    fn an_option_without_its_value_does_not_swallow_the_next_one() {
        assert_eq!(
            rewritten("boltq publish -topic -payload x"),
            "boltq publish --topic --payload x"
        );
    }

    #[test]
    fn what_follows_a_swallowed_value_is_rewritten_again() {
        assert_eq!(
            rewritten("boltq publish -payload -topic -topic a"),
            "boltq publish --payload -topic --topic a"
        );
    }

    #[test]
    fn a_long_option_means_the_same_in_every_command() {
        fn check(command: &Command, seen: &mut HashMap<String, bool>) {
            for arg in command.get_arguments() {
                let takes_value = arg.get_action().takes_values() && arg.is_allow_hyphen_values_set();
                for long in arg.get_long_and_visible_aliases().unwrap_or_default() {
                    assert_eq!(
                        *seen.entry(long.to_owned()).or_insert(takes_value),
                        takes_value,
                        "--{long}"
                    );
                }
            }
            command.get_subcommands().for_each(|subcommand| check(subcommand, seen));
        }
        let mut command = Args::command();
        command.build();
        check(&command, &mut HashMap::new());
    }

    #[test]
    #[cfg(unix)]
    fn arguments_that_are_not_utf8_pass_through() {
        use std::os::unix::ffi::OsStringExt;
        let args = vec!["boltq".into(), OsString::from_vec(vec![b'-', 0xFF])];
        assert_eq!(rewrite(&Args::command(), args.clone()), args);
    }
}
