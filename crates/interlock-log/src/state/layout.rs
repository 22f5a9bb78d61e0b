//! Layouts: states that were written for another row's class, laid out anew.

use super::{Invalid, Rules, State, ALIVE, BIRTH, FIRST};
use crate::pack;

/// Columns of states when they were written, and their merge kinds.
pub struct Layout {
    rules: Rules,
    /// Of each column as it is now, its number then.
    then: Vec<Option<usize>>,
}

impl Rules {
    /// The text of the layout of these states: the columns, then their merge kinds.
    pub fn layout(&self) -> String {
        let merges: Vec<_> = self.merges.iter().map(|merge| merge.name()).collect();
        format!("{}; {}", self.schema, merges.join(", "))
    }

    /// The layout of a text, as [`Rules::layout`] writes it.
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

    /// A state of another layout in this one. A column that is new, or that merges otherwise now, is as if
    /// nobody had set it; one that is gone is left out.
    ///
    /// # Errors
    ///
    /// It is no state of that layout, or has a value that its column cannot hold any more.
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
