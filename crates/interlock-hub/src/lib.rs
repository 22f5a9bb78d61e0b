pub mod glob;
pub mod resp;
