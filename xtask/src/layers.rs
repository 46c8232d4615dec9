//! The layers as data: a new layer, or another package that is tested along with them, is one line here.

use std::path::Path;

/// Whether a crate may hold unsafe code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purity {
    /// It has to forbid unsafe code.
    Pure,
    /// It may touch memory, a driver or an allocator.
    Edge,
}

/// One package of the workspace that is tested as a layer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Layer {
    /// The name by which commands and reports call it.
    pub(crate) name: &'static str,
    /// The pull request of pytorch/pytorch that the layer answers to, if it is part of the stack.
    pub(crate) pr: Option<u32>,
    /// The package that is tested.
    pub(crate) package: &'static str,
    /// Its folder, from the root. A layer without a folder does not exist yet.
    pub(crate) folder: &'static str,
    pub(crate) purity: Purity,
}

impl Layer {
    pub(crate) fn exists(&self, root: &Path) -> bool {
        root.join(self.folder).join("Cargo.toml").is_file()
    }
}

const fn layer(
    name: &'static str,
    pr: Option<u32>,
    package: &'static str,
    folder: &'static str,
    purity: Purity,
) -> Layer {
    Layer { name, pr, package, folder, purity }
}

/// The layers in stack order, then what belongs to none of them.
pub(crate) const STACK: &[Layer] = &[
    layer("device", None, "graphgrove-device", "crates/device", Purity::Pure),
    layer("sim", None, "graphgrove-sim", "crates/sim", Purity::Edge),
    layer("cuda", None, "graphgrove-cuda", "crates/cuda", Purity::Edge),
    layer("tree", Some(98112), "graphgrove-tree", "crates/tree", Purity::Pure),
    layer("pool", Some(97440), "graphgrove-pool", "crates/pool", Purity::Pure),
    layer("storage", Some(98254), "graphgrove-storage", "crates/storage", Purity::Edge),
    layer("replay", Some(98529), "graphgrove-replay", "crates/replay", Purity::Pure),
    layer("graphgrove", Some(98341), "graphgrove", "crates/graphgrove", Purity::Pure),
    layer("scenario", None, "graphgrove-scenario", "crates/scenario", Purity::Edge),
    layer("tests", None, "graphgrove-tests", "tests", Purity::Edge),
    layer("xtask", None, "xtask", "xtask", Purity::Pure),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn no_two_layers_share_a_name_or_a_folder() {
        for (place, layer) in STACK.iter().enumerate() {
            for other in &STACK[place + 1..] {
                assert!(layer.name != other.name && layer.folder != other.folder, "{}", layer.name);
            }
        }
    }

    #[test]
    fn every_layer_that_exists_is_the_package_that_it_says() {
        let root = workspace::root();
        let existing: Vec<_> = STACK.iter().filter(|layer| layer.exists(&root)).collect();
        assert!(existing.iter().any(|layer| layer.name == "device"));
        for layer in existing {
            let manifest = workspace::read(&root.join(layer.folder).join("Cargo.toml")).unwrap();
            assert!(manifest.contains(&format!("name = \"{}\"", layer.package)), "{}", layer.name);
        }
    }
}
