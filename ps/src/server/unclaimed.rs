//! Jobs that no engine knows: saved ones that none has asked for yet, and those that one had and the next
//! does not.
//!
//! An engine that does not know a job tells the shard to forget it. Where Redis stands on what it was before
//! the job came, as after an old backup was put back, or with another Redis, that would be the end of a
//! training which its owner finds again the next day. So what was saved and that nobody has asked for since
//! is not forgotten but put back on disk, and read again once an engine asks for it. What was served until
//! Redis went back is written there as well, and given up here: who comes to know it again finds it there.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Mutex,
};

use syncline_rpc::{ShardFault, threads::lock};
use syncline_scheduler::ids::{EngineEpoch, RunId};
use tracing::warn;

use super::{blobs::disk_fault, saves::Saves};
use crate::shard::{JobEnd, JobShard};

/// Jobs that were restored when the process began and that nobody has asked for since, and those that were
/// set aside, each with its file.
#[derive(Default)]
pub(super) struct UnclaimedJobs {
    /// Each with where it was set aside.
    jobs: Mutex<HashMap<RunId, Option<PathBuf>>>,
    /// Held by whoever writes one down: an order that is repeated meanwhile must not write into the same
    /// file.
    writing: Mutex<()>,
}

impl UnclaimedJobs {
    /// A job was read from disk.
    pub(super) fn add(&self, run: &RunId, aside: Option<PathBuf>) {
        lock(&self.jobs).insert(run.clone(), aside);
    }

    /// Whether this run was set aside, and no engine has asked for it since. Most such jobs are over: none
    /// makes a process worth more than the other one, or is copied. Waits for no disk: while one is claimed
    /// no other counts.
    pub(super) fn is_set_aside(&self, run: &RunId) -> bool {
        let Ok(unclaimed) = self.jobs.try_lock() else { return false };
        unclaimed.get(run).is_some_and(Option::is_some)
    }

    /// An engine asks for the job, which goes on from here, or deletes it: what lies on disk of it, of
    /// whichever run, must not be read again. Whether it was set aside until now.
    pub(super) fn claim(&self, saves: &Saves, run: &RunId) -> Result<bool, ShardFault> {
        // Held until the file is gone: whoever asks a second time must not be served before.
        let mut unclaimed = lock(&self.jobs);
        let of_job = unclaimed.iter().filter(|(known, _)| known.is_of_same_job(run));
        let paths: Vec<_> = of_job.filter_map(|(_, path)| path.clone()).collect();
        paths.iter().try_for_each(|path| remove(saves, path))?;
        unclaimed.retain(|known, _| !known.is_of_same_job(run));
        Ok(!paths.is_empty())
    }

    /// Whether this run was read from disk, or set aside, and no engine has asked for it since.
    pub(super) fn has(&self, run: &RunId) -> bool {
        lock(&self.jobs).contains_key(run)
    }

    /// An engine does not know the job, or it is over. It is frozen, also where nobody has asked for it since it
    /// was read, since workers go on by themselves; and written down, unless it was since it is frozen. Where
    /// it lies then; `None`: an engine has asked for it meanwhile, or another order has set it aside.
    pub(super) fn set_aside(
        &self,
        saves: &Saves,
        epoch: EngineEpoch,
        shard: &JobShard,
    ) -> Result<Option<PathBuf>, ShardFault> {
        // Behind that: what goes on and is frozen again while it is written would pass for what was written.
        let _alone = lock(&self.writing);
        if shard.freeze(epoch)? {
            // Who waits for something must not be told that the job is over, but is hung up on and asks again
            // until an engine has asked for it.
            shard.notify();
        }
        match shard.end() {
            Some(JobEnd::Written) => {
                if let Some(Some(path)) = lock(&self.jobs).get(shard.run()) {
                    return Ok(Some(path.clone()));
                }
            }
            // Another order was faster.
            Some(JobEnd::Aside) => return Ok(None),
            // What lies there of a time before may lack pushes.
            Some(JobEnd::Frozen | JobEnd::Closed | JobEnd::Replaced(_)) | None => {}
        }
        let path = saves.set_aside(shard)?;
        let mut unclaimed = lock(&self.jobs);
        // It goes on: what was written is old from then on.
        if !shard.mark_written() {
            remove(saves, &path)?;
            return Ok(None);
        }
        say_set_aside(shard, &path);
        // An engine that asks for it, or deletes it, has to remove the file.
        unclaimed.insert(shard.run().clone(), Some(path.clone()));
        Ok(Some(path))
    }
}

