//! A screen from an overview: its lines, cut to fit, with what was chosen above and the keys below.

use super::terminal::Size;
use super::view::View;
use crate::args::Sort;
use crate::printer::{Overview, printable};

const KEYS: &str = "q quit  sort: d depth  r rate  n name  / filter";
const BOLD: &str = "\x1b[1m";
const REVERSED: &str = "\x1b[7m";
const PLAIN: &str = "\x1b[0m";

/// A frame for a terminal of this size.
pub(super) fn live(overview: &Overview, (view, trouble): (&View, Option<&str>), size: Size) -> Vec<String> {
    let mut lines = overview.head();
    lines.push(match trouble {
        Some(trouble) => format!("no answer: {}", printable(trouble)),
        None => choice(view),
    });
    for line in &mut lines {
        *line = cut(line, size.columns);
    }
    if let Some(first) = lines.first_mut() {
        *first = format!("{BOLD}{first}{PLAIN}");
    }
    let columns = cut(
        &format!("{:<width$}", Overview::COLUMNS, width = size.columns),
        size.columns,
    );
    lines.push(format!("{REVERSED}{columns}{PLAIN}"));
    let rest = overview.more();
    // The last line of the screen is for the keys.
    let room = size.rows.saturating_sub(lines.len() + 1 + rest.iter().len());
    lines.extend(
        overview
            .queues
            .iter()
            .take(room)
            .map(|queue| cut(&queue.line(), size.columns)),
    );
    lines.extend(rest.map(|rest| cut(&rest, size.columns)));
    while lines.len() + 1 < size.rows {
        lines.push(String::new());
    }
    lines.truncate(size.rows.saturating_sub(1));
    lines.push(cut(KEYS, size.columns));
    lines
}

fn choice(view: &View) -> String {
    let sort = match view.sort {
        Sort::Depth => "depth",
        Sort::Rate => "rate",
        Sort::Name => "name",
    };
    let filter = printable(&view.filter);
    match (view.typing, filter.is_empty()) {
        (true, _) => format!("filter: {filter}_"),
        (false, true) => format!("by {sort}"),
        (false, false) => format!("by {sort}, names with {filter:?}; escape shows all"),
    }
}

/// At most so many characters.
fn cut(line: &str, columns: usize) -> String {
    line.chars().take(columns).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::printer::tests_overview as overview;

    const SIZE: Size = Size { columns: 80, rows: 24 };

    /// Without colours.
    fn bare(line: &str) -> String {
        [BOLD, REVERSED, PLAIN]
            .iter()
            .fold(line.to_owned(), |line, code| line.replace(code, ""))
    }

    #[test]
    fn a_frame_fits_the_screen_whatever_its_size() {
        let names: Vec<_> = (0..100).map(|n| format!("{n}\u{1b}{}", "long".repeat(40))).collect();
        let queues: Vec<_> = names.iter().map(|name| (name.as_str(), 1, 0.0)).collect();
        let view = View::new(Sort::Name, "\u{1b}]0;title\u{7}".to_owned());
        for (columns, rows) in [(80, 24), (20, 5), (200, 60), (1, 1), (0, 0)] {
            let size = Size { columns, rows };
            for trouble in [None, Some("\u{1b}c gone")] {
                let lines = live(&overview(&queues), (&view, trouble), size);
                assert_eq!(lines.len(), rows.max(1), "{size:?}");
                for line in lines.iter().map(|line| bare(line)) {
                    assert!(line.chars().count() <= columns, "{line:?}");
                    assert!(!line.contains(char::is_control), "{line:?}");
                }
            }
        }
    }

    #[test]
    fn what_was_chosen_and_what_is_wrong_is_shown() {
        let shown = |view: &View, trouble| live(&overview(&[]), (view, trouble), SIZE)[3].clone();
        let mut view = View::new(Sort::Rate, String::new());
        assert_eq!(shown(&view, None), "by rate");
        view.filter = "mail".to_owned();
        assert_eq!(shown(&view, None), "by rate, names with \"mail\"; escape shows all");
        view.typing = true;
        assert_eq!(shown(&view, None), "filter: mail_");
        assert_eq!(shown(&view, Some("no server")), "no answer: no server");
    }
}
