//! The table as those use it who have it open: all in one program, for each takes its time to be linked.

#[path = "../common/mod.rs"]
mod common;

mod attach;
mod columns;
mod counts;
mod damage;
mod decide;
mod geometry;
mod model;
mod order;
mod pages;
mod processes;
mod resize;
