//! The rows that a batch reads.

use std::io::{self, Read};

use super::RowTables;

/// Ids read at once: what a peer only announces is not allocated.
const IDS_PER_READ: usize = 16 * 1024;

/// Ids of rows, ascending, for each group of tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowSelection(Vec<Vec<u32>>);

/// Why numbers are no selection of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RowFault {
    /// More rows are announced than there are.
    #[error("{count} rows of group {group}, whose smallest table has {rows}")]
    Count {
        /// Number of the group of tables, from 0.
        group: usize,
        /// Rows that are announced.
        count: u32,
        /// Rows of the smallest table of that group.
        rows: u32,
    },
    /// There is no such row in one of the tables.
    #[error("row {id} of group {group}, whose smallest table has {rows}")]
    OutOfRange {
        /// Number of the group of tables, from 0.
        group: usize,
        /// Id of the row, from 0.
        id: u32,
        /// Rows of the smallest table of that group: ids lie below.
        rows: u32,
    },
    /// An id comes twice, or behind a higher one.
    #[error("row {id} of group {group} behind row {before}: rows ascend")]
    Order {
        /// Number of the group of tables, from 0.
        group: usize,
        /// The id that is not above the one before it.
        id: u32,
        /// The one before it.
        before: u32,
    },
    /// The selection belongs to another layout.
    #[error("rows of {got} groups of tables, expected {expected}")]
    Groups {
        /// Groups of the selection.
        got: usize,
        /// Groups of the tables.
        expected: usize,
    },
    /// The rows that are announced take more bytes than there are.
    #[error("a body of {body} bytes ends among the rows")]
    TooShort {
        /// Bytes of the whole body.
        body: u64,
    },
}

impl RowSelection {
    /// These rows, one list for each group.
    pub fn new(ids: Vec<Vec<u32>>) -> Result<Self, RowFault> {
        for (group, ids) in ids.iter().enumerate() {
            ascend(group, None, ids)?;
        }
        Ok(Self(ids))
    }

    /// The rows of one group; none if there is no such group.
    pub fn ids(&self, group: usize) -> &[u32] {
        self.0.get(group).map_or(&[], Vec::as_slice)
    }

    /// Rows of all groups.
    pub fn count(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// Whether it selects rows that these tables have.
    pub fn check(&self, tables: &RowTables) -> Result<(), RowFault> {
        if self.0.len() != tables.groups() {
            return Err(RowFault::Groups { got: self.0.len(), expected: tables.groups() });
        }
        for (group, (ids, rows)) in self.0.iter().zip(&tables.groups).enumerate() {
            in_range(group, ids, *rows)?;
        }
        Ok(())
    }

    /// Bytes of what [`RowSelection::encode`] writes.
    pub fn bytes(&self) -> u64 {
        ((self.0.len() + self.count()) * size_of::<u32>()) as u64
    }

    /// Appends it as it travels.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for ids in &self.0 {
            out.extend_from_slice(&(ids.len() as u32).to_le_bytes());
            out.extend_from_slice(bytemuck::cast_slice(ids));
        }
    }

    /// Reads a selection of rows of these tables from the beginning of a body of which `left` bytes are still
    /// to be read, and takes off what it has read. After a fault some of the body is still to be read.
    pub fn read(
        tables: &RowTables,
        from: &mut impl Read,
        left: &mut u64,
    ) -> io::Result<Result<Self, RowFault>> {
        let body = *left;
        let mut groups = Vec::with_capacity(tables.groups());
        for (group, &rows) in tables.groups.iter().enumerate() {
            if *left < size_of::<u32>() as u64 {
                return Ok(Err(RowFault::TooShort { body }));
            }
            let mut count = [0; size_of::<u32>()];
            from.read_exact(&mut count)?;
            *left -= size_of::<u32>() as u64;
            let count = u32::from_le_bytes(count);
            if count > rows {
                return Ok(Err(RowFault::Count { group, count, rows }));
            }
            if u64::from(count) * size_of::<u32>() as u64 > *left {
                return Ok(Err(RowFault::TooShort { body }));
            }
            match read_ids(group, count as usize, rows, from, left)? {
                Ok(ids) => groups.push(ids),
                Err(fault) => return Ok(Err(fault)),
            }
        }
        Ok(Ok(Self(groups)))
    }
}

