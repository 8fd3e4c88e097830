//! The jobs that this engine knows: listed in Redis, shown to be there, forgotten when their time is over.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use futures::future::join_all;
use syncline_scheduler::{core::Commit, ids::JobId};
use tracing::warn;

use super::{
    decision_loop::{DecisionLoop, LoopEnd},
    last_commit::LastCommit,
};
use crate::store::{Expiry, keys::ENDED_JOB_EXPIRY_S};

/// Somebody may have taken jobs off the list, or the list away, or fields of a job's summary.
const RELIST_INTERVAL: Duration = Duration::from_secs(10);
/// What Redis has had for so long is on its disk.
const ON_DISK_AFTER: Duration = Duration::from_secs(60);
/// How long until Redis is asked again for a job that it keeps forever, because somebody told it to.
const KEPT_PAUSE: Duration = Duration::from_secs(3600);
/// So many of the jobs that ended last show at each look whether Redis was set back, and as many of all others
/// in turn.
const MOST_PROBED: usize = 100;

impl DecisionLoop {
    /// Looks whether a job is to be forgotten when its keys should expire, that ended just now, or at
    /// `ended_us` on the engine's clock.
    pub(super) fn schedule_forgetting(&mut self, job: &JobId, ended_us: Option<u64>) {
        let now_us = self.clock.now_us();
        let age = Duration::from_micros(now_us.saturating_sub(ended_us.unwrap_or(now_us)));
        let left = Duration::from_secs(ENDED_JOB_EXPIRY_S).saturating_sub(age);
        let now = Instant::now();
        self.forget_at.entry(job.clone()).or_insert(now + left);
        if age < ON_DISK_AFTER {
            self.lead.jobs.note_end(job, now);
        }
    }

    /// Lists all jobs again, now and then, and lets their summaries be written whole; and notes again which
    /// standbys were let go: a Redis that went back to an older state has lost it.
    pub(super) async fn relist_jobs(&mut self) -> Result<(), LoopEnd> {
        if self.listed_at.elapsed() <= RELIST_INTERVAL {
            return Ok(());
        }
        let listed = self.lead.jobs.listed();
        let Some(first) = listed.first() else { return Ok(()) };
        let (store, epoch, now_ms) = (&self.store, self.epoch, self.clock.now_us() / 1000);
        self.retry_write("list jobs", first, || store.relist_jobs(&listed, epoch, now_ms)).await?;
        for (shard, note) in self.lead.shards.role_notes().all() {
            self.retry_write("note who serves a shard", first, || store.note_role(shard, note, epoch))
                .await?;
        }
        self.listed_at = Instant::now();
        self.written.values_mut().for_each(LastCommit::forget_summary);
        self.watch_expiry_clock().await;
        self.verify_jobs().await
    }

    /// Gives Redis again what it has let go of before its time because its clock was set forward, such as
    /// that of a machine that started in 1970: jobs that are over, and are not due yet by a clock that
    /// nobody sets. While no engine runs nobody notices.
    async fn watch_expiry_clock(&mut self) {
        // A user of Redis that may not ask for the time loses this alone.
        let Ok(time_s) = self.store.time_s().await else { return };
        if !self.expiry_clock.was_set_forward(Instant::now(), time_s) {
            return;
        }
        warn!(
            "the clock of Redis was set forward, or this machine slept: jobs that are over are written again where it has let them go"
        );
        self.verify_all_ends();
    }

    /// Watches over the end of every job that is over, as of those that ended a moment ago, until Redis has
    /// shown that it has them all.
    pub(super) fn verify_all_ends(&self) {
        let now = Instant::now();
        for (job, _) in self.forget_at.iter().filter(|(_, at)| **at > now) {
            self.lead.jobs.note_end(job, now);
        }
    }

