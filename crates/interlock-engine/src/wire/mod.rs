//! The wire as the folder `wire/` of the repository declares it, which is where to add to it: all files
//! beside this one are made from that.

pub mod codes;
pub mod figures;
pub mod functions;
pub mod limits;
pub mod options;
pub mod records;

use functions::{Class, Function};

impl Function {
    /// Finds one by its whole name, `il1_put`.
    pub fn named(name: &[u8]) -> Option<Function> {
        Function::of_name(name.strip_prefix(b"il1_")?)
    }

    /// Returns the class of this call: `il1_configure CHANGE` and `REPLACE` operate.
    pub fn class_of(self, first: Option<&[u8]>) -> Class {
        match (self, first) {
            (Function::Configure, Some(b"CHANGE" | b"REPLACE")) => Class::Operate,
            _ => self.class(),
        }
    }
}
