//! How text is laid out: pairs, columns, payloads. All of it safe to show on a terminal.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Write};

use super::plain::{directed, printable};

/// One `name  value` a line, the values aligned and printable.
pub(super) fn pairs(rows: &[(&str, &dyn Display)], out: &mut dyn Write) -> io::Result<()> {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    rows.iter()
        .try_for_each(|(name, value)| writeln!(out, "{name:width$}  {}", printable(&value.to_string())))
}

/// Columns of numbers to the right, others to the left, all printable. No header without rows.
pub(super) fn columns<const N: usize>(header: [&str; N], rows: &[[String; N]], out: &mut dyn Write) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let rows = rows.iter();
    let rows: Vec<[Cow<'_, str>; N]> = rows.map(|row| row.each_ref().map(|cell| printable(cell))).collect();
    let header = header.map(Cow::Borrowed);
    let width: [usize; N] = std::array::from_fn(|i| {
        let cells = rows.iter().chain([&header]);
        cells.map(|row| row[i].chars().count()).max().unwrap_or_default()
    });
    let is_number = |cell: &str| !cell.is_empty() && cell.bytes().all(|byte| byte.is_ascii_digit());
    let numbers: [bool; N] = std::array::from_fn(|i| i > 0 && rows.iter().all(|row| is_number(&row[i])));
    for row in [&header].into_iter().chain(&rows) {
        for (i, cell) in row.iter().enumerate() {
            let gap = if i > 0 { "  " } else { "" };
            let width = width[i];
            match numbers[i] {
                true => write!(out, "{gap}{cell:>width$}")?,
                // Nothing behind the last one.
                false if i + 1 == N => write!(out, "{gap}{cell}")?,
                false => write!(out, "{gap}{cell:width$}")?,
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Bytes that a terminal shows as they are. Control characters could move its cursor and hide what was printed. Lines after
/// the first stand behind `indent`, below it, so that none can pass for one of ours.
pub(super) fn lines_of_text(bytes: &[u8], indent: &str) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?.replace("\r\n", "\n");
    let is_text = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    text.chars()
        .all(is_text)
        .then(|| directed(&text).replace('\n', &format!("\n{indent}")))
}
