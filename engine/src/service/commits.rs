//! Writes what the core has decided, again and again until Redis has it.

use std::{
    fmt,
    future::Future,
    time::{Duration, Instant},
};

use futures::future::join_all;
use syncline_scheduler::{
    core::{Commit, Commits, Event, Happening},
    ids::JobId,
};
use tracing::{error, info, warn};

use super::{
    decision_loop::{DecisionLoop, LoopEnd},
    last_commit::LastCommit,
};
use crate::store::{CommitMode, Committed, Fence, StoreError};

/// Pause between two tries of a commit while Redis is away.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// So long another password is waited for: a server of `syncline up` that was started again has a new one,
/// and a moment passes until it is in the file from which it is read. This engine knows what that server may
/// have lost; one that reads everything again does not.
const PASSWORD_PATIENCE: Duration = Duration::from_secs(5);
/// So long a write is tried while the lease is renewed all the same: ten times what Redis has for an answer.
/// What is small gets through to Redis from here, then, and what is large does not; another engine may have a
/// better way there.
const UNWRITTEN_PATIENCE: Duration = Duration::from_secs(30);

impl DecisionLoop {
    /// Commits every touched job. While Redis is away the same commits are sent again; nothing is dropped.
    /// Where Redis has lost commits of this engine, the whole job is written again: this engine knows all
    /// of it.
    pub(super) async fn commit(&mut self, commits: &mut Commits) -> Result<(), LoopEnd> {
        let highest_seq = self.highest_seq;
        for (job, commit) in &mut *commits {
            match self.written.get_mut(job) {
                Some(written) => written.retain_changed_fields(commit),
                None => {
                    let written = self.written.entry(job.clone()).or_insert(LastCommit::up_to(highest_seq));
                    written.retain_changed_fields(commit);
                }
            }
        }
        for commits in self.core.order_commits(commits) {
            self.commit_all(&commits).await?;
        }
        Ok(())
    }

    pub(super) async fn commit_all(&mut self, commits: &[(&JobId, &Commit)]) -> Result<(), LoopEnd> {
        let this: &Self = self;
        let (store, epoch) = (&this.store, this.epoch);
        let each = commits.iter().map(|&(job, commit)| {
            let seq = this.next_seq(job);
            let mode = if commit.spec.is_some() { CommitMode::New } else { CommitMode::Next };
            let fence = Fence { epoch, seq, mode };
            let write = move || async move {
                store.committing(this.lead.store_outage.memory_limit()).commit(job, fence, commit).await
            };
            async move { this.retry_write("commit", job, write).await.map(|done| (job, seq, done)) }
        });
        let done: Vec<_> = join_all(each).await.into_iter().collect::<Result<_, LoopEnd>>()?;
        let mut has_lost = false;
        for ((job, seq, committed), (_, commit)) in done.into_iter().zip(commits) {
            if let Committed::StoreBehind { seq: known } = committed {
                has_lost = true;
                self.rewrite_job(job, seq, known, commit).await?;
            }
            if let Some(written) = self.written.get_mut(job) {
                written.seq = seq;
            }
            self.highest_seq = self.highest_seq.max(seq);
        }
        if has_lost {
            // What it has lost of one job it may have lost of others, however long they have been over.
            self.verify_all_ends();
        }
        Ok(())
    }

    /// The number of the next commit of a job.
    fn next_seq(&self, job: &JobId) -> u64 {
        self.written.get(job).map_or(self.highest_seq, |written| written.seq) + 1
    }

    /// Writes all of a job in the place of a commit that follows on something that Redis has lost.
    async fn rewrite_job(
        &mut self,
        job: &JobId,
        seq: u64,
        known: u64,
        refused: &Commit,
    ) -> Result<(), LoopEnd> {
        let now_us = self.clock.now_us();
        warn!(%job, seq, known, "redis has lost acknowledged commits; writing the whole job again");
        let whole = self.with_core(|core| core.full_commit(job, now_us)).await;
        let Some(mut whole) = whole else { return Ok(()) };
        append_streams(&mut whole, refused, Loss { seq, known }, now_us);
        self.relist_job(job, &whole, now_us).await?;
        let (store, whole) = (&self.store, &whole);
        let fence = Fence { epoch: self.epoch, seq, mode: CommitMode::Whole };
        let write = || store.commit(job, fence, whole);
        self.retry_write("commit", job, write).await.map(drop)
    }

