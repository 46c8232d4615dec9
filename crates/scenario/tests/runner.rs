//! What the runner says of programs that are not as they should be, and of those that are.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::PathBuf;
use std::process::{Command, Output};

use graphgrove_scenario::{Finding, ModeName, Options, Outcome, Report, parse, run};

fn report(text: &str) -> Report {
    run(&parse(text).unwrap(), &Options::default())
}

fn failed(text: &str) -> Finding {
    match report(text).outcome {
        Outcome::Failed(finding) => finding,
        other => panic!("{other:?}"),
    }
}

const F: &str = "fn f(x) -> y\n  y = add x 1\n";

#[test]
fn a_wrong_value_is_said_by_element_and_set_up() {
    let finding = failed(&format!("{F}y = call f([2, 2] 1)\nexpect y == [2, 2] 2 2 3 2\n"));
    assert_eq!((finding.line, finding.setup.as_str()), (4, "trees"));
    assert_eq!(finding.why, "element [1, 0] of `y` is 2, not 3");
    assert!(finding.explained.contains("line 3: f warmed up"), "{}", finding.explained);
    assert!(finding.explained.contains("the recordings:"), "{}", finding.explained);
}

#[test]
fn a_wrong_count_is_said_with_what_it_is() {
    let finding = failed(&format!("{F}repeat 3\n  y = call f([4] 1)\n  drop y\nexpect replays == 2\n"));
    assert_eq!(finding.why, "expect replays == 2: `replays` is 1, and not == 2");
    let compared =
        |demand: &str| failed(&format!("{F}y = call f([4] 1)\nnote n = calls\nexpect {demand}\n")).why;
    assert_eq!(
        compared("replays of f >= n + 2"),
        "expect replays of f >= (n + 2): `replays of f` is 0, and not >= 3"
    );
    assert_eq!(compared("3 < n"), "expect 3 < n: 3, and not < 1");
    let finding = failed(&format!("{F}y = call f([4] 1)\nexpect in eager recordings == 1\n"));
    assert_eq!(finding.setup, "eager");
}

#[test]
fn an_error_that_nobody_speaks_of_is_a_failure_and_so_is_one_that_does_not_come() {
    let moody = "fn f(x) -> y\n  y = add x 1\n  fail on run 1\n";
    assert!(failed(&format!("{moody}y = call f([4] 1)\n")).why.contains("`f` failed: "));
    assert_eq!(report(&format!("{moody}try y = call f([4] 1)\n")).outcome, Outcome::Passed);
    assert_eq!(report(&format!("{moody}y = call f([4] 1) fails failed\n")).outcome, Outcome::Passed);
    assert_eq!(failed(&format!("{F}y = call f([4] 1) fails stale\n")).why, "`f` should have failed: stale");
    let finding = failed(&format!("{moody}y = call f([4] 1) fails stale\n"));
    assert!(finding.why.contains("stale expected, not"), "{}", finding.why);
}

#[test]
fn a_name_that_holds_nothing_is_left_out_only_where_that_is_tried() {
    let text = "fn f(x) -> y\n  y = add x 1\n  fail on run 1\ntry y = call f([4] 1)\n";
    assert!(failed(&format!("{text}z = call f(y)\n")).why.contains("`y` holds nothing"));
    assert_eq!(report(&format!("{text}try z = call f(y)\n")).outcome, Outcome::Passed);
}

#[test]
fn a_program_whose_shapes_do_not_fit_is_impossible_and_not_wrong() {
    for body in ["  y = matmul x x\n", "  y = view x at 1 shape [9]\n", "  y = [2] 1 2 3\n"] {
        let text = format!("fn f(x) -> y\n{body}y = call f([4] 1)\n");
        match report(&text).outcome {
            Outcome::Impossible(finding) => assert!(finding.line == 2 || finding.line == 3, "{finding:?}"),
            other => panic!("{body}{other:?}"),
        }
    }
}

