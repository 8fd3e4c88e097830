//! Room for one more copy of a job's part.

use std::io;

use super::JobShard;
use crate::{free_memory, transport::host_of};

impl JobShard {
    /// Refuses a copy of so many bytes for which there is no memory. Shards of the same machine copy their
    /// parts in the same moment.
    pub(super) fn check_room(&self, bytes: u64) -> io::Result<()> {
        free_memory::check_room(bytes.saturating_mul(self.shards_here()))
    }

    /// How many shards of the job are on this machine, as far as their addresses say.
    fn shards_here(&self) -> u64 {
        let shards = self.shards();
        let own = shards.get(self.index as usize).map(|address| host_of(address));
        shards.iter().filter(|other| Some(host_of(other)) == own).count().max(1) as u64
    }
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::ids::{EngineEpoch, Generation, Incarnation};

    use super::{super::barrier::tests::barrier, *};
    use crate::{free_memory::testing::while_free, shard::ReadCondition};

    const EPOCH: EngineEpoch = EngineEpoch(1);

    #[test]
    fn the_shards_of_a_machine_need_memory_for_all_their_copies() {
        let job = JobShard::of_values(Generation(1), &[1.0, 2.0]);
        job.set_addresses(&["a:1".into(), "a:2".into(), "b:1".into()]);
        assert!(while_free(2 * 8, || job.check_room(8)).is_ok());
        assert!(while_free(2 * 8 - 1, || job.check_room(8)).is_err());
    }

    #[test]
    fn a_checkpoint_that_there_is_no_memory_for_is_refused_and_comes_later() {
        let job = JobShard::of_values(Generation(1), &[1.0, 2.0]);
        let refused = while_free(job.copied_bytes() - 1, || job.pin_checkpoint(EPOCH, 3)).unwrap_err();
        assert!(
            refused.to_string().starts_with("[E406] cannot hold a copy of job digits for checkpoint 3: "),
            "{refused}"
        );
        assert!(job.pinned_checkpoint(3).is_none());
        while_free(job.copied_bytes(), || job.pin_checkpoint(EPOCH, 3)).unwrap();
        while_free(0, || job.pin_checkpoint(EPOCH, 3)).expect("it is there");
        assert!(job.pinned_checkpoint(3).is_some());
    }

    #[test]
    fn the_end_of_a_training_is_read_although_there_is_no_memory_to_keep_a_copy_of_it() {
        let job = JobShard::of_values(Generation(1), &[1.0, 2.0]);
        while_free(job.bytes() - 1, || job.add_barrier(EPOCH, barrier(0, true))).unwrap();
        let read = || job.wait_readable(Incarnation(1), ReadCondition::Pinned(1), || true);
        let grant = read().unwrap();
        assert!((grant.version, grant.pinned) == (1, None), "the values are as they were then");
        job.add_barrier(EPOCH, barrier(1, false)).unwrap();
        assert_eq!(read().unwrap_err().code(), "E407");
        while_free(job.bytes(), || job.add_barrier(EPOCH, barrier(2, true))).unwrap();
        job.add_barrier(EPOCH, barrier(3, false)).unwrap();
        let kept = job.wait_readable(Incarnation(1), ReadCondition::Pinned(3), || true).unwrap();
        assert_eq!(kept.pinned.as_deref(), Some(&vec![1.0, 2.0]));
    }
}
