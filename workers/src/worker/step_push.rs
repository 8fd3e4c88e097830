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
        let next = next.filter(|next| can_be_asked_for(*next, rows, loader, train));
        let asked = next.map(|next| (next.condition, rows.selection()));
        Ok(timer.waiting(|| shards.push_rows(seq, header, &pushed, values, asked))?)
    }
}

/// Chooses the rows of the next batch. What is wrong with that one is met when it is its turn: this push is
/// whole.
fn can_be_asked_for(
    next: NextPull,
    rows: &mut BatchRows,
    loader: &mut DataLoader,
    train: &TrainSpec,
) -> bool {
    rows.choose(loader, train, next.range).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use syncline_ps::content::digest_of;

    use safetensors::{Dtype, tensor::TensorView};
    use syncline_ps::shard::ReadCondition;
    use syncline_scheduler::{
        samples::SampleRange,
        sim,
        spec::{DataElement, DataInput, DataSpec, Source},
    };

    use super::{super::replicas::PieceWatch, *};

    #[test]
    fn a_next_batch_that_cannot_be_gathered_is_not_asked_for_and_no_fault_of_this_push() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users.safetensors");
        let ids: Vec<u8> = [1i64, 2, 3, 0].iter().flat_map(|id| id.to_le_bytes()).collect();
        let view = TensorView::new(Dtype::I64, vec![4], &ids).unwrap();
        fs::write(&path, safetensors::serialize([("user", view)], None).unwrap()).unwrap();
        let mut train = sim::training("bsp".parse().unwrap(), 4, 1);
        train.data = DataSpec::new(Source::safetensors(&path)).with(|data| {
            data.digest = Some(digest_of(&fs::read(&path).unwrap()));
            data.train_samples = 4;
        });
        let (name, element) = ("user".to_owned(), DataElement::I64);
        train.model.inputs = vec![DataInput {
            name,
            element,
            shape: vec![],
            rows: Some(4),
            column_rows: vec![],
            row_group: Some(0),
        }];
        train.model.label = None;
        let mut loader = DataLoader::open(&train, None, &PieceWatch::default()).unwrap().unwrap();
        let mut rows = BatchRows::of(&train.model).unwrap();
        for (start, want) in [(3, true), (4, false), (0, true)] {
            let range = SampleRange { epoch: 0, start, len: 1 };
            let next = NextPull { condition: ReadCondition::version(0), range };
            assert_eq!(can_be_asked_for(next, &mut rows, &mut loader, &train), want, "{start}");
        }
    }
}
