//! A small trace in the shape of a training step, for trying things without a recording at hand.

use std::fmt::Write as _;

/// Writes the text of a trace: `steps` steps of a network of `layers` layers, the same for the same arguments.
///
/// Each step has a forward pass that keeps one activation a layer and drops a workspace, a backward pass that frees the activations in
/// reverse while gradients come and stay, and an optimizer that frees the gradients. Sizes come from a fixed linear congruential
/// sequence. The crate ships `synthetic(12, 3)` as `traces/synthetic.trace`.
#[must_use]
pub fn synthetic(layers: u32, steps: u32) -> String {
    let mut writer = Writer { text: "# workload synthetic\n".to_owned(), next: 0 };
    for step in 0..steps {
        let mut sizes = Sizes(0x2545_F491);
        writer.phase("forward", step);
        let mut kept = vec![writer.alloc(sizes.between(64, 2048))];
        for layer in 0..layers {
            let workspace = writer.alloc(sizes.between(256, 4096));
            let output = writer.alloc(sizes.between(64, 2048));
            writer.free(workspace);
            let mask = (layer % 3 == 0).then(|| writer.alloc(sizes.between(1, 64)));
            kept.extend([output].into_iter().chain(mask));
        }
        let loss = writer.alloc(4);
        writer.phase("backward", step);
        let mut gradients = Vec::new();
        let mut flowing = writer.alloc(sizes.between(64, 2048));
        writer.free(loss);
        for _ in 0..layers {
            gradients.push(writer.alloc(sizes.between(16, 512)));
            let workspace = writer.alloc(sizes.between(256, 4096));
            let next = writer.alloc(sizes.between(64, 2048));
            writer.free(flowing);
            writer.free(workspace);
            flowing = next;
            if let Some(activation) = kept.pop() {
                writer.free(activation);
            }
        }
        writer.free(flowing);
        for activation in kept.into_iter().rev() {
            writer.free(activation);
        }
        writer.phase("optimizer", step);
        for gradient in gradients {
            let update = writer.alloc(sizes.between(16, 512));
            writer.free(update);
            writer.free(gradient);
        }
    }
    writer.text
}

struct Writer {
    text: String,
    next: u32,
}

impl Writer {
    fn phase(&mut self, name: &str, step: u32) {
        self.line(format_args!("P {name}.{step}"));
    }

    fn alloc(&mut self, bytes: u64) -> u32 {
        let id = self.next;
        self.next += 1;
        self.line(format_args!("a {id} {bytes} 0"));
        id
    }

    fn free(&mut self, id: u32) {
        self.line(format_args!("f {id}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }
}

/// The linear congruential sequence of Knuth's MMIX.
struct Sizes(u64);

impl Sizes {
    /// A size in bytes, of `low` to `high` KiB and a few bytes more so that rounding matters.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let drawn = self.0 >> 33;
        (low + drawn % (high - low)) * 1024 + drawn % 7 * 4
    }
}

#[cfg(test)]
mod tests {
    use super::super::Trace;
    use super::*;

    #[test]
    fn the_shipped_trace_is_the_one_that_the_generator_writes() {
        assert_eq!(synthetic(12, 3), include_str!("../../traces/synthetic.trace"));
    }

    #[test]
    fn a_synthetic_trace_frees_all_that_it_allocates() {
        let trace = Trace::parse(&synthetic(12, 3)).unwrap();
        assert_eq!(trace.events.len(), trace.blocks() * 2 + trace.phases.len());
        assert_eq!(trace.phases.len(), 9);
    }
}
