//! Python and its process: GIL, forks, exit, clocks, errors, conversions.

pub(super) mod clock;
pub(super) mod convert;
pub(super) mod errors;
pub(super) mod exit;
pub(super) mod fork;
pub(super) mod gil;
pub(super) mod nesting;
pub(super) mod once;
