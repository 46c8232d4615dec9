//! From text to a scenario.

mod cursor;
mod expectation;
mod function;
mod lines;
mod setting;
mod statement;
mod token;

pub(crate) use statement::{call_word, no_number};

use crate::check::check;
use crate::error::{ParseError, Result};
use crate::parse::cursor::Cursor;
use crate::{Capability, Scenario};

/// Reads a scenario.
///
/// # Errors
/// The first thing that is wrong with it: a word that is not known or stands in a wrong place, or a program that cannot be, as one
/// that uses a name that holds nothing.
pub fn parse(text: &str) -> Result<Scenario> {
    let mut scenario = Scenario::default();
    for row in &lines::rows(text)? {
        let mut cursor = Cursor::new(row);
        let place = cursor.place();
        if cursor.eat("fn") {
            scenario.functions.push(function::function(&mut cursor, row)?);
        } else if cursor.eat("set") {
            scenario.settings.push(setting::setting(&mut cursor)?);
            cursor.end()?;
        } else if cursor.eat("requires") {
            let all = Capability::ALL;
            scenario.requires.push(cursor.one_of(all, Capability::word, Capability::WHAT)?);
            while cursor.eat(",") {
                scenario.requires.push(cursor.one_of(all, Capability::word, Capability::WHAT)?);
            }
            cursor.end()?;
        } else if cursor.eat("skip") {
            if scenario.skip.is_some() {
                return Err(ParseError::impossible(place, "a second `skip`"));
            }
            scenario.skip = Some(cursor.text("the reason in quotes")?);
            cursor.end()?;
        } else {
            scenario.statements.push(statement::statement(row, true)?);
        }
    }
    check(&scenario)?;
    Ok(scenario)
}
