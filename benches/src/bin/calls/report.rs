//! The tables, and the same as JSON.

use serde_json::{Value, json};

use crate::bound::bound;
use crate::error::Result;
use crate::play::{Played, Setup, play};
use crate::program::Program;
use crate::trace::Ran;

/// What came of one trace.
pub(crate) struct Row {
    program: Program,
    planned: Played,
    unplanned: Played,
    /// The words of the same trace run plainly.
    expected: Vec<u64>,
    /// What the checker found in a pass of its own.
    findings: Vec<String>,
    bound: u64,
}

/// How many calls became what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counts {
    warm_ups: usize,
    recordings: usize,
    replays: usize,
    eager: usize,
}

impl Counts {
    fn of(ran: impl Iterator<Item = Ran>) -> Self {
        ran.fold(Self::default(), |mut counts, ran| {
            *match ran {
                Ran::WarmUp => &mut counts.warm_ups,
                Ran::Record => &mut counts.recordings,
                Ran::Replay => &mut counts.replays,
                Ran::Eager => &mut counts.eager,
            } += 1;
            counts
        })
    }

    fn text(self) -> String {
        format!("{} / {} / {} / {}", self.warm_ups, self.recordings, self.replays, self.eager)
    }

    fn json(self) -> Value {
        json!({
            "warm_ups": self.warm_ups,
            "recordings": self.recordings,
            "replays": self.replays,
            "eager": self.eager,
        })
    }
}

impl Row {
    /// Plays a trace plainly, with planned and with unplanned memory, and once more with every access checked.
    pub(crate) fn of(program: Program) -> Result<Self> {
        use graphgrove::Mode;
        let setup = Setup { mode: Mode::Eager, plan: false, check: false };
        let expected = play(&program, setup)?.values;
        let setup = Setup { mode: Mode::Trees, ..setup };
        let unplanned = play(&program, setup)?;
        let planned = play(&program, Setup { plan: true, ..setup })?;
        let checked = play(&program, Setup { plan: true, check: true, ..setup })?;
        let bound = bound(&program);
        Ok(Self { planned, unplanned, expected, findings: checked.findings, bound, program })
    }

    fn theirs(&self) -> Counts {
        Counts::of(self.program.calls.iter().map(|call| call.ran))
    }

    fn ours(&self) -> Counts {
        Counts::of(self.planned.ran.iter().copied())
    }

    /// How many calls became something else than in the trace.
    fn different(&self) -> usize {
        let pairs = self.program.calls.iter().zip(&self.planned.ran);
        pairs.filter(|(call, ran)| call.ran != **ran).count()
    }

    /// How many outputs, in both runs together, were not what the plain run made of them.
    pub(crate) fn wrong(&self) -> usize {
        let wrong =
            |played: &Played| played.values.iter().zip(&self.expected).filter(|(a, b)| a != b).count();
        wrong(&self.planned) + wrong(&self.unplanned)
    }

    /// What the checker found.
    pub(crate) fn findings(&self) -> usize {
        self.findings.len()
    }

    fn json(&self) -> Value {
        json!({
            "trace": self.program.name,
            "calls": self.program.calls.len(),
            "outputs": self.expected.len(),
            "torch": self.theirs().json(),
            "ours": self.ours().json(),
            "different_calls": self.different(),
            "predicted": self.planned.stats.calls.predicted,
            "wrong_values": self.wrong(),
            "findings": self.findings(),
            "bound_bytes": self.bound,
            "peak_live_bytes": { "planned": peak_live(&self.planned), "unplanned": peak_live(&self.unplanned) },
            "reserved_bytes": {
                "planned": reserved(&self.planned),
                "unplanned": reserved(&self.unplanned),
                "torch": self.program.reserved,
            },
            "peak_reserved_bytes": {
                "planned": peak_reserved(&self.planned),
                "unplanned": peak_reserved(&self.unplanned),
            },
            "outside_bytes": self.planned.stats.plain.ranges.peak_reserved,
        })
    }
}

/// What the pool of the recordings held at the end.
fn reserved(played: &Played) -> u64 {
    played.stats.pools.iter().map(|pool| pool.ranges.reserved).sum()
}