fn read_ids(
    group: usize,
    count: usize,
    rows: u32,
    from: &mut impl Read,
    left: &mut u64,
) -> io::Result<Result<Vec<u32>, RowFault>> {
    let mut ids: Vec<u32> = Vec::new();
    while ids.len() < count {
        let known = ids.len();
        ids.resize(count.min(known + IDS_PER_READ), 0);
        let (before, fresh) = ids.split_at_mut(known);
        from.read_exact(bytemuck::cast_slice_mut(fresh))?;
        *left -= size_of_val(fresh) as u64;
        if let Err(fault) = ascend(group, before.last().copied(), fresh).and(in_range(group, fresh, rows)) {
            return Ok(Err(fault));
        }
    }
    Ok(Ok(ids))
}

/// Whether each id is above the one before it.
fn ascend(group: usize, mut before: Option<u32>, ids: &[u32]) -> Result<(), RowFault> {
    for &id in ids {
        if let Some(before) = before.filter(|before| id <= *before) {
            return Err(RowFault::Order { group, id, before });
        }
        before = Some(id);
    }
    Ok(())
}

/// Whether ascending ids are below `rows`.
fn in_range(group: usize, ids: &[u32], rows: u32) -> Result<(), RowFault> {
    match ids.last() {
        Some(&id) if id >= rows => Err(RowFault::OutOfRange { group, id, rows }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::spec::{Layout, Parameter};

    use super::*;

    fn tables() -> RowTables {
        let tables = [Parameter::rows("a", vec![1 << 20, 2], 0), Parameter::rows("b", vec![10], 1)];
        RowTables::of(&Layout(tables.to_vec())).unwrap()
    }

    #[test]
    fn a_selection_reads_as_written_and_leaves_what_follows() {
        let many: Vec<u32> = (0..100_000).map(|n| n * 7).collect();
        for ids in [vec![vec![], vec![]], vec![vec![3, 5], vec![]], vec![many, (0..10).collect()]] {
            let (selection, mut bytes) = (RowSelection::new(ids).unwrap(), Vec::new());
            selection.encode(&mut bytes);
            assert_eq!((selection.check(&tables()), bytes.len() as u64), (Ok(()), selection.bytes()));
            bytes.extend([9; 12]);
            let (mut from, mut left) = (&bytes[..], bytes.len() as u64);
            assert_eq!(RowSelection::read(&tables(), &mut from, &mut left).unwrap(), Ok(selection));
            assert_eq!((from.len(), left), (12, 12));
        }
    }

    #[test]
    fn what_is_no_selection_is_refused_before_it_is_allocated() {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
        let order = |id, before| RowFault::Order { group: 0, id, before };
        #[rustfmt::skip]
        let cases = [
            (words(&[]),                     RowFault::TooShort { body: 0 }),
            (words(&[0]),                    RowFault::TooShort { body: 4 }),
            (words(&[1 << 20, 0]),           RowFault::TooShort { body: 8 }),
            (words(&[u32::MAX]),             RowFault::Count { group: 0, count: u32::MAX, rows: 1 << 20 }),
            (words(&[2, 5, 5, 0]),           order(5, 5)),
            (words(&[2, 5, 4, 0]),           order(4, 5)),
            (words(&[1, 1 << 20, 0]),        RowFault::OutOfRange { group: 0, id: 1 << 20, rows: 1 << 20 }),
            (words(&[0, 1, 10]),             RowFault::OutOfRange { group: 1, id: 10, rows: 10 }),
        ];
        for (bytes, want) in cases {
            let mut left = bytes.len() as u64;
            let got = RowSelection::read(&tables(), &mut &bytes[..], &mut left).unwrap();
            assert_eq!(got, Err(want), "{bytes:?}");
        }
        assert_eq!(
            RowSelection::new(vec![vec![1], vec![2, 1]]),
            Err(RowFault::Order { group: 1, id: 1, before: 2 })
        );
        let short = RowSelection::new(vec![vec![1]]).unwrap();
        assert_eq!(short.check(&tables()), Err(RowFault::Groups { got: 1, expected: 2 }));
    }
}
