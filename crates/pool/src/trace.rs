//! Recorded allocation traces: what a program asked for and gave back, in order.
//!
//! A trace is text, one event a line: `a ID BYTES STREAM` allocates, `f ID` frees, `P NAME.STEP` starts a phase of a step, and
//! `# key value` is a note about the whole. An identity that was freed never returns; what is not freed is live at the end.
//!
//! [`Trace::parse`] reads one, [`synthetic`] makes one, and [`replay`] runs one through the allocator, online or planned.

pub mod replay;
mod synthetic;

pub use synthetic::synthetic;

use std::collections::HashMap;
use std::fmt;

use crate::error::PoolError;

/// One event of a trace. Blocks are numbered by the order in which they were allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The next block is allocated.
    Alloc {
        /// The block's number.
        block: u32,
        /// Its size in bytes.
        bytes: u64,
        /// The stream it was allocated on.
        stream: u32,
    },
    /// A block is freed.
    Free {
        /// The block's number.
        block: u32,
    },
    /// A phase starts; the number is its position in [`Trace::phases`].
    Phase(u32),
}

/// A part of a step, such as the forward pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// What the phase is called.
    pub name: String,
    /// The step it belongs to.
    pub step: u32,
}

/// A parsed trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The notes at the head, as key and value.
    pub notes: Vec<(String, String)>,
    /// The phases in order.
    pub phases: Vec<Phase>,
    /// The events in order.
    pub events: Vec<Event>,
}

/// What is wrong with a line of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceFault {
    /// The line starts with none of `a`, `f`, `P` and `#`.
    UnknownEvent,
    /// A field is missing.
    MissingField,
    /// A field is not a whole number, or a number too large.
    BadNumber,
    /// The line goes on after its last field.
    TrailingField,
    /// The identity was allocated before.
    AllocatedTwice,
    /// The identity is not live.
    NotLive,
}

impl fmt::Display for TraceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownEvent => "no such event",
            Self::MissingField => "a field is missing",
            Self::BadNumber => "a field is not a number in range",
            Self::TrailingField => "too many fields",
            Self::AllocatedTwice => "the identity was allocated before",
            Self::NotLive => "the identity is not live",
        })
    }
}

impl Trace {
    /// Reads a trace.
    ///
    /// # Errors
    ///
    /// [`PoolError::BadTrace`] with the first line that cannot be read, or whose event cannot happen after the ones before it.
    pub fn parse(text: &str) -> Result<Self, PoolError> {
        let mut reader = Reader::default();
        for (at, line) in text.lines().enumerate() {
            reader.read(line).map_err(|fault| PoolError::BadTrace { line: at + 1, fault })?;
        }
        Ok(reader.trace)
    }

    /// How many blocks are allocated.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Alloc { .. })).count()
    }

    /// The most bytes that are live at once, as asked for and without any rounding.
    #[must_use]
    pub fn peak_live(&self) -> u64 {
        let (mut sizes, mut live, mut peak) = (Vec::new(), 0_u64, 0);
        for event in &self.events {
            match *event {
                Event::Alloc { bytes, .. } => {
                    sizes.push(bytes);
                    live += bytes;
                    peak = peak.max(live);
                }
                Event::Free { block } => live -= sizes.get(block as usize).copied().unwrap_or(0),
                Event::Phase(_) => {}
            }
        }
        peak
    }

    /// The value of a note.
    #[must_use]
    pub fn note(&self, key: &str) -> Option<&str> {
        self.notes.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }
}

#[derive(Default)]
struct Reader {
    trace: Trace,
    /// The number of the block with this identity, and whether it is live.
    blocks: HashMap<u64, (u32, bool)>,
}

impl Reader {
    fn read(&mut self, line: &str) -> Result<(), TraceFault> {
        let mut fields = line.split_ascii_whitespace();
        match fields.next() {
            None => return Ok(()),
            Some("#") => {
                let Some(key) = fields.next() else { return Ok(()) };
                let value = fields.by_ref().collect::<Vec<_>>().join(" ");
                self.trace.notes.push((key.to_owned(), value));
            }
            Some("P") => {
                let phase = fields.next().ok_or(TraceFault::MissingField)?;
                let (name, step) = phase.rsplit_once('.').ok_or(TraceFault::MissingField)?;
                let step = step.parse().map_err(|_| TraceFault::BadNumber)?;
                self.trace.events.push(Event::Phase(self.trace.phases.len() as u32));
                self.trace.phases.push(Phase { name: name.to_owned(), step });
            }
            Some("a") => {
                let (id, bytes) = (number(fields.next())?, number(fields.next())?);
                let stream = u32::try_from(number(fields.next())?).map_err(|_| TraceFault::BadNumber)?;
                let block = self.blocks.len() as u32;
                if self.blocks.insert(id, (block, true)).is_some() {
                    return Err(TraceFault::AllocatedTwice);
                }
                self.trace.events.push(Event::Alloc { block, bytes, stream });
            }
            Some("f") => match self.blocks.get_mut(&number(fields.next())?) {
                Some((block, live)) if *live => {
                    *live = false;
                    self.trace.events.push(Event::Free { block: *block });
                }
                _ => return Err(TraceFault::NotLive),
            },
            Some(_) => return Err(TraceFault::UnknownEvent),
        }
        if fields.next().is_some() { Err(TraceFault::TrailingField) } else { Ok(()) }
    }
}

fn number(field: Option<&str>) -> Result<u64, TraceFault> {
    field.ok_or(TraceFault::MissingField)?.parse().map_err(|_| TraceFault::BadNumber)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_line_by_line() {
        let trace =
            Trace::parse("# workload a small one\nP forward.2\na 7 100 0\na 9 50 1\n\nf 7\n").unwrap();
        assert_eq!(trace.note("workload"), Some("a small one"));
        assert_eq!(trace.phases, [Phase { name: "forward".to_owned(), step: 2 }]);
        assert_eq!(
            trace.events,
            [
                Event::Phase(0),
                Event::Alloc { block: 0, bytes: 100, stream: 0 },
                Event::Alloc { block: 1, bytes: 50, stream: 1 },
                Event::Free { block: 0 },
            ]
        );
        assert_eq!((trace.blocks(), trace.peak_live()), (2, 150));
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named_with_its_fault() {
        let cases = [
            ("x 1", TraceFault::UnknownEvent),
            ("a 1 2", TraceFault::MissingField),
            ("P forward", TraceFault::MissingField),
            ("P forward.x", TraceFault::BadNumber),
            ("a 1 -2 0", TraceFault::BadNumber),
            ("a 1 2 99999999999", TraceFault::BadNumber),
            ("a 1 2 0 4", TraceFault::TrailingField),
            ("a 5 2 0", TraceFault::AllocatedTwice),
            ("f 6", TraceFault::NotLive),
            ("f 4", TraceFault::NotLive),
        ];
        for (line, fault) in cases {
            let text = format!("a 4 1 0\na 5 1 0\nf 4\n{line}\n");
            assert_eq!(Trace::parse(&text), Err(PoolError::BadTrace { line: 4, fault }), "{line}");
        }
    }
}
