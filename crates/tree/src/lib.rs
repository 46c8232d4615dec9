//! graphgrove-tree
