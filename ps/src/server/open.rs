//! Opening a job: its part of the parameters is loaded, and what goes with it is started.

use std::{io, sync::Arc};

use syncline_rpc::{OpenJob, ShardFault, ShardState};
use syncline_scheduler::{
    ids::EngineEpoch,
    spec::{ElementRange, Optimizer, StepRun},
};

use super::{Shared, blob_source::BlobSource, checkpoints, norms, replication};
use crate::{
    checkpoint_file::Sections,
    free_memory,
    shard::{JobShard, check_settings, part_bytes},
};

/// Longest header that the safetensors format allows.
const MAX_SAFETENSORS_HEADER: u64 = 100_000_000;

/// Opens a job. Where it is open already, says where it stands, with the job: as with `attach`, the standby
/// may lack what this says.
pub(super) fn open(
    shared: &Arc<Shared>,
    epoch: EngineEpoch,
    job: &OpenJob,
) -> Result<(ShardState, Option<Arc<JobShard>>), ShardFault> {
    let load = || load(shared, job, epoch);
    let serves = || shared.role.serves();
    let opened = shared.jobs.open(epoch, &job.run, &job.shards, load, serves)?;
    let Some(fresh) = &opened.created else { return Ok((opened.state, Some(shared.jobs.find(&job.run)?))) };
    begin(shared, epoch, fresh, norms::follow_peers)?;
    Ok((opened.state, None))
}

/// Starts what goes with a job that was just opened. Where its norms cannot be followed it is closed again,
/// for the order to be repeated: nothing would be started for one that is open.
fn begin(
    shared: &Arc<Shared>,
    epoch: EngineEpoch,
    fresh: &Arc<JobShard>,
    follow_peers: impl FnOnce(&Arc<Shared>, &Arc<JobShard>) -> Result<(), ShardFault>,
) -> Result<(), ShardFault> {
    replication::start_if_followed(shared, fresh);
    follow_peers(shared, fresh).or_else(|fault| {
        shared.jobs.close(epoch, fresh.run())?;
        Err(fault)
    })
}

