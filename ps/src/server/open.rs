//! Loading this shard's part of the parameters when a job opens.

use std::io;

use syncline_rpc::{OpenJob, ShardFault};
use syncline_scheduler::{
    ids::EngineEpoch,
    spec::{ElementRange, Optimizer, StepRun},
};

use super::{Shared, blob_source::BlobSource, checkpoints};
use crate::{
    checkpoint_file::Sections,
    shard::{JobShard, check_settings},
};

/// Longest header that the safetensors format allows.
const MAX_SAFETENSORS_HEADER: u64 = 100_000_000;

/// Checks the order and loads the initial values, from the own blobs or from a peer's.
pub(super) fn load(shared: &Shared, order: &OpenJob, epoch: EngineEpoch) -> Result<JobShard, ShardFault> {
    let elements = check(order)?;
    let range = ElementRange::of_shard(elements, order.shard.0, order.shards.len() as u32);
    if let Some(number) = order.checkpoint {
        return checkpoints::load(shared, order, range, epoch, number);
    }
    let mut blob = BlobSource::find(shared, &order.initial, &order.shards)?;
    let sections = sections(blob.bytes(), blob.start(), order)?;
    let mut load = || -> io::Result<JobShard> {
        let shard = JobShard::read(order, range, epoch, &mut blob.read(sections.values(range))?)?;
        if let Some(runs) = &order.resumed {
            let mut moments = Vec::new();
            for index in 0..order.optimizer.moments() {
                moments.push(shard.read_moment(&mut blob.read(sections.moment(index, range))?)?);
            }
            shard.restore_optimizer(runs, moments);
        }
        Ok(shard)
    };
    load().map_err(|cause| ShardFault::Io {
        what: format!("cannot load {} parameters of job {}", range.len(), order.run.job),
        cause: cause.to_string(),
    })
}

/// Elements of the layout, if the order makes sense.
fn check(order: &OpenJob) -> Result<u64, ShardFault> {
    let invalid = |what: &str| {
        Err(ShardFault::Invalid { what: format!("{what} in the order for job {}", order.run.job) })
    };
    let position = (order.shard.0, order.shards.len());
    let elements = match check_settings(&order.layout, &order.optimizer, order.clip_norm, position) {
        Ok(elements) => elements,
        Err(fault) => return invalid(&fault),
    };
    let trained = order.layout.trained_elements();
    let covered = |runs: &[StepRun]| StepRun::total_elements(runs) == Some(trained);
    if !order.resumed.as_deref().is_none_or(covered) {
        return invalid("steps of an optimizer that do not cover the trained parameters");
    }
    Ok(elements)
}

/// Where the numbers lie: at once in a blob of plain values, behind its header in one of our own files, which keep the values
/// in layout order too. Anything else has the wrong length.
fn sections(total: u64, start: [u8; 8], order: &OpenJob) -> Result<Sections, ShardFault> {
    let optimizer = if order.resumed.is_some() { order.optimizer } else { Optimizer::sgd() };
    let at = |data| Sections::new(data, &order.layout, &optimizer);
    let header = u64::from_le_bytes(start);
    let plain = at(0).filter(|sections| sections.end() == total);
    let behind_header = || (header <= MAX_SAFETENSORS_HEADER).then(|| at(8 + header)).flatten();
    plain.or_else(|| behind_header().filter(|sections| sections.end() == total)).ok_or_else(|| {
        let expected = at(0).map_or(0, |sections| sections.end());
        let what = format!(
            "initial parameters of {total} bytes, expected {expected}: the model and the layout differ"
        );
        ShardFault::Invalid { what }
    })
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::{
        ids::{Generation, RunId, ShardIndex},
        spec::{Layout, Parameter},
    };

    use super::*;

    #[test]
    fn values_begin_at_once_or_behind_a_header_and_the_optimizers_state_only_where_it_is_expected() {
        let order = OpenJob {
            run: RunId { job: "digits".parse().unwrap(), generation: Generation(1) },
            shard: ShardIndex(0),
            shards: vec!["a:1".into()],
            layout: Layout(vec![Parameter::trained("w", vec![6]), Parameter::buffer("m", vec![4])]),
            optimizer: Optimizer::adam(),
            clip_norm: None,
            initial: String::new(),
            resumed: None,
            checkpoint: None,
        };
        let resumed = OpenJob { resumed: Some(vec![StepRun { elements: 6, steps: 1 }]), ..order.clone() };
        let begin = |order: &OpenJob, bytes: u64, header: u64| {
            let sections = sections(bytes, header.to_le_bytes(), order).ok()?;
            Some(sections.values(ElementRange { start: 0, end: 0 }).offset)
        };
        assert_eq!(begin(&order, 40, 0), Some(0));
        assert_eq!(begin(&order, 8 + 64 + 40, 64), Some(72));
        assert_eq!(begin(&order, 41, 0), None);
        assert_eq!(begin(&order, 8 + 64 + 40, 65), None);
        assert_eq!(begin(&order, 8 + 64 + 40 + 48, 64), None);
        assert_eq!(begin(&resumed, 8 + 64 + 40 + 48, 64), Some(72));
        assert_eq!(begin(&resumed, 8 + 64 + 40, 64), None);
        assert_eq!(begin(&resumed, 8 + 64 + 40 + 48, u64::MAX), None);
    }
}
