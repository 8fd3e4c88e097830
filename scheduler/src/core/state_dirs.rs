//! The state directories of shards in which the parameters of a job lie. A shard may come back on another
//! one, because the disk was not mounted when its machine started, say: it has nothing of the job then, and
//! all of it is there as soon as the disk is. The job waits for that as for a lost shard, but not forever:
//! the disk may be gone. Where a shard has two processes, one of them on a directory of the job is enough not
//! to wait: what it lacks is lost.

use std::collections::BTreeMap;

use super::{inputs::TaskFault, job::Job, panics::Handling, records::Phase, state_machine::Core, turn::Turn};
use crate::{
    fault_code::FaultCode,
    ids::{Incarnation, RunId, ShardIndex, StateDirId},
};

/// So long the old directory is waited for: as long as for a disk that cannot be read, where there is an
/// older checkpoint.
const PATIENCE_US: u64 = 900_000_000;
/// What a shard did that is waited for.
const MOVED: &str = "came back on another state directory, without what it held: is its disk mounted?";

/// The state directories of the processes of each shard.
pub(super) type StateDirs = BTreeMap<ShardIndex, ShardDirs>;

/// The state directories of the processes of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardDirs {
    /// That from which it is served.
    pub serving: StateDirId,
    /// That of the process which follows, if there is one.
    pub following: Option<StateDirId>,
}

impl Core {
    /// A shard is served from one of these directories.
    pub(super) fn shard_served(&mut self, shard: ShardIndex, dirs: ShardDirs) {
        self.state_dirs.insert(shard, dirs);
    }

    /// Whether what a shard says that it lacks may lie in another directory of it. What it says that it holds
    /// decides then.
    pub(super) fn may_lie_elsewhere(&self, run: &RunId, code: FaultCode) -> bool {
        let Some(job) = self.jobs.get(&run.job) else { return false };
        let lacks_something = code == FaultCode::PARAMETERS_LOST || job.state.phase == Phase::Opening;
        lacks_something && self.state_dirs.keys().any(|shard| job.lies_elsewhere(*shard, &self.state_dirs))
    }

    /// A shard has nothing of a job that is over, whose last weights are to be written. They may lie in
    /// another directory of it.
    pub(super) fn weights_missing(
        &mut self,
        run: &RunId,
        fault: TaskFault,
        missing_us: u64,
        turn: &mut Turn<'_>,
    ) {
        let Some(job) = self.jobs.get_mut(&run.job).filter(|job| job.is_run(run)) else { return };
        let has_moved = self.state_dirs.keys().any(|shard| job.has_moved(*shard, &self.state_dirs));
        if has_moved && missing_us < PATIENCE_US {
            job.weights_delayed(format!("{}: a shard {MOVED}", fault.in_words()));
        } else {
            job.weights_kept(Err(fault), turn);
        }
    }

    /// Whether some job has waited for long enough.
    pub(super) fn ends_wait_for_state_dir(&self, now_us: u64) -> bool {
        self.jobs.live().any(|job| job.overdue_state_dir(now_us).is_some())
    }

    /// Jobs that have waited for long enough do what they do where the parameters are lost.
    pub(super) fn end_waits_for_state_dirs(&mut self, turn: &mut Turn<'_>) {
        if !self.ends_wait_for_state_dir(turn.now_us) {
            return;
        }
        for (id, job) in self.jobs.live_mut() {
            let _handling = Handling(id);
            while let Some(shard) = job.overdue_state_dir(turn.now_us) {
                job.end_wait(shard, turn.now_us);
                job.state.state_dirs.remove(&shard);
                job.state.standby_dirs.remove(&shard);
                let why = format!(
                    "it did not come back on its old state directory within {} minutes",
                    PATIENCE_US / 60_000_000
                );
                job.parameters_missing(shard, &why, turn);
            }
        }
    }
}

impl Job {
    /// Whether no process of the shard has a directory in which its part of this job lies.
    pub(super) fn lies_elsewhere(&self, shard: ShardIndex, dirs: &StateDirs) -> bool {
        let opened = matches!(self.state.phase, Phase::Opening | Phase::Running);
        opened && self.has_moved(shard, dirs)
    }

    fn has_moved(&self, shard: ShardIndex, dirs: &StateDirs) -> bool {
        let (serving, following) = (&self.state.state_dirs, &self.state.standby_dirs);
        let (Some(here), Some(there)) = (dirs.get(&shard), serving.get(&shard)) else { return false };
        let is_there = |dir: &StateDirId| dir == there || following.get(&shard) == Some(dir);
        !is_there(&here.serving) && !here.following.as_ref().is_some_and(is_there)
    }

    /// The shard holds its part, wherever it is served from now.
    pub(super) fn note_state_dir(&mut self, shard: ShardIndex, dirs: &StateDirs) {
        let Some(&ShardDirs { serving, following }) = dirs.get(&shard) else { return };
        let changed = self.state.state_dirs.insert(shard, serving) != Some(serving);
        let follows = following.or_else(|| self.state.standby_dirs.get(&shard).copied());
        self.changes.job_state |=
            changed | self.note_standby_dir(shard, follows.filter(|dir| *dir != serving));
    }

    /// All shards hold their parts.
    pub(super) fn note_state_dirs(&mut self, dirs: &StateDirs) {
        (self.state.state_dirs, self.state.standby_dirs) = Default::default();
        dirs.keys().for_each(|shard| self.note_state_dir(*shard, dirs));
    }

    /// Whether that is new.
    fn note_standby_dir(&mut self, shard: ShardIndex, dir: Option<StateDirId>) -> bool {
        let noted = &mut self.state.standby_dirs;
        let before = match dir {
            Some(dir) => noted.insert(shard, dir),
            None => noted.remove(&shard),
        };
        before != dir
    }

    /// Whether it waits for the old directory of some shard: what others lack is no matter until that is
    /// there.
    pub(super) fn awaits_state_dirs(&self) -> bool {
        self.state.lost_shards.values().any(|lost| lost.until_us.is_some())
    }

    /// Whether it waits for the old directory of a shard that is there.
    pub(super) fn awaits_state_dir(&self, shard: ShardIndex) -> bool {
        self.state.lost_shards.get(&shard).is_some_and(|lost| lost.until_us.is_some())
    }

    /// Returns the workers for which it has no use meanwhile.
    pub(super) fn await_state_dir(&mut self, shard: ShardIndex, turn: &mut Turn<'_>) -> Vec<Incarnation> {
        let reason = format!("it {MOVED}");
        self.await_shard(shard, reason, Some(turn.now_us.saturating_add(PATIENCE_US)), turn)
    }

    fn overdue_state_dir(&self, now_us: u64) -> Option<ShardIndex> {
        let mut lost = self.state.lost_shards.iter();
        lost.find(|(_, lost)| lost.until_us.is_some_and(|until_us| until_us <= now_us))
            .map(|(shard, _)| *shard)
    }
}
