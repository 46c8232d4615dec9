//! Making a scenario that fails small: whatever can go without the failure going is taken away.

use crate::program::{Call, Statement, What};
use crate::{Number, Scenario, parse};

/// The smallest scenario that can be reached from a failing one by taking things away one at a time, and that still `fails`.
pub fn shrunk(scenario: &Scenario, fails: impl Fn(&Scenario) -> bool) -> Scenario {
    let mut best = scenario.clone();
    loop {
        let smaller = candidates(&best).into_iter().find(|candidate| {
            // What is taken away may leave a name that holds nothing.
            parse(&candidate.to_string()).is_ok_and(|read| fails(&read))
        });
        match smaller {
            Some(smaller) => best = smaller,
            None => return best,
        }
    }
}

/// Scenarios with one thing less, the largest things first.
fn candidates(scenario: &Scenario) -> Vec<Scenario> {
    let mut all = Vec::new();
    for at in 0..scenario.functions.len() {
        let mut less = scenario.clone();
        less.functions.remove(at);
        all.push(less);
    }
    for statements in blocks(&scenario.statements) {
        all.push(Scenario { statements, ..scenario.clone() });
    }
    for at in 0..scenario.settings.len() {
        let mut less = scenario.clone();
        less.settings.remove(at);
        all.push(less);
    }
    for (at, function) in scenario.functions.iter().enumerate() {
        let mut change = |less: crate::Function| {
            let mut scenario = scenario.clone();
            if let Some(function) = scenario.functions.get_mut(at) {
                *function = less;
            }
            all.push(scenario);
        };
        for line in 0..function.body.len() {
            let mut less = function.clone();
            less.body.remove(line);
            change(less);
        }
        for output in 0..function.outputs.len() {
            let mut less = function.clone();
            less.outputs.remove(output);
            change(less);
        }
        if function.mode.is_some() {
            change(crate::Function { mode: None, ..function.clone() });
        }
        if function.old.is_some() {
            change(crate::Function { old: None, ..function.clone() });
        }
    }
    all
}

/// Blocks with one thing less.
fn blocks(block: &[Statement]) -> Vec<Vec<Statement>> {
    let mut all = Vec::new();
    for at in 0..block.len() {
        let mut less = block.to_vec();
        less.remove(at);
        all.push(less);
    }
    for (at, statement) in block.iter().enumerate() {
        // What is in a block may stand in its place.
        for inner in inlined(statement) {
            let mut less = block.to_vec();
            less.splice(at..=at, inner);
            all.push(less);
        }
        for smaller in smaller(statement) {
            let mut less = block.to_vec();
            less[at] = smaller;
            all.push(less);
        }
    }
    all
}

fn inlined(statement: &Statement) -> Vec<Vec<Statement>> {
    match &statement.what {
        What::Repeat { body, turn: None, .. } => vec![body.clone()],
        What::Choose(choices) => choices.clone(),
        _ => Vec::new(),
    }
}

fn smaller(statement: &Statement) -> Vec<Statement> {
    let with = |what: What| Statement { what, ..statement.clone() };
    let mut all = Vec::new();
    match &statement.what {
        What::Repeat { times, turn, body } => {
            if let Number::Literal(times) = times
                && *times > 1
            {
                let times = Number::Literal(times - 1);
                all.push(with(What::Repeat { times, turn: turn.clone(), body: body.clone() }));
            }
            for body in blocks(body).into_iter().filter(|body| !body.is_empty()) {
                all.push(with(What::Repeat { times: times.clone(), turn: turn.clone(), body }));
            }
        }
        What::Choose(choices) => {
            for (at, choice) in choices.iter().enumerate() {
                for smaller in blocks(choice).into_iter().filter(|block| !block.is_empty()) {
                    let mut choices = choices.clone();
                    choices[at] = smaller;
                    all.push(with(What::Choose(choices)));
                }
            }
        }
        What::Call(call) => {
            if call.stream.is_some() {
                all.push(with(What::Call(Call { stream: None, ..call.clone() })));
            }
            for at in (0..call.outputs.len()).filter(|at| call.outputs[*at].is_some()) {
                let mut less = call.clone();
                less.outputs[at] = None;
                all.push(with(What::Call(less)));
            }
            if call.outputs.last().is_some_and(Option::is_none) {
                let mut less = call.clone();
                less.outputs.pop();
                all.push(with(What::Call(less)));
            }
        }
        _ => {}
    }
    if statement.tries {
        all.push(Statement { tries: false, ..statement.clone() });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_matter_goes_and_what_matters_stays() {
        let text = "set lazy\nfn f(x) -> y\n  t = mul x 2\n  y = add x 1\nfn g(x) -> y\n  y = neg x\nrepeat 5\n  \
                    a = [4] 1\n  try b = call f(a)\n  step\n  choose\n    either\n      drop a\n    either\n      step\n";
        let scenario = parse(text).unwrap();
        // A call of a function with a sum in it.
        let fails = |scenario: &Scenario| {
            let text = scenario.to_string();
            text.contains("call f(") && text.contains("add x 1")
        };
        let small = shrunk(&scenario, fails);
        assert_eq!(small.to_string(), "fn f(x)\n  y = add x 1\na = [4] 1\ncall f(a)\n");
    }
}
