//! The lower bound on the memory of a pool: the largest sum of live bytes.

use std::collections::HashMap;

use crate::body::{Returned, Work};
use crate::function::SUM_BYTES;
use crate::program::{Owner, Program, Source, Value};

/// Walks a trace call by call and says how many bytes are live at the worst moment: outputs of the path, blocks of the running
/// body, and copies of the inputs that are staged, each as long as it was asked for and until it is dropped.
pub(crate) fn bound(program: &Program) -> u64 {
    let mut outputs: HashMap<Value, u64> = HashMap::new();
    let (mut live, mut most) = (0_u64, 0_u64);
    for (at, call) in program.calls.iter().enumerate() {
        let Some(body) = program.body(at) else { continue };
        for value in &call.dropped {
            live -= outputs.remove(value).unwrap_or(0);
        }
        // What an argument gives back when it is let go of. Of several that share memory the last one does.
        let mut arguments: Vec<u64> = vec![0; call.arguments.len()];
        let mut by_end: Vec<usize> = (0..arguments.len()).collect();
        let end =
            |argument: &usize| body.work.iter().position(|work| *work == Work::LetGo { argument: *argument });
        by_end.sort_by_key(|argument| std::cmp::Reverse(end(argument)));
        for argument in by_end {
            let Some(source) = call.arguments.get(argument) else { continue };
            arguments[argument] = match source {
                Source::Scalar(_) => 0,
                Source::Own { bytes } => copy(&mut live, *bytes),
                Source::Output { value, given } => match program.owner(*value) {
                    // An output that is the caller's own memory is copied like it.
                    Owner::Elsewhere => copy(&mut live, program.bytes(*value)),
                    Owner::Output(owner, _) if *given => outputs.remove(&owner).unwrap_or(0),
                    Owner::Output(..) => 0,
                },
            };
        }
        live += SUM_BYTES;
        most = most.max(live);
        let mut blocks: HashMap<usize, u64> = HashMap::new();
        for work in &body.work {
            match *work {
                Work::Allocate { block, bytes } => {
                    blocks.insert(block, bytes);
                    live += bytes;
                }
                Work::Free { block } => live -= blocks.remove(&block).unwrap_or(0),
                Work::LetGo { argument } => {
                    live -= arguments.get_mut(argument).map_or(0, std::mem::take);
                }
            }
            most = most.max(live);
        }
        live -= SUM_BYTES;
        for (output, returned) in body.outputs.iter().enumerate() {
            match returned {
                Returned::Block(block) => {
                    let bytes = blocks.remove(block).unwrap_or(0);
                    outputs.insert(Value { call: at, output }, bytes);
                }
                // A returned copy is the input that it was made from, and not the copy, to whoever called.
                Returned::Argument(argument) => match call.arguments.get(*argument) {
                    Some(Source::Output { value, .. }) => {
                        if let Owner::Output(owner, bytes) = program.owner(*value) {
                            if arguments.get(*argument).is_some_and(|given| *given > 0) {
                                outputs.insert(owner, bytes);
                            }
                        } else {
                            live -= arguments.get_mut(*argument).map_or(0, std::mem::take);
                        }
                    }
                    _ => live -= arguments.get_mut(*argument).map_or(0, std::mem::take),
                },
                _ => {}
            }
        }
    }
    most
}

fn copy(live: &mut u64, bytes: u64) -> u64 {
    *live += bytes;
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    fn bound_of(lines: &[&str]) -> u64 {
        let text = format!("{}\n{}", r#"{"workload":"w"}"#, lines.join("\n"));
        bound(&Program::new(&Trace::parse(&text).unwrap()).unwrap())
    }

    const MAKE: &str = r#"{"node":0,"fn":0,"outputs":[["fresh",1000,1]],"body":[[0,500],[1,1000],[-1]]}"#;
    const MADE: &str = r#"{"call":0,"fn":0,"mode":"inference","step":1,"inputs":[["x",500]],"live":[],"mutated":[],"result":"record","node":0}"#;
    const USE: &str = r#"{"node":1,"fn":1,"outputs":[["fresh",10,1]],"body":[[0,4000],[-1],[1,10]]}"#;

    #[test]
    fn one_body_counts_its_copies_blocks_and_sum() {
        assert_eq!(bound_of(&[MAKE, MADE]), 500 + 1000 + SUM_BYTES);
    }

    #[test]
    fn an_output_counts_in_the_next_body_until_it_is_let_go_of() {
        let used = r#"{"call":1,"fn":1,"mode":"inference","step":1,"inputs":[["m",0,0,1000]],"live":["1"],"mutated":[],"result":"record","node":1}"#;
        assert_eq!(bound_of(&[MAKE, USE, MADE, used]), 1000 + 4000 + SUM_BYTES);
    }

    #[test]
    fn an_output_that_nobody_keeps_counts_no_longer_in_the_next_body() {
        let alone = r#"{"call":1,"fn":1,"mode":"inference","step":1,"inputs":[],"live":["0"],"mutated":[],"result":"record","node":1}"#;
        assert_eq!(bound_of(&[MAKE, USE, MADE, alone]), 4000 + SUM_BYTES);
    }

    #[test]
    fn an_output_that_is_passed_twice_counts_until_the_last_of_both_is_let_go_of() {
        let twice = r#"{"node":1,"fn":1,"outputs":[],"body":[[0,8],[-1],[1,4000],[-2]]}"#;
        let used = r#"{"call":1,"fn":1,"mode":"inference","step":1,"inputs":[["m",0,0,1000],["m",0,0,1000]],"live":["1"],"mutated":[],"result":"record","node":1}"#;
        assert_eq!(bound_of(&[MAKE, twice, MADE, used]), 1000 + 4000 + SUM_BYTES);
    }
}
