//! The tree as text and as a Graphviz graph.

use crate::node::{Node, Role, StagedWhy};
use crate::path::PathState;
use crate::tree::Tree;
use crate::{InputIndex, NodeId, Phase};
use std::collections::HashMap;
use std::fmt::{self, Write};

/// Deeper nodes are no further indented but say their depth: lines as long as the path is deep would make the
/// text grow with the square of the depth.
const DEEPEST_INDENTED: u32 = 32;

/// Of so many staged inputs of a node the shape is said.
const SHAPES: usize = 4;

impl Tree {
    /// The tree as text: a head line, then one line per node in the order in which they were made, each
    /// indented below its parent, and with its depth as a number beyond 32. A star marks the nodes of the
    /// current path.
    #[must_use]
    pub fn outline(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_outline(&mut text);
        text
    }

    /// The tree as a Graphviz graph: one box per node, edges to children, dashed edges to what followed last
    /// time where that is no child; the current path is bold.
    #[must_use]
    pub fn dot(&self) -> String {
        let mut text = String::new();
        let _ = self.write_dot(&mut text);
        text
    }

    fn write_outline(&self, out: &mut impl Write) -> fmt::Result {
        let state = match self.path.state() {
            PathState::None => "no path",
            PathState::WarmUp => "warming up",
            PathState::Recording => "recording",
            PathState::Replaying => "replaying",
        };
        let (step, length, pending) = (self.step.get(), self.path.len(), self.path.pending());
        writeln!(out, "step {step}, {state}, {length} on the path, {pending} pending")?;
        let mut below: HashMap<Option<NodeId>, Vec<NodeId>> = HashMap::new();
        for id in self.in_order().into_iter().rev() {
            below.entry(self.nodes.get(id).and_then(|node| node.parent)).or_default().push(id);
        }
        let mut stack = below.remove(&None).unwrap_or_default();
        while let Some(id) = stack.pop() {
            let Some(node) = self.nodes.get(id) else { continue };
            let indent = 2 * (node.depth.min(DEEPEST_INDENTED) as usize) + 2;
            write!(out, "{:indent$}", "")?;
            if node.depth > DEEPEST_INDENTED {
                write!(out, "[depth {}] ", node.depth)?;
            }
            let mark = if self.is_on_path(id) { "* " } else { "" };
            writeln!(out, "{mark}{}", self.label(node))?;
            stack.extend(below.remove(&Some(id)).unwrap_or_default());
        }
        Ok(())
    }

    fn write_dot(&self, out: &mut impl Write) -> fmt::Result {
        writeln!(out, "digraph tree {{\n  rankdir=LR;\n  node [shape=box];")?;
        let all = self.in_order();
        for id in &all {
            let Some(node) = self.nodes.get(*id) else { continue };
            let style = if self.is_on_path(*id) { ", style=bold" } else { "" };
            let label = self.label(node).replace('\\', "\\\\").replace('"', "\\\"");
            writeln!(out, "  n{} [label=\"{label}\"{style}];", node.serial)?;
        }
        for id in &all {
            let Some(node) = self.nodes.get(*id) else { continue };
            if let Some(parent) = node.parent.and_then(|parent| self.nodes.get(parent)) {
                writeln!(out, "  n{} -> n{};", parent.serial, node.serial)?;
            }
            if let Some(next) = node.successor.and_then(|next| self.nodes.get(next))
                && next.parent != Some(*id)
            {
                writeln!(out, "  n{} -> n{} [style=dashed];", node.serial, next.serial)?;
            }
        }
        writeln!(out, "}}")
    }

    /// What one line says of a node: its serial number, function, kind, inputs, demands, outputs and use.
    fn label(&self, node: &Node) -> String {
        let name = self.function_spec(node.function).map_or("(removed)", |spec| spec.name());
        let mut text = format!("n{} {name} [{}]", node.serial, phase_word(node.phase));
        let mut managed = Vec::new();
        let (mut staged, mut demoted, mut shapes) = (0, Vec::new(), Vec::new());
        for (index, input) in (0..).map(InputIndex::new).zip(&node.inputs) {
            match input.role {
                Role::Managed { slot, depth, dies } => {
                    let gone = if dies { " given up" } else { "" };
                    managed.push(format!("{index}={depth}.{}{gone}", slot.index.get()));
                }
                Role::Staged(StagedWhy::Churn) => demoted.push(index.to_string()),
                Role::Staged(_) => {
                    staged += 1;
                    shapes.extend(self.names.get(input.signature));
                }
                Role::Scalar => managed.push(format!("{index}={}", input.signature.get())),
            }
        }
        if let Some(params) = &node.params {
            let _ = write!(text, ", {} parameters of {}", params.addresses.len(), params.set);
            demoted.extend(params.staged.iter().map(ToString::to_string));
        }
        if !managed.is_empty() {
            let _ = write!(text, ", {}", managed.join(" "));
        }
        if staged > 0 {
            let _ = write!(text, ", {staged} staged");
            if !shapes.is_empty() {
                let more = if shapes.len() > SHAPES { ", ..." } else { "" };
                shapes.truncate(SHAPES);
                let _ = write!(text, " ({}{more})", shapes.join(", "));
            }
        }
        if !demoted.is_empty() {
            let _ = write!(text, ", demoted {}", demoted.join(" "));
        }
        let dead: u32 =
            node.dead_before.iter().chain(&node.dead_after).map(|mask| mask.mask.count_ones()).sum();
        if dead > 0 {
            let _ = write!(text, ", {dead} must be dead");
        }
        let _ = write!(text, ", {} out", node.outputs.len());
        match &node.reason {
            Some(reason) => {
                let _ = write!(text, ", {} replays: {}", node.replays, self.explain(&**reason, node.phase));
            }
            None => text.push_str(", warm-up"),
        }
        text
    }

    fn is_on_path(&self, id: NodeId) -> bool {
        self.nodes.get(id).is_some_and(|node| self.path.entry_of(id, node.depth).is_some())
    }

    fn in_order(&self) -> Vec<NodeId> {
        let mut nodes: Vec<_> = self.nodes.iter().map(|(id, node)| (node.serial, id)).collect();
        nodes.sort_unstable();
        nodes.into_iter().map(|(_, id)| id).collect()
    }
}

fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Inference => "inference",
        Phase::Forward => "forward",
        Phase::Backward => "backward",
    }
}

#[cfg(test)]
mod tests {
    use crate::{Call, Decision, FunctionSpec, LiveTable, Output, Tree};

    #[test]
    fn a_node_of_any_depth_has_a_short_line() {
        let mut tree = Tree::default();
        let call = Call::inference(tree.add_function(FunctionSpec::new("f")), &[]);
        let Ok(Decision::WarmUp(plan)) = tree.decide(&call, &LiveTable::new()) else { panic!() };
        let warm_up = tree.begin_warm_up(*plan).unwrap();
        let ran = tree.finish_warm_up(warm_up, vec![Output::fresh()], true).unwrap();
        let mut line = |depth| {
            tree.nodes[ran.node].depth = depth;
            tree.outline().lines().last().unwrap().to_owned()
        };
        assert_eq!(line(0), "  * n1 f [inference], 1 out, warm-up");
        let at_limit = " ".repeat(66);
        assert_eq!(line(32), format!("{at_limit}n1 f [inference], 1 out, warm-up"));
        for depth in [33, u32::from(u16::MAX), u32::MAX] {
            assert_eq!(line(depth), format!("{at_limit}[depth {depth}] n1 f [inference], 1 out, warm-up"));
        }
    }
}
