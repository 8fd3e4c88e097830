//! Tables of which only rows travel: embeddings, of which a batch reads a few rows of a million.
//!
//! A batch names the rows that it reads, a [`RowSelection`]. What of the flat array belongs to it is the same
//! to everybody who knows the layout: of the tables these rows, and everything else. Put together in the
//! order of the flat array, that is the *selected array* that a pull answers with and a push carries. A
//! shard's part of it is one run, and so is what begins at a chunk, so that a push is cut over shards and
//! resumed as one of all parameters is.
//!
//! ```text
//! selection: for each group of tables: count u32 | ids u32, ascending     (all little-endian)
//! ```
//!
//! Pure. Cost: in proportion to the rows, never to the tables.

mod selection;

pub use selection::{RowFault, RowSelection};

use serde::{Deserialize, Serialize};
use syncline_scheduler::spec::{ElementRange, Layout, Parameter, ParameterKind};

use crate::shard::CHUNK_ELEMENTS;

/// Where the tables of a job lie among its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowTables {
    parts: Vec<Part>,
    /// Rows of the smallest table of each group: ids are below that.
    groups: Vec<u32>,
}

/// A run of the flat array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    range: ElementRange,
    /// `None`: all of it belongs to every selection.
    table: Option<Table>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Table {
    group: usize,
    /// Elements of one row.
    width: u64,
}

/// Neighboring elements of one chunk that belong to a selection: a row, a part of one, or what belongs to
/// all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Index of the chunk in the shard's range, from 0.
    pub chunk: u32,
    /// First element, in the chunk.
    pub start: u32,
    /// Number of elements, never 0.
    pub len: u32,
}

impl RowTables {
    /// The tables of a layout; `None` if it has none. The layout has no fault.
    pub fn of(layout: &Layout) -> Option<Self> {
        if !layout.has_tables() {
            return None;
        }
        let mut tables = Self { parts: Vec::new(), groups: Vec::new() };
        for (parameter, range) in layout.ranges() {
            match parameter.kind {
                ParameterKind::Rows { group } => tables.push_table(parameter, range, group as usize),
                ParameterKind::Trained | ParameterKind::Buffer => tables.push_whole(range),
            }
        }
        Some(tables)
    }

    fn push_table(&mut self, parameter: &Parameter, range: ElementRange, group: usize) {
        let rows = parameter.shape.first().copied().unwrap_or(1).max(1);
        if self.groups.len() <= group {
            self.groups.resize(group + 1, u32::MAX);
        }
        self.groups[group] = self.groups[group].min(u32::try_from(rows).unwrap_or(u32::MAX));
        self.parts.push(Part { range, table: Some(Table { group, width: (range.len() / rows).max(1) }) });
    }

    fn push_whole(&mut self, range: ElementRange) {
        match self.parts.last_mut() {
            Some(Part { range: before, table: None }) => before.end = range.end,
            _ => self.parts.push(Part { range, table: None }),
        }
    }

    /// Number of groups.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Length of the selected array.
    pub fn elements(&self, selection: &RowSelection) -> u64 {
        self.elements_before(selection, u64::MAX)
    }

    /// How many of the first `end` elements of the flat array are selected: where those behind begin in the
    /// selected array.
    pub fn elements_before(&self, selection: &RowSelection, end: u64) -> u64 {
        self.parts.iter().map(|part| part.selected_before(selection, end)).sum()
    }

    /// What is selected of `range`, in order, cut where chunks begin if the first one begins with the range.
    /// Those before chunk `first_chunk` are left out.
    pub fn pieces(
        &self,
        selection: &RowSelection,
        range: ElementRange,
        first_chunk: u32,
    ) -> impl Iterator<Item = Piece> {
        let origin = range.start;
        let begin = u64::from(first_chunk).saturating_mul(CHUNK_ELEMENTS as u64).saturating_add(origin);
        let range = ElementRange { start: begin.min(range.end), end: range.end };
        let selected = self.parts.iter().flat_map(move |part| part.selected(selection, range));
        selected.flat_map(move |selected| cut(selected, origin))
    }
}

impl Part {
    fn selected_before(&self, selection: &RowSelection, end: u64) -> u64 {
        let before = end.clamp(self.range.start, self.range.end) - self.range.start;
        let Some(Table { group, width }) = self.table else { return before };
        let ids = selection.ids(group);
        let whole = ids.partition_point(|id| (u64::from(*id) + 1) * width <= before);
        let torn = ids.get(whole).map_or(0, |id| before.saturating_sub(u64::from(*id) * width));
        whole as u64 * width + torn
    }

