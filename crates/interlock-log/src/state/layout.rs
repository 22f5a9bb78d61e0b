//! Layouts: converting states that were written for an earlier row class.

use super::{Invalid, Rules, State, ALIVE, BIRTH, FIRST};
use crate::pack;

/// The columns and merge kinds with which states were written.
pub struct Layout {
    rules: Rules,
    /// The earlier number of each current column.
    then: Vec<Option<usize>>,
}

impl Rules {
    /// Returns the layout of these states as text: the columns, then their merge kinds.
    pub fn layout(&self) -> String {
        let merges: Vec<_> = self.merges.iter().map(|merge| merge.name()).collect();
        format!("{}; {}", self.schema, merges.join(", "))
    }

    /// Parses a layout as [`Rules::layout`] writes it.
    pub fn layout_of(&self, text: &str) -> Result<Layout, Invalid> {
        let rules = Rules::parse(&format!("{text}; {} ms", self.age_ms))?;
        let before = rules.schema.columns();
        let then = self.schema.columns().iter().zip(&self.columns).map(|(declared, column)| {
            let at = before.iter().position(|one| one.name == declared.name)?;
            rules.columns[at].is_alike(column).then_some(at)
        });
        let then = then.collect();
        Ok(Layout { then, rules })
    }

    /// Converts a state from another layout. A column that is new or has another merge kind is
    /// unset; removed columns are dropped.
    ///
    /// # Errors
    ///
    /// The bytes are not a state of that layout, or a value does not fit its column any more.
    pub fn relaid(&self, layout: &Layout, state: &[u8]) -> Result<State, Invalid> {
        let cells = layout.rules.check(state)?;
        let cells = layout.rules.cells(&cells.0);
        let mut found = cells[..FIRST].to_vec();
        for (then, column) in layout.then.iter().zip(&self.columns) {
            match then {
                Some(then) => {
                    let from = layout.rules.columns[*then].at;
                    found.extend_from_slice(&cells[from..from + column.width()]);
                }
                None => found.resize(found.len() + column.width(), pack::NIL.into()),
            }
        }
        let (lives, born) = (*found[ALIVE] != *pack::NIL, *found[BIRTH] != *super::NEVER);
        for (declared, column) in self.schema.columns().iter().zip(&self.columns) {
            if !column.check(&found, lives, born) {
                let (name, kind) = (&declared.name, column.kind);
                return Err(Invalid(format!(
                    "column {name} has a value that a {kind} cannot hold"
                )));
            }
        }
        self.check(self.encode(&found).as_bytes())
    }
}
