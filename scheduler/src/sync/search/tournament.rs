//! The earliest of one point per row, while single points change.

use std::hint::select_unpredictable;

/// One point of one row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) time_us: u64,
    /// Row and index in one word, so that a node is moved as two.
    tag: u64,
}

impl Head {
    pub(super) fn new(time_us: u64, row: u32, index: u32) -> Self {
        Self { time_us, tag: u64::from(row) << 32 | u64::from(index) }
    }

    pub(super) fn row(self) -> u32 {
        (self.tag >> 32) as u32
    }

    pub(super) fn index(self) -> u32 {
        self.tag as u32
    }
}

/// The earliest of one point per row, as a complete binary tree: about half a binary heap's cost
/// here, because the way to the root has a fixed length and no branch that the processor could guess wrong.
pub(super) struct Tournament {
    /// Node i has children 2i and 2i+1 and holds the earlier of the two; the leaf of row r is node n+r.
    nodes: Vec<Head>,
}

impl Tournament {
    /// `rows` >= 1. A row that was never set does not win.
    pub(super) fn new(rows: usize) -> Self {
        Self { nodes: vec![Head::new(u64::MAX, 0, 0); 2 * rows] }
    }

    pub(super) fn earliest(&self) -> Head {
        self.nodes[1]
    }

    /// Cost O(log n).
    pub(super) fn set(&mut self, head: Head) {
        let mut node = self.nodes.len() / 2 + head.row() as usize;
        let mut winner = head;
        self.nodes[node] = winner;
        while node > 1 {
            let rival = self.nodes[node ^ 1];
            let lost = rival.time_us < winner.time_us;
            winner = Head {
                time_us: select_unpredictable(lost, rival.time_us, winner.time_us),
                tag: select_unpredictable(lost, rival.tag, winner.tag),
            };
            node /= 2;
            self.nodes[node] = winner;
        }
    }
}
