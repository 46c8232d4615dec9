//! Writes the small trace that the crate ships:
//! `cargo run -p graphgrove-pool --example synthetic_trace > crates/pool/traces/synthetic.trace`.

fn main() {
    print!("{}", graphgrove_pool::trace::synthetic(12, 3));
}
