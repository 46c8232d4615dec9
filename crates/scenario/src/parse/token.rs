//! The words of a line.

use winnow::ascii::{digit1, space0};
use winnow::combinator::{alt, delimited, not, opt, preceded, repeat};
use winnow::prelude::*;
use winnow::stream::{LocatingSlice, Location};
use winnow::token::{any, one_of, take_till, take_while};

use crate::Place;
use crate::error::{ParseError, Result};

/// One word of a line, a number, a text in quotes or a sign.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A word; one that ends in `!` writes in place.
    Word(String),
    /// A number as it is written.
    Number(String),
    /// What stands between two quotes.
    Text(String),
    /// A sign.
    Sign(&'static str),
}

impl Token {
    /// The token as messages show it.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Word(text) | Self::Number(text) => format!("`{text}`"),
            Self::Text(text) => format!("`\"{text}\"`"),
            Self::Sign(sign) => format!("`{sign}`"),
        }
    }
}

/// Longer ones first, so that none is read as the beginning of another.
const SIGNS: [&str; 18] =
    ["->", "==", "!=", "<=", ">=", "=", "<", ">", "(", ")", "[", "]", ",", "+", "-", "*", "/", ":"];

type Input<'i> = LocatingSlice<&'i str>;

/// Reads the tokens of a line that has no indentation any more, each with its column in the file.
pub(super) fn tokens(text: &str, line: u32, indent: u32) -> Result<Vec<(Token, Place)>> {
    let column = |byte: usize| {
        let before = text.get(..byte).unwrap_or(text);
        Place { line, column: indent + before.chars().count() as u32 + 1 }
    };
    let mut input = LocatingSlice::new(text);
    let mut found = Vec::new();
    loop {
        let _: winnow::Result<&str> = space0.parse_next(&mut input);
        if input.is_empty() {
            return Ok(found);
        }
        let start = Location::current_token_start(&input);
        match token.parse_next(&mut input) {
            Ok(token) => found.push((token, column(start))),
            Err(_) => {
                let bad: String = input.chars().take(1).collect();
                let expected = "a word, a number, a text in quotes or a sign";
                return Err(ParseError::unexpected(column(start), format!("`{bad}`"), expected));
            }
        }
    }
}

fn token(input: &mut Input<'_>) -> winnow::Result<Token> {
    alt((word, number, text, sign)).parse_next(input)
}

/// Letters, digits and `_`; a `-` joins two parts if a letter follows.
fn word(input: &mut Input<'_>) -> winnow::Result<Token> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let joined = ('-', one_of(|c: char| c.is_ascii_alphabetic()), take_while(0.., part)).take();
    (
        one_of(|c: char| c.is_ascii_alphabetic() || c == '_'),
        take_while(0.., part),
        repeat::<_, _, (), _, _>(0.., joined),
        opt(('!', not('='))),
    )
        .take()
        .map(|word: &str| Token::Word(word.to_owned()))
        .parse_next(input)
}

/// Digits, perhaps with a point and more of them, or with an exponent; `K`, `M` and `G` are units of bytes.
fn number(input: &mut Input<'_>) -> winnow::Result<Token> {
    let exponent = (one_of(['e', 'E']), opt('-'), digit1);
    (digit1, opt(preceded('.', digit1)), opt(exponent), opt(one_of(['K', 'M', 'G'])))
        .take()
        .map(|number: &str| Token::Number(number.to_owned()))
        .parse_next(input)
}

fn text(input: &mut Input<'_>) -> winnow::Result<Token> {
    delimited('"', take_till(0.., '"'), any.verify(|c| *c == '"'))
        .map(|text: &str| Token::Text(text.to_owned()))
        .parse_next(input)
}

fn sign(input: &mut Input<'_>) -> winnow::Result<Token> {
    for mut sign in SIGNS {
        let taken: winnow::Result<&str> = sign.parse_next(input);
        if taken.is_ok() {
            return Ok(Token::Sign(sign));
        }
    }
    winnow::combinator::fail.parse_next(input)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        tokens(text, 1, 0).unwrap().iter().map(|(token, _)| token.shown()).collect()
    }

    #[test]
    fn words_numbers_texts_and_signs_are_told_apart() {
        assert_eq!(shown("y = add! x_1 2.5e-3"), ["`y`", "`=`", "`add!`", "`x_1`", "`2.5e-3`"]);
        assert_eq!(shown("one-pool n-1 64K"), ["`one-pool`", "`n`", "`-`", "`1`", "`64K`"]);
        assert_eq!(shown("a->b<=c \"x y\""), ["`a`", "`->`", "`b`", "`<=`", "`c`", "`\"x y\"`"]);
    }

    #[test]
    fn what_is_none_of_them_is_refused_at_its_column() {
        let error = tokens("ü = 1", 3, 2).unwrap_err();
        assert_eq!(
            error.to_string(),
            "3:3: found `ü`, expected a word, a number, a text in quotes or a sign"
        );
        assert_eq!(tokens("a = \"b", 1, 0).unwrap_err().place.column, 5);
    }

    #[test]
    fn each_token_has_its_column() {
        let columns: Vec<u32> = tokens("a  bc[1]", 1, 4).unwrap().iter().map(|of| of.1.column).collect();
        assert_eq!(columns, [5, 8, 10, 11, 12]);
    }
}
