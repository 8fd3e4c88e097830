//! The push of a step, and with it the next pull.

use syncline_ps::{
    client::{PushStats, ShardSet},
    shard::PushHeader,
};
use syncline_scheduler::spec::TrainSpec;

use super::{
    batch_rows::BatchRows, data_loader::DataLoader, error::WorkerError, iteration::NextPull,
    task_timer::TaskTimer,
};

/// What an iteration sends to the shards.
pub(super) struct StepPush<'a> {
    pub seq: u64,
    pub header: PushHeader,
    pub values: &'a [&'a [f32]],
}

impl StepPush<'_> {
    /// Pushes it, and asks for what the next iteration pulls: for its rows, where only rows travel.
    pub(super) fn send(
        self,
        shards: &mut ShardSet,
        timer: &TaskTimer,
        train: &TrainSpec,
        rows: Option<(&mut BatchRows, &mut DataLoader)>,
        next: Option<NextPull>,
    ) -> Result<PushStats, WorkerError> {
        let Self { seq, header, values } = self;
        let Some((rows, loader)) = rows else {
            let next = next.map(|next| next.condition);
            return Ok(timer.waiting(|| shards.push_and_request(seq, header, values, next))?);
        };
        let pushed = rows.selection().clone();
        if let Some(next) = next {
            rows.choose(loader, train, next.range)?;
        }
        let asked = next.map(|next| (next.condition, rows.selection()));
        Ok(timer.waiting(|| shards.push_rows(seq, header, &pushed, values, asked))?)
    }
}
