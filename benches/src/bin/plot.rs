//! Draws the figures of `on-cuda` and of its peer as an SVG, and prints them as a table in Markdown: host time of one call by outputs
//! and by staged inputs.
//!
//! `cargo run --release -p graphgrove-benches --bin plot -- --figures ON_CUDA.json --peer PYTORCH.json --out FILE.svg`

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use plotters::coord::Shift;
use plotters::prelude::*;
use serde_json::Value;

/// Draws measured figures.
#[derive(Debug, Parser)]
#[command(name = "plot")]
struct Arguments {
    /// What `on-cuda --json` has written.
    #[arg(long)]
    figures: PathBuf,
    /// What `pytorch.py` has written.
    #[arg(long)]
    peer: PathBuf,
    /// The picture.
    #[arg(long)]
    out: PathBuf,
}

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// One line of a panel.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    name: &'static str,
    colour: RGBColor,
    /// Place on the axis, and microseconds.
    points: Vec<(f64, f64)>,
}

/// What is drawn: the name of a line, the key of its figures, whether they are the peer's, and its colour.
const LINES: [(&str, &str, bool, RGBColor); 6] = [
    ("bare launch", "bare_us", false, RGBColor(0, 0, 0)),
    ("graphgrove, outputs in bulk", "call_bulk_us", false, RGBColor(0, 114, 178)),
    ("graphgrove, outputs one by one", "call_each_us", false, RGBColor(86, 180, 233)),
    ("PyTorch, graph alone", "graph_us", true, RGBColor(150, 150, 150)),
    ("PyTorch, before the trees", "before_trees_us", true, RGBColor(230, 159, 0)),
    ("PyTorch, CUDAGraph Trees", "trees_us", true, RGBColor(213, 94, 0)),
];

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plot: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Outcome {
    let (ours, peers) = (read(&arguments.figures)?, read(&arguments.peer)?);
    let (ours, peers) = (rows(&ours["replay"])?, rows(&peers["rows"])?);
    print!("{}", table(ours, peers));
    let root = SVGBackend::new(&arguments.out, (1100, 460)).into_drawing_area();
    root.fill(&WHITE)?;
    let (left, right) = root.split_horizontally(550);
    let by_outputs = lines(ours, peers, ("outputs", &[1, 10, 50, 160, 320]), ("staged", 0));
    let by_inputs = lines(ours, peers, ("staged", &[0, 1, 8, 32, 128]), ("outputs", 10));
    panel(&left, "parameters only, by outputs", &["1", "10", "50", "160", "320"], &by_outputs)?;
    panel(&right, "10 outputs, by staged inputs", &["0", "1", "8", "32", "128"], &by_inputs)?;
    root.present()?;
    Ok(())
}

fn read(file: &Path) -> Outcome<Value> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?)
}

fn rows(value: &Value) -> Outcome<&[Value]> {
    Ok(value.as_array().ok_or("the file has no rows of replays")?)
}

/// The lines of a panel: the figures at some places of one axis, with the other one fixed. A line without figures is left out.
fn lines(
    ours: &[Value],
    peers: &[Value],
    (axis, places): (&str, &[u64]),
    (fixed, at): (&str, u64),
) -> Vec<Line> {
    let line = |(name, key, is_peer, colour): (&'static str, &str, bool, RGBColor)| {
        let rows = if is_peer { peers } else { ours };
        let point = |(number, place): (usize, &u64)| {
            let row = rows.iter().find(|row| row[axis] == *place && row[fixed] == at)?;
            Some((number as f64, row[key].as_f64()?))
        };
        let points: Vec<_> = places.iter().enumerate().filter_map(point).collect();
        (!points.is_empty()).then_some(Line { name, colour, points })
    };
    LINES.into_iter().filter_map(line).collect()
}

