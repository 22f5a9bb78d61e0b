//! The findings when a spool is opened.

use std::fmt;

/// The findings when a spool was opened.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub journal: interlock_journal::Report,
    /// Messages that wait.
    pub messages: u64,
    /// Messages that were taken over from behind damage, and those that are lost, as far as it is known.
    pub saved: u64,
    pub lost: u64,
    /// The new names of what was damaged.
    pub aside: Vec<String>,
    /// True if the file of the origin could not be read: it has another one now.
    pub renamed: bool,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} messages wait; {}", self.messages, self.journal)?;
        if !self.aside.is_empty() {
            write!(
                f,
                "\n{} messages after the damage were recovered, {} are lost; set aside: {}",
                self.saved,
                self.lost,
                self.aside.join(", ")
            )?;
        }
        if self.renamed {
            write!(f, "\nthe file `origin` could not be read: messages have another origin now")?;
        }
        Ok(())
    }
}
