//! Nodes of the state table from Python.

pub(super) mod bridge;
pub(super) mod node;
pub(super) mod outside_rows;
pub(super) mod states;