/// The rows of both panels, in microseconds.
fn table(ours: &[Value], peers: &[Value]) -> String {
    let mut text = String::from(
        "| outputs | staged inputs | bare launch | a call, outputs in bulk | outputs one by one | all addresses change | \
         PyTorch: graph alone | trees | before the trees |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    let wanted = [1, 10, 50, 160, 320].map(|outputs| (outputs, 0)).into_iter();
    for (outputs, staged) in wanted.chain([1, 8, 32, 128].map(|staged| (10, staged))) {
        let of = |rows: &[Value]| {
            rows.iter().find(|row| row["outputs"] == outputs && row["staged"] == staged).cloned()
        };
        let (Some(own), peer) = (of(ours), of(peers).unwrap_or_default()) else { continue };
        let bare = own["bare_us"].as_f64().unwrap_or(f64::NAN);
        let beside = |key: &str| match own[key].as_f64() {
            Some(us) => format!("{us:.2} ({:.2}x, {:+.2})", us / bare, us - bare),
            None => "-".to_owned(),
        };
        let other = |key: &str| peer[key].as_f64().map_or_else(|| "-".to_owned(), |us| format!("{us:.1}"));
        text.push_str(&format!(
            "| {outputs} | {staged} | {bare:.2} | {} | {} | {} | {} | {} | {} |\n",
            beside("call_bulk_us"),
            beside("call_each_us"),
            beside("call_changed_us"),
            other("graph_us"),
            other("trees_us"),
            other("before_trees_us"),
        ));
    }
    text
}

fn panel(area: &DrawingArea<SVGBackend<'_>, Shift>, title: &str, places: &[&str], lines: &[Line]) -> Outcome {
    let most = lines.iter().flat_map(|line| &line.points).map(|point| point.1).fold(10.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(58)
        .build_cartesian_2d(-0.2..places.len() as f64 - 0.8, (1.0..most * 6.0).log_scale())?;
    let label = |place: &f64| {
        let is_whole = (place - place.round()).abs() < 1e-6;
        places.get(place.round().max(0.0) as usize).filter(|_| is_whole).map_or("", |label| label).to_owned()
    };
    chart
        .configure_mesh()
        .x_labels(places.len() * 2)
        .x_label_formatter(&label)
        .y_desc("host time of one call, us")
        .light_line_style(WHITE.mix(0.0))
        .draw()?;
    for Line { name, colour, points } in lines {
        let colour = *colour;
        chart
            .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.9))
        .label_font(("sans-serif", 12))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_has_the_rows_of_its_axis_and_lacks_what_was_not_measured() {
        let ours = [
            json!({ "outputs": 1, "staged": 0, "bare_us": 1.5, "call_bulk_us": 1.6 }),
            json!({ "outputs": 10, "staged": 0, "bare_us": 1.7 }),
            json!({ "outputs": 10, "staged": 8, "bare_us": 9.0 }),
        ];
        let peers = [json!({ "outputs": 10, "staged": 0, "trees_us": 40.0 })];
        let lines = lines(&ours, &peers, ("outputs", &[1, 10]), ("staged", 0));
        let names: Vec<_> = lines.iter().map(|line| line.name).collect();
        assert_eq!(names, ["bare launch", "graphgrove, outputs in bulk", "PyTorch, CUDAGraph Trees"]);
        assert_eq!(lines[0].points, [(0.0, 1.5), (1.0, 1.7)]);
        assert_eq!(lines[1].points, [(0.0, 1.6)]);
        assert_eq!(lines[2].points, [(1.0, 40.0)]);
    }

    #[test]
    fn a_row_of_the_table_stands_beside_the_bare_launch_and_says_what_was_not_measured() {
        let ours = [
            json!({ "outputs": 10, "staged": 8, "bare_us": 2.0, "call_bulk_us": 2.2, "call_changed_us": 3.0 }),
        ];
        let peers = [json!({ "outputs": 10, "staged": 8, "trees_us": 40.0 })];
        let table = table(&ours, &peers);
        let last = table.lines().last();
        let row = "| 10 | 8 | 2.00 | 2.20 (1.10x, +0.20) | - | 3.00 (1.50x, +1.00) | - | 40.0 | - |";
        assert_eq!((table.lines().count(), last), (3, Some(row)));
    }

    #[test]
    fn a_picture_has_both_panels() {
        let folder = std::env::temp_dir().join(format!("graphgrove-plot-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = |name: &str, value: &Value| {
            let path = folder.join(name);
            std::fs::write(&path, value.to_string()).unwrap();
            path
        };
        let row = |outputs: u64, staged: u64| json!({ "outputs": outputs, "staged": staged, "bare_us": 2.0, "trees_us": 50.0 });
        let all = json!([row(1, 0), row(10, 0), row(10, 8)]);
        let figures = file("figures.json", &json!({ "replay": all }));
        let peer = file("peer.json", &json!({ "rows": all }));
        let out = folder.join("plot.svg");
        run(&Arguments { figures, peer, out: out.clone() }).unwrap();
        let picture = std::fs::read_to_string(&out).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(picture.contains("by outputs") && picture.contains("by staged inputs"), "{picture}");
        assert!(picture.contains("CUDAGraph Trees"), "{picture}");
    }
}
