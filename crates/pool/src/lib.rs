//! graphgrove-pool
