//! Functions.

use crate::error::{ParseError, Result};
use crate::parse::cursor::Cursor;
use crate::parse::lines::Row;
use crate::parse::token::Token;
use crate::program::{How, InPlace, Line, Made, Op, Room};
use crate::{Binary, Function, ModeName, Name, Old, Operand, Unary, When};

const MADE: &str = "an operation (`add`, `sub`, `mul`, `min`, `max`, `neg`, `relu`, `square`, `mix`, `matmul`, `sum`, `copy`), \
                    a tensor (`[4] 1`, `empty [4]`, `empty like x`), `view`, `saved`, `upload` or `draw`";
const LINE: &str = "a line of a function (`y = ...`, `add! x y`, `drop`, `save`, `fork`, `join`, `host-wait`, `fail`, `panic`, \
                    `hide`, `foreign`, `drop-callers`, `scratch`, `poll`)";

/// What stands behind `fn`.
pub(super) fn function(cursor: &mut Cursor<'_>, row: &Row) -> Result<Function> {
    let name = cursor.name("the name of a function")?;
    cursor.demand("(")?;
    let mut inputs: Vec<Name> = Vec::new();
    while !cursor.eat(")") {
        if !inputs.is_empty() && !cursor.eat(",") {
            return Err(cursor.expected("`,` or `)`"));
        }
        inputs.push(cursor.name("the name of an input")?);
    }
    let mut outputs = Vec::new();
    if cursor.eat("->") {
        outputs.push(cursor.name("the name of an output")?);
        while cursor.eat(",") {
            outputs.push(cursor.name("the name of an output")?);
        }
    }
    let (mut old_outputs, mut mode) = (None, None);
    while cursor.eat("with") {
        if cursor.eat("old") {
            old_outputs = Some(old(cursor)?);
        } else if cursor.eat("mode") {
            let all = [ModeName::Trees, ModeName::OnePool, ModeName::Eager, ModeName::Auto];
            mode = Some(cursor.one_of(&all, ModeName::word, "a mode")?);
        } else {
            return Err(cursor.expected("`old` or `mode`"));
        }
    }
    if !cursor.is_done() {
        let expected = if outputs.is_empty() {
            "`->`, `with` or the end of the line"
        } else {
            "`,`, `with` or the end of the line"
        };
        return Err(cursor.expected(expected));
    }
    let body = row.block.iter().map(line).collect::<Result<Vec<_>>>()?;
    Ok(Function { name, inputs, outputs, old: old_outputs, mode, body })
}

pub(super) fn old(cursor: &mut Cursor<'_>) -> Result<Old> {
    cursor.one_of(&[Old::Error, Old::Copy, Old::Keep], Old::word, "a rule for old outputs")
}

pub(super) fn mode_name(cursor: &mut Cursor<'_>) -> Result<ModeName> {
    cursor.one_of(&ModeName::OF_SETUPS, ModeName::word, "a mode")
}

fn line(row: &Row) -> Result<Line> {
    let mut cursor = Cursor::new(row);
    let place = cursor.place();
    let side = cursor.eat("on").then(|| cursor.name("the name of a side stream")).transpose()?;
    if side.is_some() {
        cursor.demand(":")?;
    }
    let op = op(&mut cursor)?;
    if side.is_some() && !matches!(op, Op::Let(..) | Op::InPlace(_)) {
        return Err(ParseError::impossible(place, "only work can be on a side stream"));
    }
    cursor.end()?;
    Ok(Line { place, side, op })
}

fn op(cursor: &mut Cursor<'_>) -> Result<Op> {
    if cursor.is_second("=") {
        let name = cursor.name("the name of a tensor")?;
        cursor.demand("=")?;
        return Ok(Op::Let(name, made(cursor)?));
    }
    if let Some(in_place) = in_place(cursor)? {
        return Ok(Op::InPlace(in_place));
    }
    let tensor = "the name of a tensor";
    if cursor.eat("drop") {
        return cursor.name(tensor).map(Op::Drop);
    }
    if cursor.eat("save") {
        return cursor.name(tensor).map(Op::Save);
    }
    if cursor.eat("hide") {
        return cursor.name(tensor).map(Op::Hide);
    }
    if cursor.eat("fork") {
        return cursor.name("the name of a side stream").map(Op::Fork);
    }
    if cursor.eat("join") {
        return cursor.name("the name of a side stream").map(Op::Join);
    }
    if cursor.eat("host-wait") {
        return Ok(Op::HostWait);
    }
    if cursor.eat("fail") {
        return when(cursor).map(Op::Fail);
    }
    if cursor.eat("panic") {
        return when(cursor).map(Op::Panic);
    }
    if cursor.eat("foreign") {
        return cursor.number("a number of bytes").map(Op::Foreign);
    }
    if cursor.eat("poll") {
        return Ok(Op::Poll);
    }
    if cursor.eat("scratch") {
        return Ok(Op::Scratch(cursor.number("a number of bytes")?, when(cursor)?));
    }
    if cursor.eat("drop-callers") {
        return cursor.name("the name of a tensor or token of the program").map(Op::DropCallers);
    }
    Err(cursor.expected(LINE))
}

