//! Statements of the program.

use graphgrove_device::Call as DriverCall;

use crate::bound::{MOST_THREADS, too_many_threads};
use crate::error::{ParseError, Result};
use crate::parse::cursor::Cursor;
use crate::parse::expectation::{expectation, measure};
use crate::parse::function::in_place;
use crate::parse::lines::Row;
use crate::program::{Arg, Call, CallKind, Fails, FaultKind, FaultPlan, MoveTo, Statement, What};
use crate::{ErrorKind, Name, Place};

const STATEMENT: &str = "a statement: `x = ...`, `call`, `forward`, `backward`, `discard`, `drop`, `step`, `size`, `param`, `stream`, \
                         `host`, `move`, `write`, `repeat`, `each`, `choose`, `threads`, `try`, `check`, `expect`, `note`, `fault`, \
                         `clear-faults`, `reset`, `shut-down`, `use-engine`, `enqueue`, `order`, `seed`, `suspend`, `resume`; or `fn`, \
                         `set`, `requires`, `skip` at the top";
const BOUND: &str =
    "a call (`call`, `forward`, `backward`), a tensor (`[4] 1`, `rand [4]`, `count [4]`), `view` or `clone`";

/// Reads one statement, with the block below it.
pub(super) fn statement(row: &Row, may_try: bool) -> Result<Statement> {
    let mut cursor = Cursor::new(row);
    let place = cursor.place();
    let tries = may_try && cursor.eat("try");
    let what = what(&mut cursor, row)?;
    cursor_done(&cursor, &what)?;
    Ok(Statement { place, tries, what })
}

/// Only statements that run a block may have one.
fn cursor_done(cursor: &Cursor<'_>, what: &What) -> Result<()> {
    match what {
        What::Repeat { .. } | What::Each { .. } | What::Threads { .. } | What::Choose(_) => {
            if cursor.is_done() { Ok(()) } else { Err(cursor.expected("the end of the line")) }
        }
        _ => cursor.end(),
    }
}

fn block(row: &Row) -> Result<Vec<Statement>> {
    if row.block.is_empty() {
        let place = Place { line: row.end.line + 1, column: 1 };
        return Err(ParseError::unexpected(place, "no block", "a block: lines that are indented further"));
    }
    row.block.iter().map(|row| statement(row, true)).collect()
}

fn what(cursor: &mut Cursor<'_>, row: &Row) -> Result<What> {
    if let Some(what) = block_statement(cursor, row)? {
        return Ok(what);
    }
    if let Some(what) = plain_statement(cursor)? {
        return Ok(what);
    }
    let is_call = ["call", "forward", "backward"].iter().any(|word| cursor.is(word));
    if is_call {
        return call(cursor, Vec::new());
    }
    if cursor.word().is_some() && (cursor.is_second("=") || cursor.is_second(",")) {
        return bound(cursor);
    }
    Err(cursor.expected(STATEMENT))
}

fn block_statement(cursor: &mut Cursor<'_>, row: &Row) -> Result<Option<What>> {
    let word = |cursor: &mut Cursor<'_>, word| !cursor.is_second("=") && cursor.eat(word);
    if word(cursor, "repeat") {
        let times = cursor.number("how often")?;
        let turn = cursor.eat("as").then(|| cursor.name("a name for the turn")).transpose()?;
        return Ok(Some(What::Repeat { times, turn, body: block_of(cursor, row)? }));
    }
    if word(cursor, "threads") {
        let place = cursor.place();
        let count = cursor.number("how many")?;
        if let Some(count) = count.known().filter(|count| *count > MOST_THREADS) {
            return Err(ParseError::impossible(place, too_many_threads(count)));
        }
        let number = cursor.eat("as").then(|| cursor.name("a name for the thread's number")).transpose()?;
        return Ok(Some(What::Threads { count, number, body: block_of(cursor, row)? }));
    }
    if word(cursor, "each") {
        let name = cursor.name("a name for the number")?;
        cursor.demand("in")?;
        let mut over = vec![cursor.number("a number")?];
        while cursor.eat(",") {
            over.push(cursor.number("a number")?);
        }
        return Ok(Some(What::Each { name, over, body: block_of(cursor, row)? }));
    }
    if word(cursor, "choose") {
        return choose(cursor, row).map(Some);
    }
    Ok(None)
}

fn block_of(cursor: &Cursor<'_>, row: &Row) -> Result<Vec<Statement>> {
    if cursor.is_done() { block(row) } else { Err(cursor.expected("the end of the line")) }
}

