//! Lines and blocks: what is indented further belongs to the line above it.

use crate::Place;
use crate::error::{ParseError, Result};
use crate::parse::token::{Token, tokens};

/// A line, and the block below it.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) tokens: Vec<(Token, Place)>,
    /// Behind the last token.
    pub(super) end: Place,
    pub(super) block: Vec<Row>,
}

impl Row {
    pub(super) fn place(&self) -> Place {
        self.tokens.first().map_or(self.end, |(_, place)| *place)
    }
}

/// Reads a file into rows. Comments and empty lines are left out.
pub(super) fn rows(text: &str) -> Result<Vec<Row>> {
    // Each open block with the indentation of its rows; the first one is the file.
    let mut open: Vec<(u32, Vec<Row>)> = vec![(0, Vec::new())];
    for (number, line) in (1..).zip(text.lines()) {
        let line = without_comment(line).trim_end();
        let bare = line.trim_start_matches(' ');
        if bare.is_empty() {
            continue;
        }
        let indent = (line.len() - bare.len()) as u32;
        let start = Place { line: number, column: indent + 1 };
        if bare.starts_with('\t') {
            return Err(ParseError::unexpected(start, "a tab", "spaces"));
        }
        let row = Row {
            tokens: tokens(bare, number, indent)?,
            end: Place { line: number, column: line.chars().count() as u32 + 1 },
            block: Vec::new(),
        };
        while open.last().is_some_and(|(depth, _)| indent < *depth) {
            close(&mut open);
        }
        let (depth, rows) = match open.last_mut() {
            Some((depth, rows)) => (*depth, rows),
            None => continue,
        };
        // Only a line that has no block yet may have one, and all its lines are indented alike.
        let begins_block = rows.last().is_some_and(|above| above.block.is_empty());
        if depth == indent {
            rows.push(row);
        } else if begins_block {
            open.push((indent, vec![row]));
        } else {
            let found = format!("a line that is indented by {indent}");
            let expected = format!("one that is indented by {depth}");
            return Err(ParseError::unexpected(start, found, expected));
        }
    }
    while open.len() > 1 {
        close(&mut open);
    }
    Ok(open.pop().map(|(_, rows)| rows).unwrap_or_default())
}

/// Ends the innermost block.
fn close(open: &mut Vec<(u32, Vec<Row>)>) {
    let Some((_, block)) = open.pop() else { return };
    if let Some(above) = open.last_mut().and_then(|(_, rows)| rows.last_mut()) {
        above.block.extend(block);
    }
}

/// A `#` begins a comment, unless it stands in a text.
fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    for (at, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '#' if !quoted => return line.get(..at).unwrap_or(line),
            _ => {}
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_indented_belongs_to_the_line_above() {
        let rows = rows("a\n  b\n    c\n  d # not e\n\n# f\ng\n").unwrap();
        assert_eq!((rows.len(), rows[0].block.len(), rows[0].block[0].block.len()), (2, 2, 1));
        assert_eq!(rows[0].block[1].tokens.len(), 1);
    }

    #[test]
    fn a_first_line_may_not_be_indented_and_a_block_keeps_its_indentation() {
        assert!(
            rows("  a\n")
                .unwrap_err()
                .to_string()
                .starts_with("1:3: found a line that is indented by 2, expected one")
        );
        let error = rows("a\n    b\n  c\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "3:3: found a line that is indented by 2, expected one that is indented by 0"
        );
        assert!(rows("a\n\tb\n").is_err());
    }
}
