//! Values of the wire: arguments, replies, texts.

pub(super) mod args;
pub(super) mod history;
pub mod reply;
pub(super) mod scratch;
pub(super) mod words;