#[test]
fn a_number_that_is_none_is_impossible_in_the_line_that_has_it() {
    let impossible = |text: &str| match report(text).outcome {
        Outcome::Impossible(finding) => (finding.line, finding.why),
        other => panic!("{text}{other:?}"),
    };
    let divided = "`(4 / k)` divides by zero".to_owned();
    for statement in
        ["x = [4 / k] 1", "size m = 4 / k", "fault refuse at any 4 / k", "y = call f([1] 1, 4 / k)"]
    {
        let text = format!("fn f(x, n) -> y\n  y = [n] 1\nsize k = 0\n{statement}\ny = call f([1] 1, 1)\n");
        assert_eq!(impossible(&text), (4, divided.clone()), "{statement}");
    }
    let inside = "fn f(k) -> y\n  y = [4 / k] 1\ny = call f(0)\n";
    assert_eq!(impossible(inside), (2, divided));
    let none = "no number is from 9 to 1: the least one comes first".to_owned();
    assert_eq!(impossible("size n = 9\nsize k = random n to 1\n"), (2, none));
    assert_eq!(impossible("x = draw [1G, 1G, 1G]\n").0, 1);
}

#[test]
fn a_program_ends_at_a_million_statements_whatever_its_numbers_are() {
    let too_many = "the program would run more than 1000000 statements, the most that a scenario may run";
    for (text, line) in [
        ("size n = 100G\nrepeat n\n  step\n", 2),
        ("size n = 100G\nthreads n\n  step\n", 2),
        ("size n = 1000\nrepeat n\n  repeat 1000\n    size m = 1\n", 2),
        ("set only eager\nsize n = 1000\nrepeat n\n  repeat n\n    size m = 1\n", 4),
    ] {
        match report(text).outcome {
            Outcome::Impossible(finding) => {
                assert_eq!((finding.line, finding.why.as_str()), (line, too_many));
            }
            other => panic!("{text}{other:?}"),
        }
    }
    let most = "set only eager\nsize n = 999\nrepeat n\n  repeat n\n    size m = 1\n";
    assert_eq!(report(most).outcome, Outcome::Passed);
}