    /// Repeats a write until Redis has taken it, or another engine owns what it writes. Meanwhile the cause
    /// is published in [`StoreOutage`](super::store_outage::StoreOutage).
    pub(super) async fn retry_write<T, F>(
        &self,
        what: &'static str,
        job: &JobId,
        write: impl Fn() -> F,
    ) -> Result<T, LoopEnd>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let (mut warned, begun) = (false, tokio::time::Instant::now());
        let (mut locked_out_since, mut failing_since) = (None, None);
        loop {
            self.lead.pulse.beat();
            match write().await {
                Ok(value) => {
                    if warned {
                        self.lead.standstill.note(begun, tokio::time::Instant::now());
                        info!(what, %job, "redis takes writes again");
                        self.lead.store_outage.set_commit_failure(None);
                        self.lead.store_outage.set_full(None);
                    }
                    return Ok(value);
                }
                // Only what is to grow is refused, by any engine: this one waits until somebody has deleted
                // something.
                Err(full @ StoreError::Full { .. }) => {
                    if !warned {
                        warn!(what, %job, error = %full, "redis is full; trying again until there is room");
                    }
                    warned = true;
                    failing_since = None;
                    self.lead.store_outage.set_commit_failure(None);
                    self.lead.store_outage.set_full(Some(full.to_string()));
                }
                Err(StoreError::Fenced { epoch, seq }) => {
                    warn!(what, %job, epoch, seq, "fenced: another engine owns the job");
                    return Err(LoopEnd::Deposed);
                }
                Err(passing)
                    if passing.is_passing()
                        || matches!(passing, StoreError::LockedOut { .. })
                            && locked_out_since.get_or_insert_with(Instant::now).elapsed()
                                < PASSWORD_PATIENCE =>
                {
                    if !warned {
                        warn!(what, %job, error = %passing, "redis takes no writes; trying again until it does");
                    }
                    warned = true;
                    self.lead.store_outage.set_full(None);
                    self.lead.store_outage.set_commit_failure(Some(passing.to_string()));
                    // Where the lease was over as well Redis was away as a whole, and what this engine knows
                    // is needed when it is back.
                    if self.lead.store_outage.lead_expired() {
                        failing_since = None;
                    }
                    let failing = failing_since.get_or_insert_with(tokio::time::Instant::now).elapsed();
                    if failing > UNWRITTEN_PATIENCE && self.lead.store_outage.renews_lead() {
                        let failing_s = failing.as_secs();
                        error!(what, %job, failing_s, error = %passing, "writes do not get through to Redis although the lease is renewed: this engine gives up its lead for a while");
                        return Err(LoopEnd::Unwritten);
                    }
                }
                Err(refused) => {
                    error!(what, %job, error = %refused, "redis refused a write; reading everything again");
                    tokio::time::sleep(RETRY_PAUSE).await;
                    return Err(LoopEnd::Deposed);
                }
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }
}

/// Commit `seq` of a job was refused, as Redis knew others up to `known`.
#[derive(Debug, Clone, Copy)]
struct Loss {
    seq: u64,
    known: u64,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seq, known } = *self;
        match seq.saturating_sub(1).saturating_sub(known) {
            _ if known == 0 => f.write_str("Redis had lost this job"),
            _ if known >= seq => f.write_str("another engine wrote meanwhile, and Redis had lost who leads"),
            0 => f.write_str("Redis had lost records of this job"),
            1 => f.write_str("Redis had lost 1 commit of this job"),
            lost => write!(f, "Redis had lost {lost} commits of this job"),
        }
    }
}

/// Adds to all of a job what only grows: what the refused commit held of that, and behind it that older
/// entries may be missing.
fn append_streams(whole: &mut Commit, refused: &Commit, loss: Loss, now_us: u64) {
    let reason = format!("{loss}: what happened before may be missing here");
    let said = Event { at_us: now_us, what: Happening::WrittenAgain { reason } };
    whole.events.splice(0..0, refused.events.iter().cloned().chain([said]));
    for (all, of_refused) in [
        (&mut whole.metrics.points, &refused.metrics.points),
        (&mut whole.evaluations.points, &refused.evaluations.points),
        (&mut whole.barriers, &refused.barriers),
        (&mut whole.results, &refused.results),
    ] {
        all.splice(0..0, of_refused.iter().cloned());
    }
    whole.metrics.halve |= refused.metrics.halve;
    whole.evaluations.halve |= refused.evaluations.halve;
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::core::{EventKind, SeriesChanges};

    use super::*;

    #[test]
    fn what_a_refused_commit_tells_is_in_the_one_that_takes_its_place_with_what_was_lost() {
        let event = |what| Event { at_us: 7, what };
        let refused = Commit {
            events: vec![event(Happening::Paused)],
            metrics: SeriesChanges { points: vec![vec![("at_ms", "7".to_owned())]], halve: true },
            ..Commit::default()
        };
        let mut whole = Commit { events: vec![event(Happening::Resumed)], ..Commit::default() };
        append_streams(&mut whole, &refused, Loss { seq: 9, known: 5 }, 5_000);
        let told: Vec<_> = whole.events.iter().map(|event| event.what.kind()).collect();
        assert_eq!(told, [EventKind::Paused, EventKind::WrittenAgain, EventKind::Resumed]);
        let said = &whole.events[1];
        let lost = |what: &Happening| matches!(what, Happening::WrittenAgain { reason } if reason.starts_with("Redis had lost 3 commits"));
        assert!(said.at_us == 5_000 && lost(&said.what), "{said:?}");
        assert_eq!((whole.metrics.points.len(), whole.metrics.halve), (1, true));
    }

    #[test]
    fn what_was_lost_is_told_as_far_as_the_numbers_show_it() {
        let cases = [
            (9, 0, "Redis had lost this job"),
            (9, 6, "Redis had lost 2 commits of this job"),
            (9, 7, "Redis had lost 1 commit of this job"),
            (9, 8, "Redis had lost records of this job"),
            (9, 9, "another engine wrote meanwhile, and Redis had lost who leads"),
            (6, 9, "another engine wrote meanwhile, and Redis had lost who leads"),
        ];
        for (seq, known, told) in cases {
            assert_eq!(Loss { seq, known }.to_string(), told, "{seq} {known}");
        }
    }
}
