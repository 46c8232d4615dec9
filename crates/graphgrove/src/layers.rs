//! The layers of the stack, each of which can be left out with all above it.

use std::fmt;

bitflags::bitflags! {
    /// Which layers an engine has.
    ///
    /// The engine runs with any prefix of the stack, and does what is safe without the layers above.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Layers: u8 {
        /// Pending backwards are counted tokens (pytorch/pytorch#98112). Without it a step cannot end while any forward lacks its
        /// backward.
        const UNCONSUMED_BACKWARDS = 1;
        /// Inputs that a call gives up die inside the recording (pytorch/pytorch#97440). Without it they live until it is over.
        const DEALLOC_ON_RECORD = 1 << 1;
        /// One storage for each block (pytorch/pytorch#98254). Without it functions whose outputs share memory with anything run
        /// eagerly.
        const STORAGE_CACHE = 1 << 2;
        /// Replays by compiled plans (pytorch/pytorch#98529). Without it every question is asked anew at each call.
        const FAST_REPLAY = 1 << 3;
        /// The engine picks the mode of a function (pytorch/pytorch#98341). Without it the mode is what the caller has set.
        const SWITCH = 1 << 4;
    }
}

impl Layers {
    /// The lowest `length` layers.
    #[must_use]
    pub const fn prefix(length: u32) -> Self {
        Self::from_bits_truncate(if length >= 8 { u8::MAX } else { (1 << length) - 1 })
    }

    /// Whether every layer has all layers below it.
    #[must_use]
    pub const fn is_prefix(self) -> bool {
        self.bits() & self.bits().wrapping_add(1) == 0
    }
}

impl Default for Layers {
    fn default() -> Self {
        Self::all()
    }
}

impl fmt::Display for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        bitflags::parser::to_writer(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_all_layers_up_to_one_and_none_above() {
        assert_eq!(Layers::prefix(0), Layers::empty());
        assert_eq!(Layers::prefix(2), Layers::UNCONSUMED_BACKWARDS | Layers::DEALLOC_ON_RECORD);
        assert_eq!(Layers::prefix(5), Layers::all());
        assert_eq!(Layers::prefix(99), Layers::all());
        assert!((0..6).all(|length| Layers::prefix(length).is_prefix()));
        assert!(!(Layers::UNCONSUMED_BACKWARDS | Layers::STORAGE_CACHE).is_prefix());
        assert!(!Layers::SWITCH.is_prefix());
    }
}
