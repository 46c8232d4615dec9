//! Which names a statement needs, and which it gives something to hold.

use crate::program::{Arg, CallKind, How, InPlace, MoveTo, What};
use crate::{Demand, Measure, Number, Operand, Values};

/// The tensors, tokens, parameters and streams that a statement needs. Numbers are always there.
pub(crate) fn needed(what: &What) -> Vec<&str> {
    match what {
        What::View(_, view) => vec![&view.of.text],
        What::Clone(_, of) => vec![&of.text],
        What::Call(call) => {
            let args = call.args.iter().filter_map(|arg| match arg {
                Arg::Keep(name) | Arg::Give(name) => Some(name.text.as_str()),
                Arg::New(_) | Arg::Host(_) | Arg::Number(_) => None,
            });
            let token = match &call.kind {
                CallKind::Backward(token) => Some(token.text.as_str()),
                CallKind::Plain | CallKind::Forward(_) => None,
            };
            args.chain(token).collect()
        }
        What::Move(name, MoveTo::Tensor(to)) => vec![&name.text, &to.text],
        What::Move(name, _) | What::Write(name, _) => vec![&name.text],
        What::Enqueue(op, stream) => {
            let mut names = in_place(op);
            names.push(&stream.text);
            names
        }
        What::Expect(expectation) => match &expectation.demand {
            Demand::Values { left, right: Values::Of(right), .. } => vec![&left.text, &right.text],
            Demand::Values { left, .. } => vec![&left.text],
            Demand::Stale(name) | Demand::Readable(name) => vec![&name.text],
            Demand::Shares(a, b) | Demand::Apart(a, b) => vec![&a.text, &b.text],
            Demand::Compare(left, _, right) => [measured(left), measured(right)].concat(),
            Demand::Reason(..) | Demand::NoReason(..) => Vec::new(),
        },
        What::Note(_, measure) => measured(measure),
        _ => Vec::new(),
    }
}

fn measured(measure: &Measure) -> Vec<&str> {
    match measure {
        Measure::Address(name) => vec![&name.text],
        Measure::Number(Number::Name(name)) => vec![&name.text],
        Measure::Number(_) | Measure::Counter(..) => Vec::new(),
    }
}

fn in_place(op: &InPlace) -> Vec<&str> {
    let mut names = vec![op.to.text.as_str()];
    let operands: Vec<&Operand> = match &op.how {
        How::Unary(_) => Vec::new(),
        How::Binary(_, b) | How::Copy(b) => vec![b],
        How::Mix(b, k) => vec![b, k],
    };
    for of in operands {
        if let Operand::Name(name) = of {
            names.push(&name.text);
        }
    }
    names
}

/// What holds nothing once a statement was left out: what it gives something to hold, and what it takes.
pub(crate) fn bound(what: &What) -> Vec<&str> {
    match what {
        What::Let(name, _) | What::View(name, _) | What::Clone(name, _) | What::Draw(name, _) => {
            vec![&name.text]
        }
        What::Call(call) => {
            let outputs = call.outputs.iter().flatten().map(|name| name.text.as_str());
            let token = match &call.kind {
                CallKind::Forward(token) | CallKind::Backward(token) => Some(token.text.as_str()),
                CallKind::Plain => None,
            };
            let given = call.args.iter().filter_map(|arg| match arg {
                Arg::Give(name) => Some(name.text.as_str()),
                _ => None,
            });
            outputs.chain(token).chain(given).collect()
        }
        _ => Vec::new(),
    }
}
