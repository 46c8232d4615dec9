//! graphgrove-device
