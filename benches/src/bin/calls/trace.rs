//! Reading a trace of calls: JSON lines, a heading, then recordings, then calls.

use serde_json::Value;

use crate::error::{Error, Result};

/// A trace as it was written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trace {
    pub(crate) name: String,
    /// Bytes that the pool of `torch` held at the end; none if the trace is not one of `torch`.
    pub(crate) reserved: Option<u64>,
    pub(crate) recordings: Vec<Recording>,
    pub(crate) calls: Vec<Call>,
}

/// One recording: what its function did, and what it returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recording {
    pub(crate) node: u64,
    pub(crate) function: usize,
    pub(crate) outputs: Vec<Output>,
    pub(crate) body: Vec<Event>,
}

/// One output of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// Memory that the body has allocated.
    Fresh { bytes: u64, id: u64 },
    /// An output of an earlier node of the path.
    Prior { depth: usize, output: usize },
    /// Another output of the same recording.
    Sibling { output: usize },
    /// A parameter; the trace does not say which.
    Static,
    /// No tensor.
    Nothing,
}

/// One event of a body. Its first allocations are the copies of the staged inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Allocate { id: u64, bytes: u64 },
    Free { id: u64 },
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) function: usize,
    pub(crate) mode: Mode,
    pub(crate) step: i64,
    pub(crate) inputs: Vec<Input>,
    /// Which outputs of each node of the path were alive when the call came.
    pub(crate) live: Vec<Vec<bool>>,
    /// The inputs that it writes to.
    pub(crate) mutated: Vec<usize>,
    pub(crate) ran: Ran,
    /// The recording that it made or replayed.
    pub(crate) node: Option<u64>,
}

/// What a call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Forward,
    Backward,
    Inference,
}

/// One input of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    Staged {
        bytes: u64,
    },
    Parameter {
        id: u64,
        bytes: u64,
    },
    /// An output of the call at this depth of the path, the root being 0.
    Path {
        depth: usize,
        output: usize,
        bytes: u64,
    },
    Value(u64),
    Nothing,
}

/// What a call became.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ran {
    WarmUp,
    Record,
    Replay,
    Eager,
}

impl Trace {
    /// Reads a trace.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let Some((_, first)) = lines.next() else {
            return Err(Error::Line { line: 1, why: "an empty trace".to_owned() });
        };
        let at = |line: usize| move |why: String| Error::Line { line: line + 1, why };
        let heading = object(first).map_err(at(0))?;
        let name = heading["workload"].as_str().ok_or("no workload".to_owned()).map_err(at(0))?;
        let mut trace = Self {
            name: name.to_owned(),
            reserved: heading["torch_pool_reserved_bytes"].as_u64(),
            recordings: Vec::new(),
            calls: Vec::new(),
        };
        for (line, text) in lines {
            let value = object(text).map_err(at(line))?;
            if value.get("call").is_some() {
                trace.calls.push(call(&value).map_err(at(line))?);
            } else {
                trace.recordings.push(recording(&value).map_err(at(line))?);
            }
        }
        Ok(trace)
    }
}

type Parsed<T> = std::result::Result<T, String>;

fn object(line: &str) -> Parsed<Value> {
    let value: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
    if value.is_object() { Ok(value) } else { Err("no object".to_owned()) }
}

fn number(value: &Value, what: &str) -> Parsed<u64> {
    value.as_u64().ok_or_else(|| format!("{what} is no number: {value}"))
}

fn list<T>(value: &Value, what: &str, item: impl Fn(&Value) -> Parsed<T>) -> Parsed<Vec<T>> {
    let all = value.as_array().ok_or_else(|| format!("{what} is no list: {value}"))?;
    all.iter().map(item).collect()
}

/// An entry such as `["fresh", 512, 3]`: its tag and the numbers behind it.
fn tagged(value: &Value) -> Parsed<(&str, Vec<u64>)> {
    let all = value.as_array().ok_or_else(|| format!("no entry: {value}"))?;
    let [tag, numbers @ ..] = &all[..] else { return Err("an empty entry".to_owned()) };
    let tag = tag.as_str().ok_or_else(|| format!("no tag: {value}"))?;
    Ok((tag, numbers.iter().map(|at| number(at, "an entry")).collect::<Parsed<_>>()?))
}

fn recording(value: &Value) -> Parsed<Recording> {
    Ok(Recording {
        node: number(&value["node"], "node")?,
        function: number(&value["fn"], "fn")? as usize,
        outputs: list(&value["outputs"], "outputs", output)?,
        body: list(&value["body"], "body", event)?,
    })
}

fn output(value: &Value) -> Parsed<Output> {
    let (tag, numbers) = tagged(value)?;
    Ok(match (tag, &numbers[..]) {
        ("fresh", &[bytes, id]) => Output::Fresh { bytes, id },
        ("prior", &[depth, output]) => Output::Prior { depth: depth as usize, output: output as usize },
        ("sibling", &[output]) => Output::Sibling { output: output as usize },
        ("static", []) => Output::Static,
        ("none", []) => Output::Nothing,
        _ => return Err(format!("an unknown output: {value}")),
    })
}