/// The choices stand below, each begun by a line `either`.
fn choose(cursor: &Cursor<'_>, row: &Row) -> Result<What> {
    if !cursor.is_done() {
        return Err(cursor.expected("the end of the line"));
    }
    if row.block.is_empty() {
        block(row)?;
    }
    let choice = |row: &Row| {
        let mut cursor = Cursor::new(row);
        cursor.demand("either")?;
        block_of(&cursor, row)
    };
    row.block.iter().map(choice).collect::<Result<_>>().map(What::Choose)
}

fn plain_statement(cursor: &mut Cursor<'_>) -> Result<Option<What>> {
    if cursor.is_second("=") || cursor.is_second(",") {
        return Ok(None);
    }
    let tensor = "the name of a tensor";
    let start = *cursor;
    let Some(word) = cursor.word() else { return Ok(None) };
    cursor.eat(word);
    let what = match word {
        "size" => {
            let name = cursor.name("a name for the number")?;
            cursor.demand("=")?;
            if cursor.eat("random") {
                let place = cursor.place();
                let first = cursor.number("the least number")?;
                cursor.demand("to")?;
                let last = cursor.number("the largest number")?;
                if let (Some(first), Some(last)) = (first.known(), last.known())
                    && first > last
                {
                    return Err(ParseError::impossible(place, no_number(first, last)));
                }
                What::Random(name, first, last)
            } else {
                What::Size(name, cursor.number("a number or `random`")?)
            }
        }
        "param" => {
            let name = cursor.name("a name for the parameter")?;
            cursor.demand("=")?;
            What::Param(name, cursor.new_tensor()?)
        }
        "host" => {
            let name = cursor.name("a name for the host memory")?;
            cursor.demand("=")?;
            What::Host(name, cursor.new_tensor()?)
        }
        "stream" => What::Stream(cursor.name("a name for the stream")?),
        "discard" => What::Discard(cursor.name("the name of a token")?),
        "drop" => {
            let mut names = vec![cursor.name(tensor)?];
            while cursor.eat(",") {
                names.push(cursor.name(tensor)?);
            }
            What::Drop { names, elsewhere: cursor.eat("elsewhere") }
        }
        "step" => What::Step,
        "reset" => What::Reset,
        "shut-down" => What::ShutDown,
        "check" => What::Check,
        "suspend" => What::Suspend,
        "resume" => What::Resume,
        "clear-faults" => What::ClearFaults,
        "use-engine" => What::UseEngine(cursor.number("the number of an engine, counted from 1")?),
        "seed" => What::Seed(cursor.number("a seed")?),
        "move" => {
            let name = cursor.name("the name of a parameter")?;
            if cursor.eat("=") {
                What::Move(name, MoveTo::New(cursor.new_tensor()?))
            } else if cursor.eat("to") {
                What::Move(name, MoveTo::Tensor(cursor.name(tensor)?))
            } else if cursor.is_done() {
                What::Move(name, MoveTo::Same)
            } else {
                return Err(cursor.expected("`=`, `to` or the end of the line"));
            }
        }
        "write" => {
            let name = cursor.name("the name of a tensor, a parameter or host memory")?;
            cursor.demand("=")?;
            What::Write(name, cursor.new_tensor()?)
        }
        "fault" => What::Fault(fault(cursor)?),
        "enqueue" => {
            let Some(op) = in_place(cursor)? else {
                return Err(cursor.expected("an operation in place, as `add! x 1`"));
            };
            cursor.demand("on")?;
            What::Enqueue(op, cursor.name("the name of a stream")?)
        }
        "order" => {
            let first = cursor.name("the name of a stream")?;
            cursor.demand("before")?;
            What::Order { first, second: cursor.name("the name of a stream")? }
        }
        "expect" => What::Expect(expectation(cursor)?),
        "note" => {
            let name = cursor.name("a name for the number")?;
            cursor.demand("=")?;
            What::Note(name, measure(cursor)?)
        }
        _ => {
            *cursor = start;
            return Ok(None);
        }
    };
    Ok(Some(what))
}

/// What is said of a range that ends before it begins.
pub(crate) fn no_number(first: u64, last: u64) -> String {
    format!("no number is from {first} to {last}: the least one comes first")
}