    /// What lies in `range`: all of it, or its rows one by one.
    fn selected<'s>(
        &self,
        selection: &'s RowSelection,
        range: ElementRange,
    ) -> impl Iterator<Item = ElementRange> + use<'s> {
        let part = self.range;
        let within = move |start: u64, end: u64| ElementRange {
            start: start.clamp(range.start, range.end),
            end: end.clamp(range.start, range.end),
        };
        let whole = self.table.is_none().then(|| within(part.start, part.end));
        let Table { group, width } = self.table.unwrap_or(Table { group: usize::MAX, width: 1 });
        let ids = selection.ids(group);
        let row = move |id: &u32| part.start + u64::from(*id) * width;
        let ids = &ids[ids.partition_point(|id| row(id) + width <= range.start)..];
        let ids = &ids[..ids.partition_point(|id| row(id) < range.end)];
        let rows = ids.iter().map(move |id| within(row(id), row(id) + width));
        whole.into_iter().chain(rows).filter(|selected| !selected.is_empty())
    }
}

/// Cuts a run at the ends of chunks; the first chunk begins at `origin`.
fn cut(run: ElementRange, origin: u64) -> impl Iterator<Item = Piece> {
    let chunk = CHUNK_ELEMENTS as u64;
    let (start, end) = (run.start - origin, run.end - origin);
    (start / chunk..end.div_ceil(chunk)).map(move |index| {
        let (from, to) = (start.max(index * chunk), end.min((index + 1) * chunk));
        Piece { chunk: index as u32, start: (from - index * chunk) as u32, len: (to - from) as u32 }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn layout() -> Layout {
        Layout(vec![
            Parameter::trained("first", vec![100]),
            Parameter::rows("users", vec![1000, 50], 0),
            Parameter::rows("users.bias", vec![900], 0),
            Parameter::trained("head", vec![70_000]),
            Parameter::rows("items", vec![3000, 33], 1),
            Parameter::trained("last", vec![3]),
            Parameter::buffer("mean", vec![5]),
        ])
    }

    /// Every selected element of the flat array, the slow way.
    fn selected(ids: &[Vec<u32>]) -> Vec<u64> {
        let mut all = Vec::new();
        for (parameter, range) in layout().ranges() {
            match parameter.kind {
                ParameterKind::Rows { group } => {
                    let width = range.len() / parameter.shape[0];
                    for id in &ids[group as usize] {
                        let start = range.start + u64::from(*id) * width;
                        all.extend(start..start + width);
                    }
                }
                _ => all.extend(range.start..range.end),
            }
        }
        all
    }

    #[test]
    fn a_layout_without_tables_has_none() {
        assert_eq!(RowTables::of(&Layout(vec![Parameter::trained("w", vec![2, 2])])), None);
        let tables = RowTables::of(&layout()).unwrap();
        assert_eq!((tables.groups(), &tables.groups[..]), (2, &[900, 3000][..]));
    }

    proptest! {
        #[test]
        fn pieces_are_the_selected_elements_whatever_the_shards_and_the_first_chunk(
            users in prop::collection::btree_set(0u32..900, 0..40),
            items in prop::collection::btree_set(0u32..3000, 0..40),
            shards in 1u32..5,
            first_chunk in 0u32..4,
        ) {
            let ids = vec![users.into_iter().collect::<Vec<_>>(), items.into_iter().collect()];
            let (tables, want) = (RowTables::of(&layout()).unwrap(), selected(&ids));
            let selection = RowSelection::new(ids).unwrap();
            let total = layout().elements().unwrap();
            prop_assert_eq!(tables.elements(&selection), want.len() as u64);
            for index in 0..shards {
                let range = ElementRange::of_shard(total, index, shards);
                let begin = (range.start + u64::from(first_chunk) * CHUNK_ELEMENTS as u64).min(range.end);
                let got: Vec<u64> = tables
                    .pieces(&selection, range, first_chunk)
                    .flat_map(|piece| {
                        let start = range.start + u64::from(piece.chunk) * CHUNK_ELEMENTS as u64 + u64::from(piece.start);
                        assert!(piece.start + piece.len <= CHUNK_ELEMENTS as u32 && piece.len > 0);
                        start..start + u64::from(piece.len)
                    })
                    .collect();
                let inside = |at: &&u64| (begin..range.end).contains(*at);
                prop_assert_eq!(&got, &want.iter().filter(inside).copied().collect::<Vec<_>>());
                let before = want.iter().filter(|at| **at < begin).count() as u64;
                prop_assert_eq!(tables.elements_before(&selection, begin), before);
            }
        }
    }
}