fn event(value: &Value) -> Parsed<Event> {
    let numbers = list(value, "an event", |at| at.as_i64().ok_or_else(|| format!("no number: {at}")))?;
    Ok(match numbers[..] {
        [id, bytes] if id >= 0 && bytes > 0 => Event::Allocate { id: id as u64, bytes: bytes as u64 },
        [free] if free < 0 => Event::Free { id: (-free - 1) as u64 },
        _ => return Err(format!("an unknown event: {value}")),
    })
}

fn call(value: &Value) -> Parsed<Call> {
    let mode = match value["mode"].as_str() {
        Some("forward") => Mode::Forward,
        Some("backward") => Mode::Backward,
        Some("inference") => Mode::Inference,
        _ => return Err(format!("an unknown mode: {}", value["mode"])),
    };
    let ran = match value["result"].as_str() {
        Some("warmup") => Ran::WarmUp,
        Some("record") => Ran::Record,
        Some("replay") => Ran::Replay,
        Some("eager") => Ran::Eager,
        _ => return Err(format!("an unknown result: {}", value["result"])),
    };
    let bits = |text: &Value| {
        let text = text.as_str().ok_or_else(|| format!("no bits: {text}"))?;
        Ok(text.bytes().map(|bit| bit == b'1').collect())
    };
    Ok(Call {
        function: number(&value["fn"], "fn")? as usize,
        mode,
        step: value["step"].as_i64().ok_or("no step")?,
        inputs: list(&value["inputs"], "inputs", input)?,
        live: list(&value["live"], "live", bits)?,
        mutated: list(&value["mutated"], "mutated", |at| number(at, "mutated").map(|at| at as usize))?,
        ran,
        node: value["node"].as_u64(),
    })
}

fn input(value: &Value) -> Parsed<Input> {
    let (tag, numbers) = tagged(value)?;
    Ok(match (tag, &numbers[..]) {
        ("x", &[bytes]) => Input::Staged { bytes },
        ("p", &[id, bytes]) => Input::Parameter { id, bytes },
        ("m", &[depth, output, bytes]) => {
            Input::Path { depth: depth as usize, output: output as usize, bytes }
        }
        ("i", &[value]) => Input::Value(value),
        ("n", []) => Input::Nothing,
        _ => return Err(format!("an unknown input: {value}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADING: &str = r#"{"workload":"w","torch_pool_reserved_bytes":4096}"#;

    #[test]
    fn a_recording_and_a_call_are_read_as_they_were_written() {
        let text = format!(
            "{HEADING}\n{}\n{}\n",
            r#"{"node":2,"fn":1,"parent":0,"outputs":[["fresh",8,1],["prior",0,3],["sibling",0],["static"],["none"]],"body":[[0,16],[1,8],[-1]]}"#,
            r#"{"call":0,"fn":1,"mode":"backward","step":-2,"inputs":[["x",16],["p",7,32],["m",1,2,8],["i",5],["n"]],"live":["10"],"mutated":[1],"result":"replay","node":2}"#,
        );
        let trace = Trace::parse(&text).unwrap();
        assert_eq!((trace.name.as_str(), trace.reserved), ("w", Some(4096)));
        let [recording] = &trace.recordings[..] else { unreachable!("{trace:?}") };
        assert_eq!((recording.node, recording.function), (2, 1));
        assert_eq!(
            recording.outputs,
            [
                Output::Fresh { bytes: 8, id: 1 },
                Output::Prior { depth: 0, output: 3 },
                Output::Sibling { output: 0 },
                Output::Static,
                Output::Nothing
            ]
        );
        let (allocate, free) = (|id, bytes| Event::Allocate { id, bytes }, Event::Free { id: 0 });
        assert_eq!(recording.body, [allocate(0, 16), allocate(1, 8), free]);
        let [call] = &trace.calls[..] else { unreachable!("{trace:?}") };
        assert_eq!((call.mode, call.step, call.ran, call.node), (Mode::Backward, -2, Ran::Replay, Some(2)));
        assert_eq!(
            call.inputs,
            [
                Input::Staged { bytes: 16 },
                Input::Parameter { id: 7, bytes: 32 },
                Input::Path { depth: 1, output: 2, bytes: 8 },
                Input::Value(5),
                Input::Nothing
            ]
        );
        assert_eq!((&call.live[..], &call.mutated[..]), (&[vec![true, false]][..], &[1][..]));
    }

    #[test]
    fn what_cannot_be_read_is_an_error_that_names_the_line() {
        for (line, bad) in [
            (1, "{}"),
            (1, "[]"),
            (2, r#"{"node":0,"fn":0,"outputs":[["new",1]],"body":[]}"#),
            (2, r#"{"node":0,"fn":0,"outputs":[],"body":[[1,2,3]]}"#),
            (2, r#"{"node":0,"fn":0,"outputs":[],"body":[[0,0]]}"#),
            (2, r#"{"call":0,"fn":0,"mode":"sideways"}"#),
            (2, r#"{"call":0,"fn":0,"mode":"forward","result":"replay","step":1,"inputs":[["q"]]}"#),
            (2, "{"),
        ] {
            let text = if line == 1 { bad.to_owned() } else { format!("{HEADING}\n{bad}") };
            match Trace::parse(&text) {
                Err(Error::Line { line: at, .. }) => assert_eq!(at, line, "{bad}"),
                other => unreachable!("{bad}: {other:?}"),
            }
        }
        assert!(matches!(Trace::parse(""), Err(Error::Line { line: 1, .. })));
    }
}
