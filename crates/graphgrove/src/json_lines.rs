//! Events as lines of JSON.

use std::fmt::Write as _;
use std::io::Write;

use parking_lot::Mutex;

use crate::{Event, FunctionName, How, Observer, Phase};

/// The number in the member `v` of each line. It changes when a member goes or changes its meaning, and not when one is added.
const VERSION: u32 = 1;

/// An observer that writes a line of JSON for each event.
///
/// Each line is an object with the members `v` (the version of the format, 1), `n` (the number of the line, from 0), `event` (the name
/// of the event in lower case, with underscores), and those of the event, under the names that [`Event`] has for them. A function is
/// an object with `id` and `name`; what is `None` is `null`. The order of members is always the same, so that files can be compared.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use graphgrove::{Engine, JsonLines, args};
/// use graphgrove_sim::SimDevice;
///
/// let observer = Arc::new(JsonLines::new(Vec::new()));
/// let device = Arc::new(SimDevice::new());
/// let engine = Engine::<SimDevice>::builder().observer(Arc::clone(&observer)).build(device)?;
/// let nothing = engine.function("nothing", |_| Ok(vec![]));
/// let _ = nothing.call(args![])?;
///
/// let text = observer.with(|lines| String::from_utf8_lossy(lines).into_owned());
/// assert_eq!(
///     text.lines().next(),
///     Some(r#"{"v":1,"n":0,"event":"registered","function":{"id":0,"name":"nothing"}}"#),
/// );
/// # Ok::<(), graphgrove::Error>(())
/// ```
#[derive(Debug)]
pub struct JsonLines<W> {
    state: Mutex<State<W>>,
}

#[derive(Debug)]
struct State<W> {
    out: W,
    lines: u64,
    /// The first thing that went wrong. Nothing is written after that.
    error: Option<std::io::Error>,
}

impl<W: Write + Send> JsonLines<W> {
    /// Writes to `out`, which should be buffered.
    pub fn new(out: W) -> Self {
        Self { state: Mutex::new(State { out, lines: 0, error: None }) }
    }

    /// Looks at what is written to, between two lines.
    pub fn with<T>(&self, look: impl FnOnce(&mut W) -> T) -> T {
        look(&mut self.state.lock().out)
    }

    /// Writes out what is buffered.
    ///
    /// # Errors
    /// The first error since the last time, of a line too: an observer has nobody to tell it while calls go on.
    pub fn flush(&self) -> std::io::Result<()> {
        let mut state = self.state.lock();
        match state.error.take() {
            Some(error) => Err(error),
            None => state.out.flush(),
        }
    }
}

impl<W: Write + Send> Observer for JsonLines<W> {
    fn event(&self, event: &Event) {
        let mut state = self.state.lock();
        if state.error.is_none() {
            let line = line(state.lines, event);
            state.lines += 1;
            state.error = state.out.write_all(line.as_bytes()).err();
        }
    }
}

/// One event as a line, its end included.
fn line(number: u64, event: &Event) -> String {
    let mut line = Line(format!("{{\"v\":{VERSION},\"n\":{number},\"event\":"));
    match event {
        Event::Registered { function } => line.name("registered").function("function", function),
        Event::StepBegan { pool, step } => {
            line.name("step_began").number("pool", *pool).number("step", *step)
        }
        Event::PathEnded { pool, by, stale, copied, bytes } => {
            let line = line.name("path_ended").number("pool", *pool).function("by", by);
            line.number("stale", *stale as u64).number("copied", *copied as u64).number("bytes", *bytes)
        }
        Event::Called { pool, function, phase, how, why, node, step } => line
            .name("called")
            .number("pool", *pool)
            .function("function", function)
            .text("phase", phase_word(*phase))
            .text("how", how_word(*how))
            .maybe_text("why", why.as_deref())
            .maybe("node", *node)
            .number("step", *step),
        Event::Failed { function, error } => {
            line.name("failed").function("function", function).text("error", error)
        }
        Event::Recorded { pool, function, node, parent, graph_nodes, exec_bytes, live_bytes, ns } => line
            .name("recorded")
            .number("pool", *pool)
            .function("function", function)
            .number("node", *node)
            .maybe("parent", *parent)
            .maybe("graph_nodes", graph_nodes.map(|nodes| nodes as u64))
            .maybe("exec_bytes", *exec_bytes)
            .number("live_bytes", *live_bytes)
            .number("ns", *ns),
        Event::RecordingFailed { pool, function, error } => line
            .name("recording_failed")
            .number("pool", *pool)
            .function("function", function)
            .text("error", error),
        Event::Evicted { pool, node } => line.name("evicted").number("pool", *pool).number("node", *node),
        Event::PoolGrew { pool, bytes, reserved } => {
            line.name("pool_grew").number("pool", *pool).number("bytes", *bytes).number("reserved", *reserved)
        }
        Event::PoolShrank { pool, bytes, reserved } => line
            .name("pool_shrank")
            .number("pool", *pool)
            .number("bytes", *bytes)
            .number("reserved", *reserved),
        Event::Noticed { pool, function, what } => {
            line.name("noticed").number("pool", *pool).function("function", function).text("what", what)
        }
        Event::Judged { function, records, why } => {
            let records = if *records { "true" } else { "false" };
            line.name("judged").function("function", function).raw("records", records).text("why", why)
        }
        Event::Reset => line.name("reset"),
        Event::ShutDown => line.name("shut_down"),
    };
    line.0.push_str("}\n");
    line.0
}

const fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Inference => "inference",
        Phase::Forward => "forward",
        Phase::Backward => "backward",
    }
}

const fn how_word(how: How) -> &'static str {
    match how {
        How::WarmUp => "warm_up",
        How::Recording => "recording",
        How::Replay => "replay",
        How::Eager => "eager",
    }
}

/// A line as far as it is written.
struct Line(String);

impl Line {
    fn name(&mut self, name: &str) -> &mut Self {
        self.quote(name);
        self
    }

    fn raw(&mut self, member: &str, value: &str) -> &mut Self {
        self.0.push(',');
        self.quote(member);
        self.0.push(':');
        self.0.push_str(value);
        self
    }

    fn number(&mut self, member: &str, value: u64) -> &mut Self {
        self.raw(member, &value.to_string())
    }

    fn maybe(&mut self, member: &str, value: Option<u64>) -> &mut Self {
        match value {
            Some(value) => self.number(member, value),
            None => self.raw(member, "null"),
        }
    }

    fn text(&mut self, member: &str, value: &str) -> &mut Self {
        self.raw(member, "");
        self.quote(value);
        self
    }

    fn maybe_text(&mut self, member: &str, value: Option<&str>) -> &mut Self {
        match value {
            Some(value) => self.text(member, value),
            None => self.raw(member, "null"),
        }
    }

    fn function(&mut self, member: &str, value: &FunctionName) -> &mut Self {
        self.raw(member, &format!("{{\"id\":{},\"name\":", value.id));
        self.quote(&value.name);
        self.0.push('}');
        self
    }

    /// Writes a string as RFC 8259 wants it: quotes, backslashes and control characters are escaped.
    fn quote(&mut self, text: &str) {
        self.0.push('"');
        for letter in text.chars() {
            match letter {
                '"' | '\\' => self.0.extend(['\\', letter]),
                '\n' => self.0.push_str("\\n"),
                // Writing to a string cannot fail.
                letter if letter < ' ' => drop(write!(self.0, "\\u{:04x}", u32::from(letter))),
                letter => self.0.push(letter),
            }
        }
        self.0.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> FunctionName {
        FunctionName { id: 3, name: "a \"b\" \\ \n\t\u{1}é".into() }
    }

    #[test]
    fn every_event_is_an_object_with_its_name_and_members() {
        let called = |why: Option<String>| Event::Called {
            pool: 1,
            function: name(),
            phase: Phase::Forward,
            how: How::WarmUp,
            why,
            node: None,
            step: 4,
        };
        let recorded = Event::Recorded {
            pool: 1,
            function: name(),
            node: 7,
            parent: Some(2),
            graph_nodes: Some(9),
            exec_bytes: None,
            live_bytes: 512,
            ns: 10,
        };
        let all = [
            (Event::Registered { function: name() }, "registered"),
            (Event::StepBegan { pool: 1, step: 2 }, "step_began"),
            (Event::PathEnded { pool: 1, by: name(), stale: 1, copied: 2, bytes: 64 }, "path_ended"),
            (called(None), "called"),
            (called(Some("\"why\"".to_owned())), "called"),
            (Event::Failed { function: name(), error: "e".to_owned() }, "failed"),
            (recorded, "recorded"),
            (Event::RecordingFailed { pool: 1, function: name(), error: "e".to_owned() }, "recording_failed"),
            (Event::Evicted { pool: 1, node: 2 }, "evicted"),
            (Event::PoolGrew { pool: 1, bytes: 2, reserved: 3 }, "pool_grew"),
            (Event::PoolShrank { pool: 1, bytes: 2, reserved: 3 }, "pool_shrank"),
            (Event::Noticed { pool: 1, function: name(), what: "w".to_owned() }, "noticed"),
            (Event::Judged { function: name(), records: true, why: "w".to_owned() }, "judged"),
            (Event::Reset, "reset"),
            (Event::ShutDown, "shut_down"),
        ];
        for (number, (event, word)) in (0..).zip(&all) {
            let line = line(number, event);
            assert!(line.ends_with("}\n") && line.matches('\n').count() == 1, "{line}");
            let value: serde_json::Value = serde_json::from_str(&line).unwrap();
            assert_eq!(
                (&value["v"], &value["n"], &value["event"]),
                (&1.into(), &number.into(), &(*word).into())
            );
            for member in ["function", "by"] {
                if let Some(function) = value.get(member) {
                    assert_eq!((&function["id"], &function["name"]), (&3.into(), &(*name().name).into()));
                }
            }
        }
        let value: serde_json::Value = serde_json::from_str(&line(0, &all[4].0)).unwrap();
        assert_eq!((&value["why"], &value["node"]), (&"\"why\"".into(), &serde_json::Value::Null));
    }

    /// Takes so many lines, and then nothing.
    struct Full(usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(1).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_first_error_is_told_by_the_next_flush() {
        let lines = JsonLines::new(Full(1));
        lines.event(&Event::Reset);
        lines.flush().unwrap();
        lines.event(&Event::Reset);
        lines.event(&Event::Reset);
        assert_eq!(lines.flush().unwrap_err().kind(), std::io::ErrorKind::StorageFull);
        lines.flush().unwrap();
    }
}