fn when(cursor: &mut Cursor<'_>) -> Result<When> {
    if !cursor.eat("on") {
        return Ok(When::Always);
    }
    cursor.demand("run")?;
    cursor.literal("which run of the body, counted from 1").map(When::Run)
}

/// `add! x y` and its kind, if such a thing stands here.
pub(super) fn in_place(cursor: &mut Cursor<'_>) -> Result<Option<InPlace>> {
    let Some(word) = cursor.word().and_then(|word| word.strip_suffix('!')) else { return Ok(None) };
    let unary = Unary::ALL.into_iter().find(|op| op.word() == word);
    let binary = Binary::ALL.into_iter().find(|op| op.word() == word);
    if unary.is_none() && binary.is_none() && !["mix", "copy"].contains(&word) {
        let expected = "an operation in place: `add!`, `sub!`, `mul!`, `min!`, `max!`, `neg!`, `relu!`, `square!`, `mix!` or `copy!`";
        return Err(cursor.expected(expected));
    }
    cursor.eat(&format!("{word}!"));
    let to = cursor.name("the name of a tensor")?;
    let how = match (unary, binary) {
        (Some(unary), _) => How::Unary(unary),
        (_, Some(binary)) => How::Binary(binary, operand(cursor)?),
        _ if word == "mix" => How::Mix(operand(cursor)?, operand(cursor)?),
        _ => How::Copy(operand(cursor)?),
    };
    Ok(Some(InPlace { how, to }))
}

fn operand(cursor: &mut Cursor<'_>) -> Result<Operand> {
    if cursor.is_float() {
        return cursor.float("a number").map(Operand::Literal);
    }
    cursor.name("the name of a tensor or a number").map(Operand::Name)
}

fn made(cursor: &mut Cursor<'_>) -> Result<Made> {
    let tensor = "the name of a tensor";
    if cursor.is_new_tensor() {
        if cursor.is("rand") {
            return Err(cursor.expected("`draw [4]`, which draws from the generator of the engine"));
        }
        return cursor.new_tensor().map(Made::New);
    }
    let Some(Token::Word(word)) = cursor.peek() else { return Err(cursor.expected(MADE)) };
    let unary = Unary::ALL.into_iter().find(|op| op.word() == word);
    let binary = Binary::ALL.into_iter().find(|op| op.word() == word);
    let words = ["mix", "matmul", "sum", "copy", "empty", "view", "saved", "upload", "draw"];
    if unary.is_none() && binary.is_none() && !words.contains(&word.as_str()) {
        return Err(cursor.expected(MADE));
    }
    cursor.eat(word);
    if let Some(unary) = unary {
        return Ok(Made::Unary(unary, cursor.name(tensor)?));
    }
    if let Some(binary) = binary {
        return Ok(Made::Binary(binary, cursor.name(tensor)?, operand(cursor)?));
    }
    Ok(match word.as_str() {
        "mix" => Made::Mix(cursor.name(tensor)?, operand(cursor)?, operand(cursor)?),
        "matmul" => Made::MatMul(cursor.name(tensor)?, cursor.name(tensor)?),
        "sum" => Made::Sum(cursor.name(tensor)?),
        "copy" => Made::Copy(cursor.name(tensor)?),
        "empty" if cursor.eat("like") => Made::Empty(Room::Like(cursor.name(tensor)?)),
        "empty" => Made::Empty(Room::Of(cursor.shape()?)),
        "view" => Made::View(cursor.view()?),
        "saved" => Made::Saved(cursor.literal("which saved tensor, counted from 0")?),
        "upload" => Made::Upload(cursor.name("the name of a host input")?, cursor.shape()?),
        _ => Made::Draw(cursor.shape()?),
    })
}