/// The most that it ever held, while warm-ups ran too.
fn peak_reserved(played: &Played) -> u64 {
    played.stats.pools.iter().map(|pool| pool.ranges.peak_reserved).sum()
}

fn peak_live(played: &Played) -> u64 {
    played.stats.pools.iter().map(|pool| pool.ranges.peak_live).sum()
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

fn with_ratio(bytes: u64, bound: u64) -> String {
    format!("{} ({:.3})", mebibytes(bytes), bytes as f64 / bound.max(1) as f64)
}

/// Prints what the calls became and how much memory they took.
pub(crate) fn print(rows: &[Row]) {
    println!("What the calls became (warm-ups / recordings / replays / eager)\n");
    println!("| trace | calls | torch | here | calls that differ | predicted | outputs | wrong | findings |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for row in rows {
        println!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            row.program.name,
            row.program.calls.len(),
            row.theirs().text(),
            row.ours().text(),
            row.different(),
            row.planned.stats.calls.predicted,
            row.expected.len(),
            row.wrong(),
            row.findings(),
        );
    }
    println!("\nMemory of the pool in MiB (as a part of the lower bound)\n");
    println!(
        "| trace | lower bound | peak live | planned: at the end | at most | unplanned: at the end | at most | torch |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for row in rows {
        println!(
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            row.program.name,
            mebibytes(row.bound),
            mebibytes(peak_live(&row.planned)),
            with_ratio(reserved(&row.planned), row.bound),
            with_ratio(peak_reserved(&row.planned), row.bound),
            with_ratio(reserved(&row.unplanned), row.bound),
            with_ratio(peak_reserved(&row.unplanned), row.bound),
            row.program.reserved.map_or("-".to_owned(), |bytes| with_ratio(bytes, row.bound)),
        );
    }
    println!(
        "\nThe lower bound is the largest sum of live bytes that a walk over the trace finds: outputs of the path until they are"
    );
    println!(
        "dropped, blocks of the running body, and copies of staged inputs. Peak live is what the pool saw, in granules of 512 bytes."
    );
}

/// Prints why calls were not replayed, which nodes there are, and what became of each call that differs.
pub(crate) fn explain(row: &Row) {
    println!("\n## {}\n\n{}", row.program.name, row.planned.outline);
    for reason in &row.planned.reasons {
        println!("{} x {}: {}", reason.calls, reason.function, reason.why);
    }
    for (at, (call, ran)) in row.program.calls.iter().zip(&row.planned.ran).enumerate() {
        if call.ran != *ran {
            println!("call {at} of f{}: {:?} in the trace, {ran:?} here", call.function, call.ran);
        }
    }
    for finding in &row.findings {
        println!("found: {finding}");
    }
    for (what, played) in [("planned", &row.planned), ("unplanned", &row.unplanned)] {
        println!("{what}: {:?}", played.stats.pools);
    }
    println!("outside of the pool: {:?}", row.planned.stats.plain);
}

/// All rows as JSON.
pub(crate) fn json(rows: &[Row]) -> String {
    let all: Vec<Value> = rows.iter().map(Row::json).collect();
    format!("{:#}\n", json!({ "version": 1, "traces": all }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;
    use crate::trace::Trace;

    fn row() -> Row {
        Row::of(Program::new(&Trace::parse(synthetic::TRACE).unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn the_synthetic_trace_gives_the_values_of_its_plain_run_and_no_finding() {
        let row = row();
        assert_eq!((row.wrong(), row.findings()), (0, 0));
        let (ours, theirs) = (row.ours(), row.theirs());
        assert!(ours.recordings <= theirs.recordings && ours.replays >= theirs.replays, "{ours:?}");
        assert!(row.expected.iter().filter(|word| **word != 0).count() > 40);
    }

    #[test]
    fn the_pool_is_never_smaller_than_what_was_live_in_it() {
        let row = row();
        for played in [&row.planned, &row.unplanned] {
            assert!(peak_reserved(played) >= peak_live(played) && peak_live(played) > 0);
            assert!((1..=peak_reserved(played)).contains(&reserved(played)));
        }
    }

    #[test]
    fn the_json_has_a_row_for_each_trace() {
        let text = json(&[row()]);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["traces"][0]["trace"], "synthetic");
        assert_eq!(value["traces"][0]["wrong_values"], 0);
    }
}
