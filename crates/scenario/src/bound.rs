//! How long a program may run, and how much may run at once.

use crate::Statement;
use crate::error::{ParseError, Result};
use crate::program::What;

/// The most statements that a program may run, those of all turns and all threads together. A program that would run for days is
/// mostly a digit too many, and a search or a build that meets one would never end.
pub const MOST_STATEMENTS: u64 = 1_000_000;

/// The most threads that one statement may begin. More than a host can begin would end in the middle of the program.
pub const MOST_THREADS: u64 = 64;

/// The most engines that a scenario may have, each with pools of its own.
pub const MOST_ENGINES: u64 = 16;

/// What is said of a program that begins more threads.
pub(crate) fn too_many_threads(count: u64) -> String {
    format!("{count} threads, and there may be {MOST_THREADS} at once")
}

/// What is said of a program that runs more.
pub(crate) fn too_many() -> String {
    format!("the program would run more than {MOST_STATEMENTS} statements, the most that a scenario may run")
}

/// Refuses a program that runs too many statements whatever its names stand for. What depends on names is seen when it runs.
pub(crate) fn check(block: &[Statement]) -> Result<()> {
    if least(block) <= MOST_STATEMENTS {
        return Ok(());
    }
    for statement in block {
        // The innermost block that is too long by itself is the one to blame.
        match &statement.what {
            What::Repeat { body, .. } | What::Each { body, .. } | What::Threads { body, .. } => check(body)?,
            What::Choose(choices) => choices.iter().try_for_each(|choice| check(choice))?,
            _ => {}
        }
    }
    let longest = block.iter().max_by_key(|statement| least_of(statement));
    Err(ParseError::impossible(longest.map(|statement| statement.place).unwrap_or_default(), too_many()))
}

/// How many statements a block runs at least.
pub(crate) fn least(block: &[Statement]) -> u64 {
    block.iter().fold(0, |sum, statement| sum.saturating_add(least_of(statement)))
}

/// How many statements so many turns of a block run at least. A turn takes time even if nothing is in it.
pub(crate) fn least_turns(turns: u64, body: &[Statement]) -> u64 {
    turns.saturating_mul(least(body).max(1))
}

fn least_of(statement: &Statement) -> u64 {
    let below = match &statement.what {
        What::Repeat { times: turns, body, .. } | What::Threads { count: turns, body, .. } => {
            least_turns(turns.known().unwrap_or(0), body)
        }
        What::Each { over, body, .. } => least_turns(over.len() as u64, body),
        What::Choose(choices) => choices.iter().map(|choice| least(choice)).min().unwrap_or(0),
        _ => 0,
    };
    below.saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Option<String> {
        crate::parse(text).err().map(|error| error.to_string())
    }

    #[test]
    fn the_statements_of_all_turns_count() {
        // The statement that repeats is one itself.
        assert_eq!(refused("repeat 999999\n  step\n"), None);
        assert_eq!(refused("repeat 1000000\n  step\n"), Some(format!("1:1: {}", too_many())));
        assert_eq!(refused("repeat 500000\n  step\n  step\n"), Some(format!("1:1: {}", too_many())));
        let nested = "step\nrepeat 1000\n  repeat 1000\n    step\n";
        assert_eq!(refused(nested), Some(format!("2:1: {}", too_many())));
    }

    #[test]
    fn the_block_to_blame_is_the_innermost_one_that_is_too_long_by_itself() {
        let place = |text: &str| crate::parse(text).unwrap_err().place.to_string();
        assert_eq!(place("repeat 2\n  step\n  repeat 100000000000\n    step\n"), "3:3");
        assert_eq!(place("each n in 1, 2\n  threads 64\n    repeat 20K\n      step\n"), "2:3");
        assert_eq!(place("choose\n  either\n    repeat 2M\n      step\n"), "3:5");
    }

    #[test]
    fn what_depends_on_names_or_on_a_choice_is_not_refused_before_it_runs() {
        assert_eq!(refused("size n = 2M\nrepeat n\n  step\n"), None);
        assert_eq!(refused("choose\n  either\n    step\n  either\n    repeat 2M\n      step\n"), None);
    }
}
