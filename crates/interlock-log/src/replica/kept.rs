//! The reports of a replica's checkpoints, and how far the log may be trimmed because of them.

use super::{Phase, Replica};
use crate::checkpoint::Place;
use crate::entry::Body;
use crate::keepers::{Keepers, Report};
use crate::machine::Machine;
use crate::ring::Ring;

impl<M: Machine, R: Ring> Replica<M, R> {
    /// Returns entries with the reports that the log does not have yet, on this node's checkpoints
    /// and on other nodes that it remembers.
    ///
    /// # Arguments
    ///
    /// `oldest` is the place of the oldest checkpoint that the node keeps of the current history.
    pub fn reports(&self, oldest: Option<Place>) -> Vec<Vec<u8>> {
        if !self.serves || !matches!(self.phase, Phase::Reads) {
            return Vec::new();
        }
        let (node, machine) = (&self.setup.node, &self.setup.machine);
        let keepers = &self.state.keepers;
        let is_said = keepers
            .get(node)
            .is_some_and(|it| it.kept == oldest && it.machine == *machine && !it.is_gone);
        let own = (!is_said).then(|| self.keeps(node, machine, Report::Keeps(oldest)));
        let others = self.remembered.iter().filter(|(node, _)| keepers.get(node).is_none());
        let others = others.filter(|(other, _)| *other != node);
        let others = others.map(|(node, machine)| self.keeps(node, machine, Report::Known));
        own.into_iter().chain(others).collect()
    }

    /// Returns the entry that declares a node gone, so that no other node waits for it.
    pub fn forget(&self, node: &[u8]) -> Vec<u8> {
        self.keeps(node, b"", Report::Gone)
    }

    fn keeps(&self, node: &[u8], machine: &[u8], report: Report) -> Vec<u8> {
        let (node, machine) = (node.to_vec(), machine.to_vec());
        self.entry(self.name.clone(), 0, Body::Keeps { node, machine, report })
    }

    /// Remembers the nodes of a history: the history that follows must know them, or its log would
    /// be trimmed too far.
    pub(super) fn remember(&mut self, keepers: &Keepers) {
        for (node, keeper) in keepers.iter().filter(|(_, keeper)| !keeper.is_gone) {
            self.remembered.insert(node.to_vec(), keeper.machine.clone());
        }
    }

    /// Returns the places of the checkpoints that allow a trim, with the place to trim before at
    /// the end; see [`Keepers::cut`].
    pub fn cut(&self, is_there: impl Fn(&Place) -> bool) -> Vec<Place> {
        if !self.serves || self.owes || !matches!(self.phase, Phase::Reads) {
            return Vec::new();
        }
        self.state.keepers.cut(self.setup.rules.two, is_there)
    }
}