    /// Whether Redis was set back behind the end of a job: it has the job, as it was before. A job that it
    /// does not have at all may have been removed by somebody.
    async fn was_set_back(&mut self) -> Result<bool, LoopEnd> {
        let mut newest: Vec<(&Instant, &JobId)> = self.forget_at.iter().map(|(job, at)| (at, job)).collect();
        newest.sort_unstable_by(|one, other| other.cmp(one));
        let others = newest.split_off(newest.len().min(MOST_PROBED));
        let in_turn = others.chunks(MOST_PROBED).nth(self.ends_probed).unwrap_or_default();
        newest.extend(in_turn);
        self.ends_probed = if in_turn.len() < MOST_PROBED { 0 } else { self.ends_probed + 1 };
        let this = &*self;
        let reads = newest.into_iter().map(|(_, job)| async move {
            let read = || this.store.last_writer(job);
            let writer = this.retry_write("read the last writer", job, read).await?;
            let written = this.written.get(job).map_or(0, |written| written.seq);
            Ok(writer.seq().is_some_and(|seq| seq < written))
        });
        let behind: Vec<bool> = join_all(reads).await.into_iter().collect::<Result<_, LoopEnd>>()?;
        Ok(behind.contains(&true))
    }

    /// Lets Redis show that it has what it has acknowledged of each job that goes on, or ended a moment ago,
    /// and of all once it has shown that something is lost: a commit without any change is refused where it
    /// follows on something that is lost. A job that waits for hours, for workers say, would otherwise be
    /// missed by the next engine, and one that has ended, of which there is no other commit, would go on
    /// forever.
    async fn verify_jobs(&mut self) -> Result<(), LoopEnd> {
        let on_disk = Instant::now().checked_sub(ON_DISK_AFTER);
        // Also where others go on: those that were submitted since show nothing.
        if self.was_set_back().await? {
            self.verify_all_ends();
        }
        let jobs = self.jobs_to_verify();
        let nothing = Commit::default();
        let commits: Vec<(&JobId, &Commit)> = jobs.iter().map(|job| (job, &nothing)).collect();
        self.commit_all(&commits).await?;
        self.lead.jobs.forget_ends_before(on_disk);
        Ok(())
    }

    fn jobs_to_verify(&self) -> Vec<JobId> {
        let mut jobs = self.lead.jobs.listed();
        jobs.retain(|job| self.core.is_live(job) || self.lead.jobs.has_just_ended(job));
        jobs
    }

    /// Lists a job, before its first commit.
    pub(super) async fn list_job(&mut self, job: &JobId, now_us: u64) -> Result<(), LoopEnd> {
        self.lead.jobs.list(job);
        let (store, epoch) = (&self.store, self.epoch);
        self.retry_write("list job", job, || store.list_job(job, epoch, now_us / 1000)).await
    }

    /// Lists a job that is written again, at the place that it had.
    pub(super) async fn relist_job(
        &mut self,
        job: &JobId,
        whole: &Commit,
        now_us: u64,
    ) -> Result<(), LoopEnd> {
        let submitted_ms = whole.summary_field("submitted_ms").and_then(|ms| ms.parse().ok());
        let (store, epoch, at_ms) = (&self.store, self.epoch, submitted_ms.unwrap_or(now_us / 1000));
        self.retry_write("list job", job, || store.list_job(job, epoch, at_ms)).await
    }

    pub(super) async fn forget_job(&mut self, job: &JobId) -> Result<(), LoopEnd> {
        let (store, epoch) = (&self.store, self.epoch);
        self.retry_write("unlist job", job, || store.unlist_job(job, epoch)).await?;
        self.lead.jobs.forget_spec(job);
        self.written.remove(job);
        self.forget_at.remove(job);
        self.lead.jobs.forget_end(job);
        self.lead.jobs.unlist(job);
        Ok(())
    }

    /// Forgets jobs whose time is over, and which Redis has let go. A clock may be wrong: nothing is removed
    /// on its word alone.
    pub(super) async fn forget_expired(&mut self) -> Result<(), LoopEnd> {
        let now = Instant::now();
        let due = due(&self.forget_at, now);
        if due.is_empty() {
            return Ok(());
        }
        let expiries = match self.store.expiries(&due).await {
            Ok(expiries) => expiries,
            Err(error) => {
                warn!(%error, "redis does not say which jobs have expired; asking again");
                self.forget_at.extend(due.into_iter().map(|job| (job, now + RELIST_INTERVAL)));
                return Ok(());
            }
        };
        for (job, expiry) in due.iter().zip(expiries) {
            let left = match expiry {
                _ if self.core.is_live(job) => {
                    self.forget_at.remove(job);
                    continue;
                }
                Expiry::Gone => {
                    let effects = self.core.forget(job);
                    effects.into_iter().for_each(|effect| self.lead.dispatch(effect));
                    self.forget_job(job).await?;
                    continue;
                }
                Expiry::InMs(left_ms) => until_gone(left_ms),
                Expiry::Never => KEPT_PAUSE,
            };
            self.forget_at.insert(job.clone(), now + left);
        }
        Ok(())
    }
}