fn say_set_aside(shard: &JobShard, path: &Path) {
    warn!(
        job = %shard.job(), path = %path.display(),
        "no engine knows this job, or it is over: set aside, and it goes on if an engine asks for it"
    );
}

fn remove(saves: &Saves, path: &Path) -> Result<(), ShardFault> {
    // It may have gone in a try whose end was not brought to disk, or by somebody's hand.
    let file = path.try_exists().unwrap_or(true).then(|| path.to_owned());
    saves
        .delete(file.as_slice())
        .map_err(|error| disk_fault("remove", path, &std::io::Error::other(error.to_string())))
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use syncline_scheduler::{
        ids::{Generation, Incarnation},
        sync::PushMode,
    };

    use super::{super::pull::tests::shard, *};
    use crate::{
        shard::{PushHeader, PushedChunk},
        waiting::until,
    };

    #[test]
    fn whoever_asks_for_a_later_run_of_a_job_claims_what_was_set_aside_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let (saves, unclaimed) = (Saves::open(dir.path().to_owned()).unwrap(), UnclaimedJobs::default());
        let before = shard(&[0.0; 3]);
        let later = RunId { generation: Generation(2), ..before.run().clone() };
        let other = RunId { generation: Generation::first(9), ..later.clone() };
        let path = saves.set_aside(&before).unwrap();
        unclaimed.add(before.run(), Some(path.clone()));
        assert_eq!(unclaimed.claim(&saves, &other), Ok(false));
        assert!(path.exists() && unclaimed.is_set_aside(before.run()), "another job of the name");
        assert_eq!(unclaimed.claim(&saves, &later), Ok(true));
        assert!(!path.exists() && !unclaimed.is_set_aside(before.run()));
    }

    #[test]
    fn what_an_engine_asks_for_while_it_is_written_down_is_not_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        let (saves, unclaimed) = (Saves::open(dir.path().to_owned()).unwrap(), UnclaimedJobs::default());
        let job = shard(&[0.0; 3]);
        job.lent_memory().unwrap().unwrap();
        assert_eq!(job.lend(), Some(0));
        let set_aside = || unclaimed.set_aside(&saves, EngineEpoch(1), &job);
        thread::scope(|scope| {
            let written = job.read_chunks(0, 1, |_| {
                let written = scope.spawn(set_aside);
                until("it is being written", || job.is_frozen());
                assert!(job.thaw());
                written
            });
            assert_eq!(written.join().unwrap(), Ok(None));
        });
        assert!(!unclaimed.has(job.run()));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        // As the thread of a connection does at its end.
        job.give_back(0);
        let (mode, worker) = (PushMode::Apply, Incarnation(1));
        let header = PushHeader { learning_rate: 1.0, weight: 1.0, scale: 1.0, skip: false, mode, covers: 1 };
        let chunk = PushedChunk { worker, seq: 1, index: 0, header: &header, share: None };
        job.apply(chunk, &[1.0; 3]).unwrap();
        assert!(job.lend().is_some(), "it lends as before");
        let path = set_aside().unwrap().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(set_aside(), Ok(Some(path.clone())));
        assert!(!path.exists(), "it is written once");
    }

    #[test]
    fn who_counts_jobs_waits_for_none_whose_file_is_being_removed() {
        let unclaimed: &'static UnclaimedJobs = Box::leak(Box::default());
        let job = shard(&[0.0; 3]);
        unclaimed.add(job.run(), Some(PathBuf::from("digits.forgotten")));
        assert!(unclaimed.is_set_aside(job.run()));
        let _claims = lock(&unclaimed.jobs);
        let (told, counted) = mpsc::channel();
        thread::spawn(move || told.send(unclaimed.is_set_aside(job.run())).unwrap());
        assert_eq!(counted.recv_timeout(Duration::from_secs(60)), Ok(false));
    }
}
