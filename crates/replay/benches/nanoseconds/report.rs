//! The figures, for people and for programs.

use std::fmt::Write as _;

use crate::rows::{Column, Row};

/// How long the ways of taking outputs take against the reference path.
fn ratio(row: &Row, column: Column, empty: f64) -> f64 {
    row.median(column, empty) / row.median(Column::Reference, empty)
}

/// A table with a line for each row.
pub(crate) fn table(rows: &[Row], empty: f64) -> String {
    let calls = rows.iter().map(Row::calls).min().unwrap_or(0);
    let mut text = format!(
        "replay on the simulated device's null launch: ns, medians of {calls} calls each, without the {empty:.0} ns of the clock\n\n"
    );
    let _ = writeln!(
        text,
        "{:37}{:>8}{:>9}{:>12}{:>13}{:>11}{:>17}{:>18}",
        "",
        "null",
        "dropped",
        "one by one",
        "all at once",
        "reference",
        "1-by-1/reference",
        "at once/reference"
    );
    let mut before = "";
    for row in rows {
        if row.what != before && !before.is_empty() {
            text.push('\n');
        }
        before = row.what;
        let _ = write!(text, "{:30}{:>7}", row.what, row.count);
        for (column, width) in Column::ALL.into_iter().zip([8, 9, 12, 13, 11]) {
            let _ = write!(text, "{:>width$.0}", row.median(column, empty));
        }
        let _ = writeln!(
            text,
            "{:>17.3}{:>18.3}",
            ratio(row, Column::OneByOne, empty),
            ratio(row, Column::AllAtOnce, empty)
        );
    }
    text
}

/// The same as JSON: an object with `unit`, `clock` (what was subtracted), and `rows`.
pub(crate) fn json(rows: &[Row], empty: f64) -> String {
    let lines: Vec<_> = rows.iter().map(|row| line(row, empty)).collect();
    format!("{{\"unit\": \"ns\", \"clock\": {empty:.1}, \"rows\": [\n  {}\n]}}\n", lines.join(",\n  "))
}

fn line(row: &Row, empty: f64) -> String {
    let mut text =
        format!("{{\"what\": \"{}\", \"count\": {}, \"calls\": {}", row.what, row.count, row.calls());
    for column in Column::ALL {
        let _ = write!(text, ", \"{}\": {:.1}", column.name(), row.median(column, empty));
    }
    for column in [Column::OneByOne, Column::AllAtOnce] {
        let _ = write!(text, ", \"{}_to_reference\": {:.4}", column.name(), ratio(row, column, empty));
    }
    text.push('}');
    text
}
