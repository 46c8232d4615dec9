//! Going through the tokens of a line, with errors that say what may stand there.

use crate::error::{ParseError, Result};
use crate::parse::lines::Row;
use crate::parse::token::Token;
use crate::program::Arithmetic;
use crate::{Fill, Name, NewTensor, Number, Place, Shape, View};

/// Words that mean something of their own, so that nothing else can be called so.
const RESERVED: [&str; 12] =
    ["call", "forward", "backward", "rand", "count", "view", "clone", "give", "host", "draw", "in", "of"];

/// A place in a line.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    row: &'a Row,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(row: &'a Row) -> Self {
        Self { row, at: 0 }
    }

    pub(super) fn peek(&self) -> Option<&'a Token> {
        self.row.tokens.get(self.at).map(|(token, _)| token)
    }

    /// Where the next token stands, or where the line ends.
    pub(super) fn place(&self) -> Place {
        self.row.tokens.get(self.at).map_or(self.row.end, |(_, place)| *place)
    }

    pub(super) fn is_done(&self) -> bool {
        self.at >= self.row.tokens.len()
    }

    fn next(&mut self) -> Option<&'a Token> {
        let token = self.peek()?;
        self.at += 1;
        Some(token)
    }

    /// The error that something else was expected here.
    pub(super) fn expected(&self, expected: &str) -> ParseError {
        let found = self.peek().map_or_else(|| "the end of the line".to_owned(), Token::shown);
        ParseError::unexpected(self.place(), found, expected)
    }

    /// Nothing more may stand in the line, nor below it.
    pub(super) fn end(&self) -> Result<()> {
        if !self.is_done() {
            return Err(self.expected("the end of the line"));
        }
        self.no_block()
    }

    pub(super) fn no_block(&self) -> Result<()> {
        match self.row.block.first() {
            None => Ok(()),
            Some(below) => {
                let expected = "no block below this statement: a line that is not indented further";
                Err(ParseError::unexpected(below.place(), "an indented line", expected))
            }
        }
    }

    /// The next word, if it is one.
    pub(super) fn word(&self) -> Option<&'a str> {
        match self.peek() {
            Some(Token::Word(word)) => Some(word),
            _ => None,
        }
    }

    /// Goes past a word or a sign, if it stands here.
    pub(super) fn eat(&mut self, wanted: &str) -> bool {
        let is_it = match self.peek() {
            Some(Token::Word(word)) => word == wanted,
            Some(Token::Sign(sign)) => *sign == wanted,
            _ => false,
        };
        self.at += usize::from(is_it);
        is_it
    }

    pub(super) fn is(&self, wanted: &str) -> bool {
        let mut copy = *self;
        copy.eat(wanted)
    }

    /// Whether the token behind the next one is this.
    pub(super) fn is_second(&self, wanted: &str) -> bool {
        let mut copy = *self;
        copy.at += 1;
        copy.is(wanted)
    }

    pub(super) fn demand(&mut self, wanted: &str) -> Result<()> {
        if self.eat(wanted) { Ok(()) } else { Err(self.expected(&format!("`{wanted}`"))) }
    }

    /// A word of a list.
    pub(super) fn one_of<T: Copy>(
        &mut self,
        all: &[T],
        word: impl Fn(T) -> &'static str,
        what: &str,
    ) -> Result<T> {
        let found = self.word().and_then(|found| all.iter().copied().find(|one| word(*one) == found));
        match found {
            Some(one) => {
                self.at += 1;
                Ok(one)
            }
            None => {
                let words: Vec<String> = all.iter().map(|one| format!("`{}`", word(*one))).collect();
                Err(self.expected(&format!("{what}: {}", words.join(", "))))
            }
        }
    }

    pub(super) fn name(&mut self, what: &str) -> Result<Name> {
        let place = self.place();
        match self.word() {
            Some(word) if !word.ends_with('!') && !RESERVED.contains(&word) => {
                self.at += 1;
                Ok(Name { text: word.to_owned(), place })
            }
            Some(word) if RESERVED.contains(&word) => {
                Err(self.expected(&format!("{what}, which cannot be called `{word}`")))
            }
            _ => Err(self.expected(what)),
        }
    }

    pub(super) fn text(&mut self, what: &str) -> Result<String> {
        match self.peek() {
            Some(Token::Text(text)) => {
                self.at += 1;
                Ok(text.clone())
            }
            _ => Err(self.expected(what)),
        }
    }

    /// A number as it is written, without names.
    pub(super) fn literal(&mut self, what: &str) -> Result<u64> {
        match self.peek() {
            Some(Token::Number(text)) => match whole(text) {
                Some(number) => {
                    self.at += 1;
                    Ok(number)
                }
                None => Err(self.expected(what)),
            },
            _ => Err(self.expected(what)),
        }
    }

    /// A number with a point and a sign.
    pub(super) fn float(&mut self, what: &str) -> Result<f32> {
        let start = *self;
        let negative = self.eat("-");
        let value = match self.next() {
            Some(Token::Number(text)) => text.parse::<f32>().ok(),
            _ => None,
        };
        match value {
            Some(value) => Ok(if negative { -value } else { value }),
            None => {
                *self = start;
                Err(self.expected(what))
            }
        }
    }

    pub(super) fn is_float(&self) -> bool {
        matches!(self.peek(), Some(Token::Number(_)) | Some(Token::Sign("-")))
    }

    /// A number: products before sums, from left to right.
    pub(super) fn number(&mut self, what: &str) -> Result<Number> {
        let mut left = self.product(what)?;
        loop {
            let how = match self.peek() {
                Some(Token::Sign("+")) => Arithmetic::Add,
                Some(Token::Sign("-")) => Arithmetic::Subtract,
                _ => return Ok(left),
            };
            self.at += 1;
            left = Number::Of(Box::new(left), how, Box::new(self.product("a number")?));
        }
    }

    fn product(&mut self, what: &str) -> Result<Number> {
        let mut left = self.factor(what)?;
        loop {
            let how = match self.peek() {
                Some(Token::Sign("*")) => Arithmetic::Multiply,
                Some(Token::Sign("/")) => Arithmetic::Divide,
                _ => return Ok(left),
            };
            self.at += 1;
            let place = self.place();
            let right = self.factor("a number")?;
            if how == Arithmetic::Divide && right.known() == Some(0) {
                return Err(ParseError::impossible(place, "nothing can be divided by zero"));
            }
            left = Number::Of(Box::new(left), how, Box::new(right));
        }
    }

    fn factor(&mut self, what: &str) -> Result<Number> {
        match self.peek() {
            Some(Token::Number(_)) => self.literal(&format!("{what} without a point")).map(Number::Literal),
            Some(Token::Word(_)) => self.name(what).map(Number::Name),
            Some(Token::Sign("(")) => {
                self.at += 1;
                let inner = self.number("a number")?;
                self.demand(")")?;
                Ok(inner)
            }
            _ => Err(self.expected(what)),
        }
    }

    /// `[2, n]`, or `[]` of a tensor that has no dimensions and one element.
    pub(super) fn shape(&mut self) -> Result<Shape> {
        if !self.eat("[") {
            return Err(self.expected("a shape (`[4]`, `[2, n]`)"));
        }
        let mut shape = Vec::new();
        if self.eat("]") {
            return Ok(shape);
        }
        loop {
            shape.push(self.number("a number of elements")?);
            if self.eat("]") {
                return Ok(shape);
            }
            if !self.eat(",") {
                return Err(self.expected("`,` or `]`"));
            }
        }
    }

    /// Whether a tensor with contents stands here.
    pub(super) fn is_new_tensor(&self) -> bool {
        self.is("[") || self.is("rand") || self.is("count")
    }

    /// `[4] 1`, `[3] 1 2 3`, `rand [4]` or `count [4]`, each perhaps `misaligned`.
    pub(super) fn new_tensor(&mut self) -> Result<NewTensor> {
        let place = self.place();
        let random = self.eat("rand");
        let counting = !random && self.eat("count");
        if !random && !counting && !self.is("[") {
            return Err(self.expected("a tensor (`[4] 1`, `rand [4]`, `count [4]`)"));
        }
        let shape = self.shape()?;
        let fill = if random {
            Fill::Random
        } else if counting {
            Fill::Counting
        } else {
            let mut values = vec![self.float("a value, or several")?];
            while self.is_float() {
                values.push(self.float("a value")?);
            }
            match values[..] {
                [value] => Fill::Same(value),
                _ => Fill::Values(values),
            }
        };
        Ok(NewTensor { shape, fill, misaligned: self.eat("misaligned"), place })
    }

    /// What stands behind `view`.
    pub(super) fn view(&mut self) -> Result<View> {
        let of = self.name("the name of a tensor")?;
        let at = self.eat("at").then(|| self.number("where the view begins")).transpose()?;
        let step = self.eat("step").then(|| self.number("a number of elements")).transpose()?;
        let shape = self.eat("shape").then(|| self.shape()).transpose()?;
        let strides = self.eat("strides").then(|| self.shape()).transpose()?;
        Ok(View { of, at, step, shape, strides })
    }
}

/// A whole number, perhaps with a unit.
fn whole(text: &str) -> Option<u64> {
    let units = [('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30)];
    match units.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(*unit)?, *bytes))) {
        Some((number, bytes)) => number.parse::<u64>().ok()?.checked_mul(bytes),
        None => text.parse().ok(),
    }
}