/// Jobs of which it is time to look whether they have expired.
pub(super) fn due(at: &BTreeMap<JobId, Instant>, now: Instant) -> Vec<JobId> {
    at.iter().filter(|(_, at)| **at <= now).map(|(job, _)| job.clone()).collect()
}

/// How long it takes until keys that expire in so many ms have.
pub(super) fn until_gone(left_ms: u64) -> Duration {
    Duration::from_millis(left_ms + 1)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use syncline_kit::{RedisOptions, RedisServer};
    use syncline_rpc::{Cause, ReplicaRole, ShardHello, ShardResponse};
    use syncline_scheduler::{
        core::{Cancellation, Core, IfTaken, Input, Submission},
        ids::ShardIndex,
        sim::{training, training_job},
        spec::{JobSpec, NodeKind},
    };

    use super::*;
    use crate::{
        service::{
            damaged_jobs::Damage,
            expiry_clock::ExpiryClock,
            fake_shard::{EPOCH, Inbox, Noted, lead, start},
            message::Message,
        },
        store::{
            RedisStore, StoreError,
            keys::{self, JobKeys},
        },
    };

    fn submission(name: &str) -> Input {
        let spec = training_job(training("bsp".parse().unwrap(), 64, 32));
        let spec = Box::new(JobSpec { id: name.parse().unwrap(), ..spec });
        Input::Submit(Submission { spec, nonce: 1, if_taken: IfTaken::Refuse })
    }

    /// Copies all keys to another database, as a backup has them.
    const COPY_ALL: &str =
        "for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('COPY', key, key, 'DB', 5) end return 1";

    /// A loop that nobody sends anything, with a Redis of its own.
    struct Rig {
        decisions: DecisionLoop,
        _inbox: Inbox,
        _redis: RedisServer,
        _dir: tempfile::TempDir,
    }

    async fn rig() -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let program = syncline_kit::redis_server(&|line| eprintln!("{line}")).unwrap();
        let redis = RedisServer::start(&program.path, RedisOptions::new(dir.path())).unwrap();
        let store = RedisStore::connect(&redis.url()).await.unwrap();
        let (lead, inbox) = lead();
        let clock = lead.clock;
        let decisions = DecisionLoop {
            core: Core::new(1),
            store,
            epoch: EPOCH,
            lead,
            clock,
            written: BTreeMap::new(),
            listed_at: Instant::now(),
            forget_at: BTreeMap::new(),
            damaged_until: BTreeMap::new(),
            ends_probed: 0,
            expiry_clock: ExpiryClock::default(),
            forget_scanned_at: Instant::now(),
            highest_seq: 0,
        };
        Rig { decisions, _inbox: inbox, _redis: redis, _dir: dir }
    }

    fn cancel(job: &JobId) -> Input {
        Input::Cancel(Cancellation { job: job.clone().into(), reason: String::new(), grace_ms: 0 })
    }

    impl Rig {
        async fn turn(&mut self, inputs: impl IntoIterator<Item = Input>) {
            let mut inputs: VecDeque<Message> = inputs.into_iter().map(Message::Input).collect();
            self.decisions.turn(&mut inputs).await.unwrap();
        }

        async fn number(&self, words: &[&str]) -> i64 {
            self.decisions.store.query("a test", words).await.unwrap()
        }

        async fn text(&self, words: &[&str]) -> String {
            self.decisions.store.query("a test", words).await.unwrap()
        }

        async fn is_listed(&self, job: &JobId) -> bool {
            self.decisions.store.jobs().await.unwrap().contains(job)
        }
    }

    #[tokio::test]
    async fn a_job_whose_time_is_over_is_forgotten_and_no_other_one() {
        let mut rig = rig().await;
        let [past, recent, live] = ["past", "recent", "live"].map(|name| name.parse::<JobId>().unwrap());
        rig.turn(["past", "recent", "live"].map(submission)).await;
        rig.turn([cancel(&past), cancel(&recent)]).await;
        assert_eq!(rig.decisions.forget_at.keys().collect::<Vec<_>>(), [&past, &recent]);
        // As if seven days were over for one of them, and for one that began anew under its name meanwhile.
        let now = Instant::now();
        rig.decisions.forget_at.insert(past.clone(), now);
        rig.decisions.forget_at.insert(live.clone(), now);
        rig.number(&[&["DEL"], &JobKeys::new(&past).all()[..]].concat()).await;
        rig.decisions.forget_expired().await.unwrap();
        let decisions = &rig.decisions;
        let known = |job: &JobId| {
            (
                decisions.core.job(job).is_some(),
                decisions.written.contains_key(job),
                decisions.lead.jobs.listed().contains(job),
            )
        };
        assert_eq!(known(&past), (false, false, false));
        assert_eq!(known(&recent), (true, true, true));
        assert_eq!(known(&live), (true, true, true), "one that is not over stays, whatever the time");
        assert!(!rig.is_listed(&past).await && rig.is_listed(&recent).await);
        assert!(decisions.lead.jobs.training(&past).is_none());
        assert!(decisions.lead.jobs.training(&recent).is_none(), "nobody trains for it any more");
        assert!(decisions.lead.jobs.training(&live).is_some());
        assert_eq!(decisions.forget_at.keys().collect::<Vec<_>>(), [&recent]);
    }

    #[tokio::test]
    async fn time_in_which_nothing_could_be_decided_counts_for_no_limit() {
        const HOUR_US: u64 = 3_600_000_000;
        for (stood_still, phase) in [(true, "queued"), (false, "failed")] {
            let mut rig = rig().await;
            let Input::Submit(mut submission) = submission("waits") else { unreachable!() };
            for node in &mut submission.spec.nodes {
                if let NodeKind::Train(train) = &mut node.kind {
                    train.queue_limit_ms = Some(60_000);
                }
            }
            let then_us = rig.decisions.clock.now_us() - HOUR_US;
            rig.decisions.core.handle(then_us, Input::Submit(submission)).unwrap();
            if stood_still {
                let begun = tokio::time::Instant::now();
                rig.decisions.lead.standstill.note(begun, begun + Duration::from_micros(HOUR_US));
            }
            rig.turn([Input::Tick]).await;
            let job = rig.decisions.core.job(&"waits".parse().unwrap()).unwrap();
            assert_eq!(job.phase().shown().to_string(), phase);
        }
    }

    #[tokio::test]
    async fn a_write_that_takes_long_is_no_standstill_and_one_that_has_to_be_repeated_is() {
        const HOUR: Duration = Duration::from_secs(3600);
        let rig = rig().await;
        let (decisions, job) = (&rig.decisions, "large".parse().unwrap());
        tokio::time::pause();
        for (fails, stood_still) in [(0, false), (1, true)] {
            let tries = std::cell::Cell::new(0);
            let write = || async {
                tokio::time::sleep(HOUR).await;
                tries.set(tries.get() + 1);
                match tries.get() > fails {
                    true => Ok(()),
                    false => Err(StoreError::Unavailable { op: "commit", cause: "no answer".into() }),
                }
            };
            decisions.retry_write("commit", &job, write).await.unwrap();
            let stood = decisions.lead.standstill.take();
            assert_eq!(stood.is_some_and(|stood| stood > HOUR), stood_still, "{stood:?}");
            assert_eq!(stood.is_some(), stood_still, "{stood:?}");
        }
    }

    #[tokio::test]
    async fn an_engine_whose_writes_do_not_get_through_gives_up_the_lead_that_it_could_renew() {
        const HOUR: Duration = Duration::from_secs(3600);
        let rig = rig().await;
        let (decisions, job) = (&rig.decisions, "large".parse().unwrap());
        let outage = &decisions.lead.store_outage;
        let write = || async {
            Err::<(), _>(StoreError::Unavailable { op: "commit", cause: "no answer within 3 s".into() })
        };
        // From here on an hour is over as soon as nothing else happens.
        tokio::time::pause();
        outage.set_lead_until(Instant::now() + HOUR);
        let ended = tokio::time::timeout(HOUR, decisions.retry_write("commit", &job, write)).await;
        assert!(matches!(ended, Ok(Err(LoopEnd::Unwritten))), "{ended:?}");
        outage.set_lease_failure(Some("no answer".into()));
        let ended = tokio::time::timeout(HOUR, decisions.retry_write("commit", &job, write)).await;
        assert!(
            ended.is_err(),
            "Redis is away as a whole, and this engine alone knows everything: {ended:?}"
        );
    }

    #[tokio::test]
    async fn an_engine_keeps_its_lead_when_redis_is_back_and_the_lease_is_renewed_before_a_write_gets_through()
     {
        const HOUR: Duration = Duration::from_secs(3600);
        let rig = rig().await;
        let (decisions, job) = (&rig.decisions, "large".parse().unwrap());
        let outage = &decisions.lead.store_outage;
        let (begun, tries) = (tokio::time::Instant::now(), std::cell::Cell::new(0));
        tokio::time::pause();
        // As the lease stands behind an hour without Redis.
        outage.set_lead_until(Instant::now() - Duration::from_secs(1));
        let write = || async {
            // The renewal comes through first; a write that was under way fails.
            if begun.elapsed() > HOUR {
                outage.set_lead_until(Instant::now() + HOUR);
                tries.set(tries.get() + 1);
            }
            match tries.get() {
                2.. => Ok(()),
                _ => Err(StoreError::Unavailable { op: "commit", cause: "no answer within 3 s".into() }),
            }
        };
        let ended = tokio::time::timeout(2 * HOUR, decisions.retry_write("commit", &job, write)).await;
        assert!(matches!(ended, Ok(Ok(()))), "{ended:?}");
    }

    #[tokio::test]
    async fn which_standby_was_let_go_is_noted_again_where_redis_has_lost_it() {
        let mut rig = rig().await;
        rig.turn([submission("digits")]).await;
        let hello = start(0, |_| ShardResponse::ListJobs(Ok(Vec::new()))).await;
        let role = Some(ReplicaRole::Primary { term: 7 });
        let alone = ShardHello { replicas: 2, role, lost: Some(8), follower: Some(8), ..hello };
        let shards = rig.decisions.lead.shards.clone();
        shards.announce(alone, EPOCH, &Noted).await;
        rig.decisions.listed_at -= 2 * RELIST_INTERVAL;
        rig.decisions.relist_jobs().await.unwrap();
        let noted = rig.decisions.store.role_notes(shards.indices()).await.unwrap().let_go;
        assert_eq!(noted, [(ShardIndex(0), 8)].into());
    }

    #[tokio::test]
    async fn a_job_that_was_taken_off_the_list_is_listed_again_also_where_another_came_in_its_place() {
        let mut rig = rig().await;
        let job: JobId = "digits".parse().unwrap();
        rig.turn([submission("digits")]).await;
        rig.number(&["ZREM", keys::JOBS, "digits"]).await;
        rig.number(&["ZADD", keys::JOBS, "1", "ghost"]).await;
        rig.decisions.listed_at -= 2 * RELIST_INTERVAL;
        rig.decisions.relist_jobs().await.unwrap();
        assert!(rig.is_listed(&job).await);
    }

    #[tokio::test]
    async fn a_clock_that_is_wrong_lets_no_job_be_forgotten_that_redis_has() {
        let mut rig = rig().await;
        let job: JobId = "recent".parse().unwrap();
        rig.turn([submission("recent"), cancel(&job)]).await;
        // As the clock of an engine that starts in another year has it.
        rig.decisions.forget_at.insert(job.clone(), Instant::now());
        rig.decisions.forget_expired().await.unwrap();
        assert!(rig.decisions.core.job(&job).is_some() && rig.is_listed(&job).await);
        let left = rig.decisions.forget_at[&job].saturating_duration_since(Instant::now());
        assert!(left > Duration::from_secs(ENDED_JOB_EXPIRY_S - 60), "{left:?}: as Redis says");
        // Somebody lets Redis keep it.
        rig.number(&["PERSIST", &JobKeys::new(&job).state]).await;
        rig.decisions.forget_at.insert(job.clone(), Instant::now());
        rig.decisions.forget_expired().await.unwrap();
        assert!(rig.decisions.core.job(&job).is_some() && rig.decisions.forget_at.contains_key(&job));
    }

    #[tokio::test]
    async fn a_damaged_job_is_forgotten_when_its_keys_have_expired_and_stays_while_redis_has_it() {
        let mut rig = rig().await;
        let job: JobId = "spoiled".parse().unwrap();
        rig.turn([submission("spoiled"), cancel(&job)]).await;
        rig.decisions.forget_at.clear();
        rig.decisions.lead.jobs.mark_damaged(&job, Damage::Records(Cause::from("spoiled")));
        rig.decisions.damaged_until.insert(job.clone(), Instant::now());
        rig.decisions.forget_expired_damaged().await.unwrap();
        let left = rig.decisions.damaged_until[&job].saturating_duration_since(Instant::now());
        assert!(left > Duration::from_secs(ENDED_JOB_EXPIRY_S - 60), "{left:?}: as Redis says");
        assert!(rig.decisions.lead.jobs.damaged(&job).is_some());

        rig.number(&[&["DEL"], &JobKeys::new(&job).all()[..]].concat()).await;
        rig.decisions.damaged_until.insert(job.clone(), Instant::now());
        rig.decisions.forget_expired_damaged().await.unwrap();
        assert!(rig.decisions.lead.jobs.damaged(&job).is_none() && !rig.decisions.lead.jobs.knows(&job));
        assert!(!rig.is_listed(&job).await && rig.decisions.damaged_until.is_empty());
    }

    #[tokio::test]
    async fn a_job_that_is_written_again_keeps_its_place_on_the_list() {
        let mut rig = rig().await;
        let names = ["z", "a"].map(|name| name.parse::<JobId>().unwrap());
        for job in &names {
            rig.turn([submission(job.as_str())]).await;
        }
        let submitted = rig.text(&["HGET", &JobKeys::new(&names[0]).job, "submitted_ms"]).await;
        rig.number(&[&["DEL"], &JobKeys::new(&names[0]).all()[..]].concat()).await;
        rig.decisions.verify_jobs().await.unwrap();
        assert_eq!(rig.text(&["ZSCORE", keys::JOBS, "z"]).await, submitted);
        assert_eq!(rig.decisions.lead.jobs.listed(), names);
    }

    #[tokio::test]
    async fn jobs_that_redis_let_go_because_its_clock_was_set_forward_are_written_again() {
        let mut rig = rig().await;
        let [due, over] = ["due", "over"].map(|name| name.parse::<JobId>().unwrap());
        rig.turn(["due", "over"].map(submission)).await;
        rig.turn([cancel(&due), cancel(&over)]).await;
        let now = Instant::now();
        rig.decisions.lead.jobs.forget_ends_before(Some(now));
        rig.decisions.forget_at.insert(due.clone(), now);
        let keys = [&due, &over].map(JobKeys::new);
        for keys in &keys {
            rig.number(&[&["DEL"], &keys.all()[..]].concat()).await;
        }
        let look = async |rig: &mut Rig| {
            rig.decisions.listed_at = now.checked_sub(2 * RELIST_INTERVAL).unwrap();
            rig.decisions.relist_jobs().await.unwrap();
            (rig.number(&["EXISTS", &keys[0].state]).await, rig.number(&["EXISTS", &keys[1].state]).await)
        };
        assert_eq!(look(&mut rig).await, (0, 0), "who removes them means it");
        // As if the clock had shown 1970 a moment ago.
        rig.decisions.expiry_clock.was_set_forward(now, 0);
        assert_eq!(look(&mut rig).await, (0, 1), "one whose time is over stays away");
        assert!(rig.number(&["TTL", &keys[1].state]).await > 600_000);
    }

    #[tokio::test]
    async fn an_end_that_redis_lost_is_written_again_and_verified_until_it_is_on_disk() {
        let mut rig = rig().await;
        let job: JobId = "ended".parse().unwrap();
        let keys = JobKeys::new(&job);
        rig.turn([submission("ended")]).await;
        for key in [&keys.state, &keys.job] {
            rig.number(&["COPY", key, &format!("{key}:before")]).await;
        }
        rig.turn([cancel(&job)]).await;
        for key in [&keys.state, &keys.job] {
            rig.number(&["COPY", &format!("{key}:before"), key, "REPLACE"]).await;
            assert_eq!(rig.number(&["TTL", key]).await, -1);
        }
        rig.decisions.verify_jobs().await.unwrap();
        assert_eq!(rig.text(&["HGET", &keys.job, "state"]).await, "canceled");
        for key in [&keys.state, &keys.job] {
            assert!(rig.number(&["TTL", key]).await > 600_000, "{key}");
        }
        let jobs = rig.decisions.lead.jobs.clone();
        assert!(jobs.has_just_ended(&job), "Redis may lose it once more");
        jobs.note_end(&job, Instant::now().checked_sub(ON_DISK_AFTER).unwrap());
        rig.decisions.verify_jobs().await.unwrap();
        assert!(!jobs.has_just_ended(&job));
    }

    #[tokio::test]
    async fn jobs_that_ended_long_before_redis_was_set_back_are_written_again_whether_others_go_on_or_not() {
        #[rustfmt::skip]
        let cases: [(&[&str], usize, &[&str]); 4] = [
            // What goes on, how many come and go behind the copy, what is submitted before anybody looks.
            (&["goes-on"], 1,                   &[]),
            (&[],          1,                   &[]),
            (&[],          1,                   &["later"]),
            (&[],          MOST_PROBED * 2 + 1, &[]),
        ];
        for (others, newer, later) in cases {
            let case = format!("beside {others:?}, {newer} and {later:?}");
            let mut rig = rig().await;
            let ended: JobId = "ended".parse().unwrap();
            rig.turn([submission("ended")].into_iter().chain(others.iter().copied().map(submission))).await;
            rig.turn([Input::Tick]).await;
            rig.number(&["EVAL", COPY_ALL, "0"]).await;
            // They come and go behind that copy, which does not have them at all.
            rig.turn([cancel(&ended)]).await;
            let newer: Vec<JobId> = (0..newer).map(|n| format!("newer-{n}").parse().unwrap()).collect();
            rig.turn(newer.iter().map(|job| submission(job.as_str()))).await;
            rig.turn(newer.iter().map(cancel)).await;
            rig.decisions.verify_jobs().await.unwrap();
            rig.decisions.lead.jobs.forget_ends_before(Some(Instant::now()));
            rig.text(&["SWAPDB", "0", "5"]).await;
            rig.turn(later.iter().copied().map(submission)).await;
            let state = &["HGET", &JobKeys::new(&ended).job, "state"];
            assert_eq!(rig.text(state).await, "queued");
            for _ in 0..3 {
                rig.decisions.verify_jobs().await.unwrap();
            }
            assert_eq!(rig.text(state).await, "canceled", "{case}");
            assert!(rig.is_listed(newer.last().unwrap()).await, "{case}");
        }
    }

    #[tokio::test]
    async fn a_job_that_was_deleted_replaced_or_is_due_stays_away_when_others_are_written_again() {
        let mut rig = rig().await;
        let names = ["kept", "deleted", "replaced", "due"];
        let [kept, deleted, replaced, due] = names.map(|name| name.parse::<JobId>().unwrap());
        rig.turn(names.map(submission)).await;
        rig.turn([&kept, &deleted, &replaced, &due].map(cancel)).await;
        let Input::Submit(mut next) = submission("replaced") else { unreachable!() };
        (next.nonce, next.if_taken) = (2, IfTaken::Replace);
        rig.turn([Input::Delete(deleted.clone()), Input::Submit(next)]).await;
        rig.decisions.forget_at.insert(due.clone(), Instant::now());
        for job in [&kept, &due] {
            rig.number(&[&["DEL"], &JobKeys::new(job).all()[..]].concat()).await;
        }
        rig.decisions.forget_expired().await.unwrap();
        rig.decisions.verify_all_ends();
        rig.decisions.verify_jobs().await.unwrap();
        let there = async |job| rig.number(&["EXISTS", &JobKeys::new(job).job]).await;
        assert_eq!((there(&kept).await, there(&deleted).await, there(&due).await), (1, 0, 0));
        assert!(!rig.is_listed(&deleted).await && !rig.is_listed(&due).await);
        let state = rig.text(&["HGET", &JobKeys::new(&replaced).job, "state"]).await;
        assert_eq!(state, "queued", "the one that took its place");
    }

    #[tokio::test]
    async fn a_job_counts_on_from_those_that_were_before_it_also_where_they_are_forgotten() {
        let mut rig = rig().await;
        let job: JobId = "again".parse().unwrap();
        let seq = async |rig: &Rig| rig.number(&["HGET", &JobKeys::new(&job).state, "seq"]).await;
        rig.turn([submission("again")]).await;
        rig.turn([cancel(&job)]).await;
        let ended = seq(&rig).await;
        rig.turn([Input::Delete(job.clone())]).await;
        assert!(!rig.decisions.written.contains_key(&job));
        rig.turn([submission("again")]).await;
        assert!(seq(&rig).await > ended + 1, "the deletion had a number, too");
        rig.turn([submission("other")]).await;
        let other = JobKeys::new(&"other".parse().unwrap()).state;
        assert!(rig.number(&["HGET", &other, "seq"]).await > ended + 2);
    }
}