fn fault(cursor: &mut Cursor<'_>) -> Result<FaultPlan> {
    let kind = cursor.one_of(FaultKind::ALL, FaultKind::word, FaultKind::WHAT)?;
    cursor.demand("at")?;
    let place = cursor.place();
    let call = match cursor.word() {
        Some(word) if cursor.eat(word) && word != "any" => match driver_call(word) {
            Some(call) => Some(call),
            None => {
                let all: Vec<String> = DriverCall::ALL.iter().map(|call| call_word(*call)).collect();
                let expected = format!("`any` or a call of the driver: {}", all.join(", "));
                return Err(ParseError::unexpected(place, format!("`{word}`"), expected));
            }
        },
        Some(_) => None,
        None => return Err(cursor.expected("`any` or a call of the driver")),
    };
    let nth = cursor.number("with which of them it fails, counted from 1")?;
    Ok(FaultPlan { kind, call, nth })
}

/// The word for a call of the driver.
pub(crate) fn call_word(call: DriverCall) -> String {
    call.name().replace(' ', "-")
}

fn driver_call(word: &str) -> Option<DriverCall> {
    DriverCall::ALL.iter().copied().find(|call| call_word(*call) == word)
}

/// `x = ...`, `a, b = call ...`
fn bound(cursor: &mut Cursor<'_>) -> Result<What> {
    let mut names = Vec::new();
    loop {
        let name = cursor.name("the name of a tensor, or `_`")?;
        names.push((name.text != "_").then_some(name));
        if !cursor.eat(",") {
            break;
        }
    }
    cursor.demand("=")?;
    if ["call", "forward", "backward"].iter().any(|word| cursor.is(word)) {
        return call(cursor, names);
    }
    if names.len() > 1 {
        return Err(cursor.expected("a call: `call`, `forward` or `backward`"));
    }
    let Some(name) = names.pop().flatten() else {
        return Err(cursor.expected("a call: `call`, `forward` or `backward`"));
    };
    if cursor.is_new_tensor() {
        return Ok(What::Let(name, cursor.new_tensor()?));
    }
    if cursor.eat("view") {
        return Ok(What::View(name, cursor.view()?));
    }
    if cursor.eat("clone") {
        return Ok(What::Clone(name, cursor.name("the name of a tensor")?));
    }
    if cursor.eat("draw") {
        return Ok(What::Draw(name, cursor.shape()?));
    }
    Err(cursor.expected(BOUND))
}

fn call(cursor: &mut Cursor<'_>, outputs: Vec<Option<Name>>) -> Result<What> {
    let is_forward = cursor.eat("forward");
    let backward = !is_forward && cursor.eat("backward");
    if !is_forward && !backward {
        cursor.demand("call")?;
    }
    let token = backward.then(|| cursor.name("the name of a token")).transpose()?;
    let function = cursor.name("the name of a function")?;
    cursor.demand("(")?;
    let mut args = Vec::new();
    while !cursor.eat(")") {
        if !args.is_empty() && !cursor.eat(",") {
            return Err(cursor.expected("`,` or `)`"));
        }
        args.push(arg(cursor)?);
    }
    let kind = match token {
        Some(token) => CallKind::Backward(token),
        None if is_forward => {
            cursor.demand("as")?;
            CallKind::Forward(cursor.name("a name for the token")?)
        }
        None => CallKind::Plain,
    };
    let (mut stream, mut fails) = (None, None);
    while !cursor.is_done() {
        if stream.is_none() && cursor.eat("on") {
            stream = Some(cursor.name("the name of a stream")?);
        } else if fails.is_none() && cursor.eat("fails") {
            let kind = cursor.one_of(ErrorKind::ALL, ErrorKind::word, ErrorKind::WHAT)?;
            let text = (!cursor.is_done() && !cursor.is("on"))
                .then(|| cursor.text("a part of the message in quotes"));
            fails = Some(Fails { kind, text: text.transpose()? });
        } else {
            return Err(cursor.expected("`on`, `fails` or the end of the line"));
        }
    }
    Ok(What::Call(Call { outputs, kind, function, args, stream, fails }))
}

fn arg(cursor: &mut Cursor<'_>) -> Result<Arg> {
    if cursor.eat("give") {
        return cursor.name("the name of a tensor").map(Arg::Give);
    }
    if cursor.eat("host") {
        return cursor.new_tensor().map(Arg::Host);
    }
    if cursor.is_new_tensor() {
        return cursor.new_tensor().map(Arg::New);
    }
    let is_name = cursor.word().is_some() && (cursor.is_second(",") || cursor.is_second(")"));
    let expected = "an argument: a name, `give x`, a tensor (`[4] 1`, `rand [4]`, `count [4]`), `host [4] 1` or a number";
    if is_name {
        return cursor.name(expected).map(Arg::Keep);
    }
    cursor.number(expected).map(Arg::Number)
}