/// Checks the order and loads the initial values, from the own blobs or from a peer's.
fn load(shared: &Shared, order: &OpenJob, epoch: EngineEpoch) -> Result<JobShard, ShardFault> {
    let elements = check(order)?;
    let range = ElementRange::of_shard(elements, order.shard.0, order.shards.len() as u32);
    // Before anything is ended for it: what an order that is refused would replace goes on.
    if let Some(known_through) = order.known_through {
        checkpoints::check_none_beyond(shared, &order.run, known_through)?;
    }
    make_room(shared, order, range)?;
    if let Some(number) = order.checkpoint {
        return checkpoints::load(shared, order, range, epoch, number);
    }
    let mut blob = BlobSource::find(shared, order.initial, &order.shards)?;
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

/// Ends the run of a job that is open where there is no memory for the next one beside it. An error says so:
/// what it had is free when the order comes again.
fn make_room(shared: &Shared, order: &OpenJob, range: ElementRange) -> Result<(), ShardFault> {
    let bytes = part_bytes(&order.layout, range, &order.optimizer);
    match free_memory::check_room(bytes) {
        Err(cause) if shared.jobs.end_run_before(&order.run) => Err(ShardFault::Io {
            what: format!("cannot load job {} beside its run before, which ends now", order.run.job),
            cause: cause.to_string(),
        }),
        Ok(()) | Err(_) => Ok(()),
    }
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

/// Where the numbers lie: at once in a blob of plain values, behind its header in one of our own files, which
/// keep the values in layout order too. Anything else has the wrong length.
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
    use std::time::Duration;

    use syncline_scheduler::{
        ids::{ContentDigest, Generation, RunId, ShardIndex},
        spec::{Layout, Parameter},
    };

    use super::{super::pull::tests::shard, *};
    use crate::free_memory::testing::while_free;

    fn order() -> OpenJob {
        OpenJob {
            run: RunId { job: "digits".parse().unwrap(), generation: Generation(1) },
            shard: ShardIndex(0),
            shards: vec!["a:1".into()],
            layout: Layout(vec![Parameter::trained("w", vec![6]), Parameter::buffer("m", vec![4])]),
            optimizer: Optimizer::adam(),
            clip_norm: None,
            initial: ContentDigest::LOWEST,
            resumed: None,
            checkpoint: None,
            known_through: None,
        }
    }

    #[test]
    fn values_begin_at_once_or_behind_a_header_and_the_optimizers_state_only_where_it_is_expected() {
        let order = order();
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

    #[test]
    fn an_engine_that_opens_what_is_open_hears_nothing_that_the_standby_may_lack() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, epoch, term) = (Shared::for_test(dir.path()), EngineEpoch(1), 7);
        let job = Arc::new(shard(&[0.0; 3]));
        shared.jobs.restore(job.clone());
        let order = OpenJob { run: job.run().clone(), ..order() };
        assert!(open(&shared, epoch, &order).is_ok());
        assert!(job.copy_for_standby(term, |_| io::Result::Ok(())).unwrap());
        assert!(job.set_standby_in_step(term));
        // The process stops before the standby has said that it has everything.
        job.stop_standby();
        let (_, unconfirmed) = open(&shared, epoch, &order).unwrap();
        assert_eq!(
            unconfirmed
                .as_ref()
                .map(|job| job.confirmed_within(job.standby_mark(), Duration::ZERO))
                .unwrap()
                .unwrap_err()
                .code(),
            "E409"
        );
    }

    #[test]
    fn a_run_that_there_is_no_memory_for_beside_the_one_before_takes_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, epoch) = (Shared::for_test(dir.path()), EngineEpoch(1));
        let before = Arc::new(shard(&[0.0; 3]));
        shared.jobs.restore(before.clone());
        let run = RunId { generation: Generation(2), ..before.run().clone() };
        let next = OpenJob { run: run.clone(), optimizer: Optimizer::sgd(), ..order() };
        let code = |free_bytes| {
            while_free(free_bytes, || open(&shared, epoch, &next)).err().map(|fault| fault.code())
        };
        // The shard that may have the initial parameters is none.
        assert_eq!(code(40), Some("E429"));
        assert!(shared.jobs.find(before.run()).is_ok(), "there was room for both");
        assert_eq!(code(39), Some("E406"));
        assert!(before.is_over() && shared.jobs.open_jobs().is_empty());
        assert_eq!(code(39), Some("E429"), "it has all the memory that there is");
    }

    #[test]
    fn an_order_that_newer_checkpoints_refuse_ends_no_run_for_which_there_is_no_memory_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, epoch) = (Shared::for_test(dir.path()), EngineEpoch(1));
        let before = Arc::new(shard(&[0.0; 3]));
        shared.jobs.restore(before.clone());
        before.pin_checkpoint(epoch, 3).unwrap();
        checkpoints::write(&shared, &before, 3).unwrap();
        let run = RunId { generation: Generation(2), ..before.run().clone() };
        let code = |known_through| {
            let next = OpenJob { run: run.clone(), optimizer: Optimizer::sgd(), known_through, ..order() };
            while_free(39, || open(&shared, epoch, &next)).err().map(|fault| fault.code())
        };
        assert_eq!(code(Some(2)), Some("E646"));
        assert!(!before.is_over() && shared.jobs.find(before.run()).is_ok());
        assert_eq!(code(Some(3)), Some("E406"), "nothing is newer than what this order knows of");
        assert!(before.is_over());
    }

    #[test]
    fn a_job_whose_norms_cannot_be_followed_is_closed_so_that_the_order_can_be_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, epoch) = (Shared::for_test(dir.path()), EngineEpoch(1));
        let run = shard(&[0.0; 3]).run().clone();
        let open = || {
            let opened = shared.jobs.open(epoch, &run, &[], || Ok(shard(&[0.0; 3])), || true).unwrap();
            opened.created.expect("nothing is open")
        };
        let no_thread = || ShardFault::Io { what: "no thread".into(), cause: String::new() };
        let begun = begin(&shared, epoch, &open(), |_, _| Err(no_thread()));
        assert_eq!((begun, shared.jobs.open_jobs().len()), (Err(no_thread()), 0));
        begin(&shared, epoch, &open(), norms::follow_peers).unwrap();
        assert_eq!(shared.jobs.open_jobs().len(), 1);
    }
}
