//! The text form and the Graphviz form of a tree.

use crate::driver::{Driver, kept, moved, x};
use expect_test::expect;
use graphgrove_tree::{
    Address, Call, FunctionSpec, Input, Limits, Options, Output, ParamSetId, ParamVersion, Params,
};

/// A training step of two layers with an evaluation between, some changes, and a warm-up in progress.
fn example() -> Driver {
    let limits = Limits { changes_before_staged: 1, ..Limits::default() };
    let mut e = Driver::new(Options { limits, ..Options::default() });
    let forward = e.function_of(FunctionSpec::new("forward"), vec![Output::fresh(), Output::saved()]);
    let backward = e.function("backward", 1);
    let evaluate = e.function("evaluate", 1);
    let addresses = |version: u64| [Address::new(0x100), Address::new(0x200 + version)];
    for version in [0, 0, 1, 2, 2] {
        let addresses = addresses(version);
        let params =
            Params { set: ParamSetId::new(7), version: ParamVersion::new(version), addresses: &addresses };
        let inputs = [x(1), Input::scalar(4)];
        let y = e.call(&Call::forward(forward, &inputs).with_params(params));
        let z = e.infer(evaluate, &[kept(y.outputs[0])]);
        e.forget(&z);
        e.release(&y.outputs[..1]);
        let g = e.backward(backward, y.token(), &[moved(y.outputs[1])]);
        e.forget(&g);
    }
    let y = e.infer(evaluate, &[x(1)]);
    e.infer(backward, &[kept(y.outputs[0])]);
    e
}

#[test]
fn the_outline_shows_each_node_below_its_parent() {
    expect![[r#"
        step 6, warming up, 2 on the path, 0 pending
          n4 forward [forward], 2 parameters of set7, i1=4, 1 staged, 2 out, 0 replays: first recording in this place
            n5 evaluate [inference], i0=0.0, 1 out, 0 replays: first recording in this place
            n6 backward [backward], i0=0.1 given up, 1 must be dead, 1 out, 0 replays: first recording in this place
          n7 forward [forward], 2 parameters of set7, i1=4, 1 staged, 2 out, 0 replays: no recording in this place fits; the closest: parameter 1 is at 0x201, recorded at 0x200
            n8 evaluate [inference], i0=0.0, 1 out, 0 replays: first recording in this place
            n9 backward [backward], i0=0.1 given up, 1 must be dead, 1 out, 0 replays: first recording in this place
          n10 forward [forward], 2 parameters of set7, i1=4, 1 staged, demoted p1, 2 out, 1 replays: no recording in this place fits; the closest: parameter 1 is at 0x202, recorded at 0x201
            n11 evaluate [inference], i0=0.0, 1 out, 1 replays: first recording in this place
            n12 backward [backward], i0=0.1 given up, 1 must be dead, 1 out, 1 replays: first recording in this place
          * n13 evaluate [inference], 1 staged, 1 out, 0 replays: first recording in this place
            * n14 backward [inference], i0=0.0, 1 out, warm-up
    "#]].assert_eq(&example().tree.outline());
}

#[test]
fn the_graph_shows_nodes_children_and_what_followed() {
    expect![[r#"
        digraph tree {
          rankdir=LR;
          node [shape=box];
          n4 [label="n4 forward [forward], 2 parameters of set7, i1=4, 1 staged, 2 out, 0 replays: first recording in this place"];
          n5 [label="n5 evaluate [inference], i0=0.0, 1 out, 0 replays: first recording in this place"];
          n6 [label="n6 backward [backward], i0=0.1 given up, 1 must be dead, 1 out, 0 replays: first recording in this place"];
          n7 [label="n7 forward [forward], 2 parameters of set7, i1=4, 1 staged, 2 out, 0 replays: no recording in this place fits; the closest: parameter 1 is at 0x201, recorded at 0x200"];
          n8 [label="n8 evaluate [inference], i0=0.0, 1 out, 0 replays: first recording in this place"];
          n9 [label="n9 backward [backward], i0=0.1 given up, 1 must be dead, 1 out, 0 replays: first recording in this place"];
          n10 [label="n10 forward [forward], 2 parameters of set7, i1=4, 1 staged, demoted p1, 2 out, 1 replays: no recording in this place fits; the closest: parameter 1 is at 0x202, recorded at 0x201"];
          n11 [label="n11 evaluate [inference], i0=0.0, 1 out, 1 replays: first recording in this place"];
          n12 [label="n12 backward [backward], i0=0.1 given up, 1 must be dead, 1 out, 1 replays: first recording in this place"];
          n13 [label="n13 evaluate [inference], 1 staged, 1 out, 0 replays: first recording in this place", style=bold];
          n14 [label="n14 backward [inference], i0=0.0, 1 out, warm-up", style=bold];
          n4 -> n5;
          n5 -> n6 [style=dashed];
          n4 -> n6;
          n6 -> n7 [style=dashed];
          n7 -> n8;
          n8 -> n9 [style=dashed];
          n7 -> n9;
          n9 -> n10 [style=dashed];
          n10 -> n11;
          n11 -> n12 [style=dashed];
          n10 -> n12;
          n12 -> n13 [style=dashed];
          n13 -> n14;
        }
    "#]].assert_eq(&example().tree.dot());
}

#[test]
fn an_empty_tree_is_one_line() {
    let mut e = Driver::default();
    assert_eq!(e.tree.outline(), "step 0, no path, 0 on the path, 0 pending\n");
    let f = e.function("a \"quoted\\\" name", 1);
    e.settle(&Call::inference(f, &[]));
    let dot = e.tree.dot();
    assert!(dot.contains(r#"label="n2 a \"quoted\\\" name [inference]"#), "{dot}");
}

#[test]
fn every_path_state_has_a_word() {
    let mut e = Driver::default();
    let f = e.function("f", 1);
    let mut heads = Vec::new();
    for _ in 0..3 {
        let y = e.forward(f, &[x(1)]);
        heads.push(e.tree.outline().lines().next().unwrap().to_owned());
        e.forget(&y);
    }
    assert_eq!(
        heads,
        [
            "step 1, warming up, 1 on the path, 1 pending",
            "step 2, recording, 1 on the path, 1 pending",
            "step 3, replaying, 1 on the path, 1 pending",
        ]
    );
}
