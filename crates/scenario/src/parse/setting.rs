//! Lines that begin with `set`.

use crate::bound::MOST_ENGINES;
use crate::error::{ParseError, Result};
use crate::parse::cursor::Cursor;
use crate::parse::function::{mode_name, old};
use crate::{Filter, Limit, ModeName, Setting};

const SETTING: &str =
    "a setting: `only`, `old`, `seed`, `limit`, `budget`, `memory`, `strict`, `lazy`, `no-plan`, `engines`";

/// What stands behind `set`.
pub(super) fn setting(cursor: &mut Cursor<'_>) -> Result<Setting> {
    if cursor.eat("only") {
        let mut filters = vec![filter(cursor)?];
        while cursor.eat(",") {
            filters.push(filter(cursor)?);
        }
        return Ok(Setting::Only(filters));
    }
    if cursor.eat("old") {
        return old(cursor).map(Setting::Old);
    }
    if cursor.eat("seed") {
        return cursor.literal("a seed").map(Setting::Seed);
    }
    if cursor.eat("limit") {
        let limit = cursor.one_of(Limit::ALL, Limit::word, Limit::WHAT)?;
        let bound = cursor.literal("a bound")?;
        return Ok(Setting::Limit(limit, u32::try_from(bound).unwrap_or(u32::MAX)));
    }
    if cursor.eat("budget") {
        return cursor.literal("a number of bytes").map(Setting::Budget);
    }
    if cursor.eat("memory") {
        return cursor.literal("a number of bytes").map(Setting::Memory);
    }
    if cursor.eat("engines") {
        let place = cursor.place();
        let count = cursor.literal("a number of engines")?;
        if !(1..=MOST_ENGINES).contains(&count) {
            let why = format!("{count} engines, and there may be 1 to {MOST_ENGINES}");
            return Err(ParseError::impossible(place, why));
        }
        return Ok(Setting::Engines(count));
    }
    let words = [("strict", Setting::Strict), ("lazy", Setting::Lazy), ("no-plan", Setting::NoPlan)];
    for (word, setting) in words {
        if cursor.eat(word) {
            return Ok(setting);
        }
    }
    Err(cursor.expected(SETTING))
}

/// `all`, `trees`, `trees/3`, `one-pool`, `eager`; a mode alone means every prefix of the layers.
pub(super) fn filter(cursor: &mut Cursor<'_>) -> Result<Filter> {
    if cursor.eat("all") {
        return Ok(Filter::All);
    }
    if cursor.word().is_none_or(|word| ModeName::of(word).is_none()) {
        return Err(cursor
            .expected("`all`, or a mode (`trees`, `one-pool`, `eager`), perhaps with layers (`trees/3`)"));
    }
    let mode = mode_name(cursor)?;
    if !cursor.eat("/") {
        return Ok(Filter::Every(mode));
    }
    let layers = cursor.literal("a number of layers, 0 to 5")?;
    Ok(Filter::One(mode, u32::try_from(layers).unwrap_or(u32::MAX)))
}