#[test]
fn no_more_threads_are_begun_than_there_may_be() {
    match report("set only eager\nsize n = 60\nthreads n + 5\n  size m = 1\n").outcome {
        Outcome::Impossible(finding) => {
            assert_eq!((finding.line, finding.why.as_str()), (3, "65 threads, and there may be 64 at once"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_shape_without_dimensions_is_printed_as_it_is_written() {
    let text = "fn f(x, h) -> y\n  a = empty []\n  b = draw []\n  y = view x at 1 shape [] strides []\n  c = upload h []\nx = [] 2\ny = rand []\nz = count []\n";
    assert_eq!(parse(text).unwrap().to_string().replace("\n\n", "\n"), text);
}

#[test]
fn what_is_not_built_is_skipped_by_name() {
    let skipped = |text: &str| match report(text).outcome {
        Outcome::Skipped { why } => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(skipped("suspend\n"), "requires suspend");
    assert_eq!(skipped("requires reports, measured-switch, collectives\n"), "requires collectives, reports");
    assert_eq!(skipped("skip \"not now\"\n"), "not now");
}

#[test]
fn options_and_settings_choose_the_set_ups() {
    let text = format!("{F}y = call f([4] 1)\n");
    let setups = |options: &Options, text: &str| run(&parse(text).unwrap(), options).setups;
    assert_eq!(setups(&Options::default(), &text), 13);
    assert_eq!(setups(&Options { layers: Some(3), ..Options::default() }, &text), 2);
    assert_eq!(setups(&Options { mode: Some(ModeName::Eager), ..Options::default() }, &text), 1);
    assert_eq!(setups(&Options::default(), &format!("set only trees/3, eager\n{text}")), 2);
}

#[test]
fn the_same_seed_gives_the_same_choices_and_another_one_others() {
    let text = "fn f(x) -> y\n  y = add x 1\nrepeat 8\n  x = rand [4]\n  choose\n    either\n      y = call f(x)\n    either\n      step\n";
    let compared = |seed| run(&parse(text).unwrap(), &Options { seed, ..Options::default() }).compared;
    assert_eq!(compared(Some(5)), compared(Some(5)));
    assert!((0..20).any(|seed| compared(Some(seed)) != compared(Some(5))));
}

/// Runs the program on a file with this text.
fn command(name: &str, text: &str, arguments: &[&str]) -> Output {
    let file: PathBuf = std::env::temp_dir().join(format!("graphgrove-{}-{name}.scn", std::process::id()));
    std::fs::write(&file, text).unwrap();
    let output =
        Command::new(env!("CARGO_BIN_EXE_graphgrove-scenario")).arg(&file).args(arguments).output().unwrap();
    std::fs::remove_file(file).unwrap();
    output
}

#[test]
fn the_exit_status_says_whether_all_passed_or_something_failed_or_is_no_scenario() {
    let said = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let good = command("good", &format!("{F}y = call f([4] 1)\n"), &[]);
    assert_eq!(good.status.code(), Some(0));
    assert_eq!(said(&good).lines().last(), Some("1 passed, 0 failed, 0 skipped"));
    let bad = command("bad", &format!("{F}y = call f([4] 1)\nexpect y == [4] 1\n"), &[]);
    assert_eq!(bad.status.code(), Some(1));
    assert!(said(&bad).contains("bad.scn:4 in trees: element [0] of `y` is 2, not 1"), "{}", said(&bad));
    let none = command("none", "what is this\n", &[]);
    assert_eq!(none.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&none.stderr).contains("none.scn:1:1: found `what`"));
    let missing =
        Command::new(env!("CARGO_BIN_EXE_graphgrove-scenario")).arg("/no/such.scn").output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
}

#[test]
fn a_device_that_is_not_there_is_said_before_anything_runs() {
    let output = command("abacus", "step\n", &["--device", "abacus"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said, "scenario: there is no device `abacus`: the devices are sim and cuda\n");
    // A driver that is there would open, so it is hidden: the program finds no device that it may see.
    let file = std::env::temp_dir().join(format!("graphgrove-{}-hidden.scn", std::process::id()));
    std::fs::write(&file, "step\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_graphgrove-scenario"))
        .arg(&file)
        .args(["--device", "cuda"])
        .env("CUDA_VISIBLE_DEVICES", "")
        .output();
    std::fs::remove_file(file).unwrap();
    let output = output.unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.starts_with("scenario: --device cuda: ") && said.lines().count() == 1, "{said}");
}

#[test]
fn json_has_one_object_a_file_and_one_for_the_sum() {
    let output = command("json", &format!("{F}y = call f([4] 1)\n"), &["--json"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["report"]["outcome"]["outcome"], "passed");
    assert_eq!(lines[1]["passed"], 1);
}

#[test]
fn json_has_an_object_for_a_file_that_is_no_scenario_with_the_place_and_for_one_that_is_not_there() {
    let output = command("broken", "step\nx = cal\n", &["/no/such.scn", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0]["file"].as_str().unwrap().ends_with("broken.scn"), "{text}");
    assert_eq!((&lines[0]["error"]["line"], &lines[0]["error"]["column"]), (&2.into(), &5.into()));
    let why = lines[0]["error"]["why"].as_str().unwrap();
    assert!(why.starts_with("found `cal`, expected a call"), "{why}");
    assert_eq!(lines[1]["file"], "/no/such.scn");
    assert!(lines[1]["error"]["why"].is_string() && lines[1]["error"]["line"].is_null(), "{text}");
    assert_eq!((&lines[2]["passed"], &lines[2]["failed"]), (&0.into(), &2.into()));
}
