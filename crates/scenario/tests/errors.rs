//! What is wrong with a file is said with its place, and with what was expected there.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use expect_test::{Expect, expect};
use graphgrove_scenario::parse;

/// The error of a text, with its line and a mark.
fn error(text: &str, expected: &Expect) {
    let error = parse(text).unwrap_err();
    expected.assert_eq(&error.in_context("a.scn", text).to_string());
}

#[test]
fn an_unknown_word_is_answered_with_those_that_are_known() {
    error(
        "repeat 3\n  y = cal f(x)\n",
        &expect![[r#"
        a.scn:2:7: found `cal`, expected a call (`call`, `forward`, `backward`), a tensor (`[4] 1`, `rand [4]`, `count [4]`), `view` or `clone`
            y = cal f(x)
                ^"#]],
    );
    error(
        "set strickt\n",
        &expect![[r#"
        a.scn:1:5: found `strickt`, expected a setting: `only`, `old`, `seed`, `limit`, `budget`, `memory`, `strict`, `lazy`, `no-plan`, `engines`
          set strickt
              ^"#]],
    );
    error(
        "fn f(x) -> y\n  y = ad x 1\n",
        &expect![[r#"
        a.scn:2:7: found `ad`, expected an operation (`add`, `sub`, `mul`, `min`, `max`, `neg`, `relu`, `square`, `mix`, `matmul`, `sum`, `copy`), a tensor (`[4] 1`, `empty [4]`, `empty like x`), `view`, `saved`, `upload` or `draw`
            y = ad x 1
                ^"#]],
    );
}

#[test]
fn functions_can_be_tried_out_and_set_ups_cannot() {
    parse("fn f(x) -> x with mode auto\n  add! x 1\n").unwrap();
    error(
        "set only auto\n",
        &expect![[r#"
            a.scn:1:10: found `auto`, expected `all`, or a mode (`trees`, `one-pool`, `eager`), perhaps with layers (`trees/3`)
              set only auto
                       ^"#]],
    );
}

#[test]
fn a_line_that_stops_too_early_or_goes_on_too_long_is_refused_there() {
    error(
        "x = [4]\n",
        &expect![[r#"
        a.scn:1:8: found the end of the line, expected a value, or several
          x = [4]
                 ^"#]],
    );
    error(
        "step now\n",
        &expect![[r#"
        a.scn:1:6: found `now`, expected the end of the line
          step now
               ^"#]],
    );
    error(
        "x = [4 1\n",
        &expect![[r#"
        a.scn:1:8: found `1`, expected `,` or `]`
          x = [4 1
                 ^"#]],
    );
    error(
        "repeat 3\nstep\n",
        &expect![[r#"
        a.scn:2:1: found no block, expected a block: lines that are indented further
          step
          ^"#]],
    );
    error(
        "step\n  step\n",
        &expect![[r#"
        a.scn:2:3: found an indented line, expected no block below this statement: a line that is not indented further
            step
            ^"#]],
    );
}

#[test]
fn a_program_that_cannot_be_is_refused_before_it_runs() {
    let function = "fn f(x) -> y\n  y = add x 1\n";
    error(
        &format!("{function}y = call f(z)\n"),
        &expect![[r#"
        a.scn:3:12: `z` holds nothing here
          y = call f(z)
                     ^"#]],
    );
    error(
        &format!("{function}y = call g([4] 1)\n"),
        &expect![[r#"
        a.scn:3:10: there is no function `g`
          y = call g([4] 1)
                   ^"#]],
    );
    error(
        &format!("{function}y = call f([4] 1, 2)\n"),
        &expect![[r#"
        a.scn:3:10: `f` has 1 inputs, and 2 are given
          y = call f([4] 1, 2)
                   ^"#]],
    );
    error(
        &format!("{function}a, b = call f([4] 1)\n"),
        &expect![[r#"
            a.scn:3:13: `f` has 1 outputs, and 2 are named
              a, b = call f([4] 1)
                          ^"#]],
    );
    error(
        &format!("{function}x = [4] 1\ny = call f(give x)\ny = call f(x)\n"),
        &expect![[r#"
        a.scn:5:12: `x` holds nothing here
          y = call f(x)
                     ^"#]],
    );
    error(
        &format!("{function}param w = [4] 1\ny = call f([4] 1)\ny = call f(w)\n"),
        &expect![[r#"
        a.scn:5:10: `x` of `f` is a parameter here and a tensor in an earlier call
          y = call f(w)
                   ^"#]],
    );
    error(
        "fn f(x) -> y\n  z = add x 1\n",
        &expect![[r#"
        a.scn:1:12: `y` holds nothing here
          fn f(x) -> y
                     ^"#]],
    );
    error(
        "fn f(x) -> y\n  s = saved 0\n  add! s 1\n  y = add s x\n",
        &expect![[r#"
        a.scn:3:8: what a forward has saved cannot be written to
            add! s 1
                 ^"#]],
    );
}

#[test]
fn a_counter_that_is_not_spelt_right_is_answered_with_all_of_them() {
    let counters = "`calls`, `warm-ups`, `recordings`, `replays`, `predicted`, `eager`, `failures`, `copied`, `nodes`, `execs`, \
                    `exec-bytes`, `budgeted`, `pending`, `reserved`, `live`, `peak`, `outside`, `device`, `driver`";
    let why = |text: &str| parse(text).unwrap_err().to_string();
    let nothing = |place| format!("{place}: `replay` holds nothing here, and is no counter: {counters}");
    assert_eq!(why("expect replay == 3\n"), nothing("1:8"));
    assert_eq!(why("step\nexpect 3 <= replay + 1\n"), nothing("2:13"));
    assert_eq!(why("note a = replay\n"), nothing("1:10"));
    assert_eq!(why("x = [4] 1\nexpect replay == x\n"), nothing("2:8"));
    let wanted =
        format!("1:8: found `replay`, expected a number, a note, `address` or a counter ({counters})");
    assert_eq!(why("expect replay of f == 3\n"), wanted);
}

#[test]
fn nothing_is_divided_by_zero_and_chance_has_a_range_that_begins_before_it_ends() {
    error(
        "size n = 3\nx = [n / 0] 1\n",
        &expect![[r#"
        a.scn:2:10: nothing can be divided by zero
          x = [n / 0] 1
                   ^"#]],
    );
    error(
        "repeat 6 / (2 - 2)\n  step\n",
        &expect![[r#"
        a.scn:1:12: nothing can be divided by zero
          repeat 6 / (2 - 2)
                     ^"#]],
    );
    error(
        "size k = random 9 to 1\n",
        &expect![[r#"
        a.scn:1:17: no number is from 9 to 1: the least one comes first
          size k = random 9 to 1
                          ^"#]],
    );
    parse("size k = random 1 to 1\nsize n = 0 / 4\n").unwrap();
}

#[test]
fn a_call_gives_as_many_inputs_as_its_function_takes_however_it_is_made() {
    let functions = "fn f(x) -> y\n  y = add x 1\nfn g() -> y\n  y = [1] 1\n";
    let why = |statements: &str| parse(&format!("{functions}{statements}\n")).unwrap_err().to_string();
    assert_eq!(why("try y = call f([4] 1, [4] 2)"), "5:14: `f` has 1 inputs, and 2 are given");
    assert_eq!(why("y = call g(3)"), "5:10: `g` has 0 inputs, and 1 are given");
    assert_eq!(why("y = call f()"), "5:10: `f` has 1 inputs, and 0 are given");
    assert_eq!(why("y = forward f([4] 1, 2) as t"), "5:13: `f` has 1 inputs, and 2 are given");
    let back = "y = forward g() as t\nz = backward t g(give y)";
    assert_eq!(why(back), "6:16: `g` has 0 inputs, and 1 are given");
}

#[test]
fn more_threads_or_engines_than_a_host_can_hold_are_refused() {
    let why = |text: &str| parse(text).unwrap_err().to_string();
    assert_eq!(why("threads 65\n  step\n"), "1:9: 65 threads, and there may be 64 at once");
    assert_eq!(why("set engines 17\n"), "1:13: 17 engines, and there may be 1 to 16");
    assert_eq!(why("set engines 0\n"), "1:13: 0 engines, and there may be 1 to 16");
    parse("set engines 16\nthreads 64\n  step\n").unwrap();
}

#[test]
fn a_program_that_would_run_for_days_is_refused_at_its_block() {
    error(
        "step\nrepeat 2\n  repeat 100000000000\n    step\n",
        &expect![[r#"
        a.scn:3:3: the program would run more than 1000000 statements, the most that a scenario may run
            repeat 100000000000
            ^"#]],
    );
}

#[test]
fn a_word_in_quotes_may_hold_a_mark_of_a_comment() {
    let scenario = parse("skip \"see #12\" # a comment\n").unwrap();
    assert_eq!(scenario.skip.as_deref(), Some("see #12"));
}
