//! Lines that begin with `expect`.

use crate::error::Result;
use crate::parse::cursor::Cursor;
use crate::parse::setting::filter;
use crate::{Comparison, Counter, Demand, Expectation, Measure, Values};

/// What stands behind `expect`.
pub(super) fn expectation(cursor: &mut Cursor<'_>) -> Result<Expectation> {
    let of = cursor.eat("in").then(|| filter(cursor)).transpose()?;
    Ok(Expectation { of, demand: demand(cursor)? })
}

fn demand(cursor: &mut Cursor<'_>) -> Result<Demand> {
    let tensor = "the name of a tensor";
    if cursor.eat("stale") {
        return cursor.name(tensor).map(Demand::Stale);
    }
    if cursor.eat("readable") {
        return cursor.name(tensor).map(Demand::Readable);
    }
    if cursor.eat("shares") {
        return Ok(Demand::Shares(cursor.name(tensor)?, cursor.name(tensor)?));
    }
    if cursor.eat("apart") {
        return Ok(Demand::Apart(cursor.name(tensor)?, cursor.name(tensor)?));
    }
    for is_wanted in [true, false] {
        if cursor.eat(if is_wanted { "reason" } else { "no-reason" }) {
            let function = cursor.name("the name of a function")?;
            let text = cursor.text("a part of the reason in quotes")?;
            let demand = if is_wanted { Demand::Reason } else { Demand::NoReason };
            return Ok(demand(function, text));
        }
    }
    if is_measure(cursor) {
        let left = measure(cursor)?;
        let how = comparison(cursor)?;
        return Ok(Demand::Compare(left, how, measure(cursor)?));
    }
    let start = *cursor;
    let expected = "a counter, `address`, the name of a tensor or of a note, `stale`, `readable`, `shares`, `apart`, `reason` or `no-reason`";
    let left = cursor.name(expected)?;
    // A tensor is compared with a tensor, and a note with a number.
    if cursor.eat("==") {
        let right = if cursor.is_new_tensor() {
            Some(Values::New(cursor.new_tensor()?))
        } else if cursor.word().is_some() && !is_measure(cursor) {
            Some(Values::Of(cursor.name(tensor)?))
        } else {
            None
        };
        if let Some(right) = right
            && (cursor.is_done() || cursor.is("within"))
        {
            let within = if cursor.eat("within") { cursor.float("how far values may be away")? } else { 0.0 };
            return Ok(Demand::Values { left, right, within });
        }
    }
    *cursor = start;
    let left = measure(cursor)?;
    let how = comparison(cursor)?;
    Ok(Demand::Compare(left, how, measure(cursor)?))
}

fn comparison(cursor: &mut Cursor<'_>) -> Result<Comparison> {
    for comparison in Comparison::ALL {
        if cursor.eat(comparison.word()) {
            return Ok(*comparison);
        }
    }
    Err(cursor.expected("`==`, `!=`, `<=`, `>=`, `<` or `>`"))
}

/// Whether something stands here that is a measure and no name.
fn is_measure(cursor: &Cursor<'_>) -> bool {
    let Some(word) = cursor.word() else { return !cursor.is_done() };
    word == "address" || Counter::of(word).is_some()
}

pub(super) fn measure(cursor: &mut Cursor<'_>) -> Result<Measure> {
    if cursor.eat("address") {
        return cursor.name("the name of a tensor").map(Measure::Address);
    }
    if let Some(counter) = cursor.word().and_then(Counter::of) {
        cursor.eat(counter.word());
        let of = cursor.eat("of").then(|| cursor.name("the name of a function")).transpose()?;
        return Ok(Measure::Counter(counter, of));
    }
    let expected = format!("a number, a note, `address` or a counter ({})", Counter::all_words());
    // Only counters are counted `of` a function.
    if cursor.word().is_some() && cursor.is_second("of") {
        return Err(cursor.expected(&expected));
    }
    cursor.number(&expected).map(Measure::Number)
}
