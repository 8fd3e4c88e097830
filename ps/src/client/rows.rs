//! Pushing and pulling the rows of a batch and what is no table: the *selected array*, of which each shard
//! has a run.

use syncline_rpc::ShardFault;
use syncline_scheduler::spec::{ElementRange, Layout};

use super::{PullStats, PushStats, ShardSet, pull::PullRequest};
use crate::{
    PsError,
    rows::{RowFault, RowSelection, RowTables},
    shard::{CHUNK_ELEMENTS, PushHeader, ReadCondition},
};

impl ShardSet {
    /// Says where the tables lie of which only rows travel. The layout is that of the job.
    pub fn set_tables(&mut self, layout: &Layout) {
        self.tables = RowTables::of(layout);
    }

    /// As [`ShardSet::pull`], of these rows and of everything that is no table, in layout order: `into` is as
    /// long as that.
    pub fn pull_rows(
        &mut self,
        condition: ReadCondition,
        rows: &RowSelection,
        into: &mut [f32],
    ) -> Result<PullStats, PsError> {
        self.pull_wanted(PullRequest { condition, rows: Some(rows) }, into)
    }

    /// As [`ShardSet::push_and_request`], with a gradient for these rows and for everything that is no table;
    /// `next`: what is asked for behind it.
    pub fn push_rows(
        &mut self,
        seq: u64,
        header: PushHeader,
        rows: &RowSelection,
        gradients: &[&[f32]],
        next: Option<(ReadCondition, &RowSelection)>,
    ) -> Result<PushStats, PsError> {
        let next = next.map(|(condition, rows)| PullRequest { condition, rows: Some(rows) });
        self.push_selected(seq, header, gradients, Some(rows), next)
    }

    /// Length of what these rows select, or of all parameters.
    pub(super) fn elements_of(&self, rows: Option<&RowSelection>) -> Result<u64, PsError> {
        let Some(rows) = rows else { return Ok(self.elements) };
        let refused = |what: String| PsError::Refused { fault: ShardFault::Invalid { what } };
        let tables = self.tables.as_ref();
        let tables = tables.ok_or_else(|| refused("rows of a job that has no tables".into()))?;
        rows.check(tables).map_err(|fault: RowFault| refused(fault.to_string()))?;
        Ok(tables.elements(rows))
    }

    /// The run of shard `index` in the selected array, or in that of all parameters.
    pub(super) fn part(&self, index: usize, rows: Option<&RowSelection>) -> ElementRange {
        let range = self.conns[index].range;
        match (rows, &self.tables) {
            (Some(rows), Some(tables)) => {
                let at = |end| tables.elements_before(rows, end);
                ElementRange { start: at(range.start), end: at(range.end) }
            }
            _ => range,
        }
    }

    /// First byte of what a shard gets from its chunk `first_chunk` on, and the byte behind the last.
    pub(super) fn bytes_from(
        &self,
        index: usize,
        rows: Option<&RowSelection>,
        first_chunk: u32,
    ) -> (u64, u64) {
        let range = self.conns[index].range;
        let chunk = (range.start + u64::from(first_chunk) * CHUNK_ELEMENTS as u64).min(range.end);
        let first = match (rows, &self.tables) {
            (Some(rows), Some(tables)) => tables.elements_before(rows, chunk),
            _ => chunk,
        };
        let bytes = size_of::<f32>() as u64;
        (first * bytes, self.part(index, rows).end * bytes)
    }
}
