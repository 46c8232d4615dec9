//! The shapes of the network.

/// One convolution with what follows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layer {
    /// Channels that go in.
    pub(crate) from: u32,
    /// Channels that come out.
    pub(crate) to: u32,
    /// Side of the filter.
    pub(crate) side: u32,
    /// Side of the picture that comes out.
    pub(crate) out: u32,
}

impl Layer {
    /// Elements of the filters.
    pub(crate) const fn weights(&self) -> u32 {
        self.from * self.to * self.side * self.side
    }

    /// Elements of what comes out, for a batch.
    pub(crate) const fn elements(&self, batch: u32) -> u32 {
        batch * self.to * self.out * self.out
    }
}

/// All 53, in order: the first one, and four stages of blocks of three, the first block of each with a shortcut of its own.
pub(crate) fn layers() -> Vec<Layer> {
    let mut layers = vec![Layer { from: 3, to: 64, side: 7, out: 112 }];
    let mut from = 64;
    for (blocks, narrow, out) in [(3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7)] {
        for block in 0..blocks {
            layers.push(Layer { from, to: narrow, side: 1, out });
            layers.push(Layer { from: narrow, to: narrow, side: 3, out });
            layers.push(Layer { from: narrow, to: 4 * narrow, side: 1, out });
            if block == 0 {
                layers.push(Layer { from, to: 4 * narrow, side: 1, out });
            }
            from = 4 * narrow;
        }
    }
    layers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_has_as_many_layers_and_weights_as_the_paper_says() {
        let layers = layers();
        assert_eq!(layers.len(), 53);
        let normalisation: u32 = layers.iter().map(|layer| 2 * layer.to).sum();
        let filters: u32 = layers.iter().map(Layer::weights).sum();
        assert_eq!(filters + normalisation + 2048 * 1000 + 1000, 25_557_032);
    }
}
