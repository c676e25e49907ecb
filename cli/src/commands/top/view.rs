//! What the person chose: order and filter, and the keys that change them.

use std::cmp::Reverse;

use crate::args::Sort;
use crate::printer::{Overview, Row};

/// Longest filter; no name is longer.
const FILTER_CHARS_MAX: usize = 200;

/// Order, filter, and whether it is being typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct View {
    pub(super) sort: Sort,
    pub(super) filter: String,
    pub(super) typing: bool,
}

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Stay,
    Quit,
}

impl View {
    pub(super) fn new(sort: Sort, filter: String) -> Self {
        Self {
            sort,
            filter,
            typing: false,
        }
    }

    /// The overview with the queues that are wanted, in their order.
    pub(super) fn arranged(&self, mut overview: Overview) -> Overview {
        overview.queues.retain(|row| row.name.contains(&self.filter));
        let change = |row: &Row| row.change_per_second.unwrap_or_default().abs();
        // Stable, and the server sends them by name: equal ones stay where they are.
        match self.sort {
            Sort::Depth => overview.queues.sort_by_key(|row| Reverse(row.depth())),
            Sort::Rate => overview.queues.sort_by(|a, b| change(b).total_cmp(&change(a))),
            Sort::Name => overview.queues.sort_by(|a, b| a.name.cmp(&b.name)),
        }
        overview
    }

    /// What came from the keyboard at once. A key that sends several bytes, such as an arrow, begins with an escape and means
    /// nothing; an escape alone takes the filter away.
    pub(super) fn typed(&mut self, bytes: &[u8]) -> Act {
        const ESCAPE: u8 = 0x1b;
        match bytes {
            [ESCAPE] => {
                self.typing = false;
                self.filter.clear();
                return Act::Stay;
            }
            [ESCAPE, ..] => return Act::Stay,
            _ => {}
        }
        let text = String::from_utf8_lossy(bytes);
        for c in text.chars() {
            if self.key(c) == Act::Quit {
                return Act::Quit;
            }
        }
        Act::Stay
    }

    fn key(&mut self, c: char) -> Act {
        match c {
            // ctrl-C and ctrl-D, which the terminal leaves to us.
            '\u{3}' | '\u{4}' => return Act::Quit,
            c if self.typing => self.edit(c),
            'q' | 'Q' => return Act::Quit,
            'd' => self.sort = Sort::Depth,
            'r' => self.sort = Sort::Rate,
            'n' => self.sort = Sort::Name,
            '/' => self.typing = true,
            _ => {}
        }
        Act::Stay
    }

    fn edit(&mut self, c: char) {
        match c {
            '\r' | '\n' => self.typing = false,
            '\u{8}' | '\u{7f}' => {
                self.filter.pop();
            }
            // ctrl-U.
            '\u{15}' => self.filter.clear(),
            c if c.is_control() => {}
            c if self.filter.chars().count() < FILTER_CHARS_MAX => self.filter.push(c),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::printer::tests_overview as overview;

    fn names(view: &View) -> String {
        let overview = overview(&[("ab", 1, 0.0), ("b", 3, -9.0), ("c", 3, 2.0)]);
        let names = view.arranged(overview).queues.into_iter().map(|row| row.name);
        names.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn keys_choose_the_order_and_what_is_shown() {
        let mut view = View::new(Sort::Depth, String::new());
        assert_eq!(names(&view), "b c ab");
        view.typed(b"r");
        assert_eq!(names(&view), "b c ab");
        view.typed(b"n");
        assert_eq!(names(&view), "ab b c");
        view.typed(b"/b");
        assert_eq!((names(&view).as_str(), view.typing), ("ab b", true));
        // In a filter, keys are letters.
        assert_eq!(view.typed(b"q"), Act::Stay);
        assert_eq!(view.filter, "bq");
        view.typed(b"\x7f\r");
        assert_eq!((view.filter.as_str(), view.typing), ("b", false));
        view.typed(b"\x1b[A");
        assert_eq!(view.filter, "b");
        view.typed(b"\x1b");
        assert_eq!(view.filter, "");
        assert_eq!(view.typed(b"q"), Act::Quit);
    }

    #[test]
    fn ctrl_c_ends_also_while_a_filter_is_typed() {
        let mut view = View::new(Sort::Name, String::new());
        view.typed(b"/\x01\x02");
        assert_eq!(view.filter, "");
        assert_eq!(view.typed(b"\x03"), Act::Quit);
    }

    #[test]
    fn a_filter_has_an_end() {
        let mut view = View::new(Sort::Name, String::new());
        view.typed(b"/");
        view.typed("\u{e4}".repeat(1_000).as_bytes());
        assert_eq!(view.filter.chars().count(), FILTER_CHARS_MAX);
    }
}
