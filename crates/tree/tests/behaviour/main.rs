//! What the tree does, by behaviour.

mod backwards;
mod driver;
mod field_reports;
mod limits;
mod matching;
mod model;
mod outline;
mod properties;
mod steps;
mod transitions;
