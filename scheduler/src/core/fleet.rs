//! All jobs and all workers: the one state machine of the engine.

use std::collections::BTreeMap;

use super::{
    change::Commits,
    io::{Effect, Input, Refused, WorkerAbout},
    job::Job,
    state::{Member, Phase, Spent, Standing, Transfer},
};
use crate::{
    balance::CurveFit,
    ids::{Generation, Incarnation, JobId},
    predict::Speedometer,
};

/// Code of a job that ended because a shard's parameters are gone.
const SHARD_LOST: &str = "E220";

/// Jobs in the order they were submitted, and the workers they share. A worker serves one job at a time, so that
/// barriers of two jobs can never wait for each other.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Core {
    shards: u32,
    jobs: BTreeMap<JobId, Job>,
    workers: BTreeMap<Incarnation, WorkerAbout>,
}

impl Core {
    /// An empty core for a parameter server of `shards` shards.
    pub fn new(shards: u32) -> Self {
        Self { shards, ..Self::default() }
    }

    /// Handles one input at `now_us` on the engine's clock (epoch microseconds). The effects may be carried out once
    /// what [`Core::take_commits`] returns is committed.
    pub fn handle(&mut self, now_us: u64, input: Input) -> Result<Vec<Effect>, Refused> {
        let mut fx = Vec::new();
        // Workers are placed when one or a job came or went; reports alone never free anybody.
        let place = matches!(
            input,
            Input::Submit(_) | Input::WorkerJoined { .. } | Input::WorkerGone { .. } | Input::Sealed { .. }
        );
        match input {
            Input::Submit(spec) => {
                spec.validate()?;
                if self.jobs.contains_key(&spec.id) {
                    return Err(Refused::Duplicate { job: spec.id });
                }
                self.jobs.insert(spec.id.clone(), Job::new(*spec, self.shards, now_us));
            }
            Input::Cancel(id) => {
                let job = self.jobs.get_mut(&id).ok_or(Refused::Unknown { job: id.clone() })?;
                if job.central.phase.is_over() {
                    return Err(Refused::Over { job: id, state: job.central.phase.word() });
                }
                job.end(Phase::Canceled, now_us, &mut fx);
            }
            Input::WorkerJoined { worker, about } => {
                self.workers.insert(worker, about);
            }
            Input::WorkerGone { worker, reason } => {
                self.workers.remove(&worker);
                for job in self.jobs.values_mut().filter(|j| !j.central.phase.is_over()) {
                    job.worker_gone(worker, &reason, now_us, &mut fx);
                }
            }
            Input::Report { worker, report } => {
                fx.push(Effect::Settle { worker, key: report.key.clone() });
                if let Some(job) = self.open_job(&report.key.job, report.key.generation) {
                    job.report(worker, report, now_us, &mut fx);
                }
            }
            Input::ShardsOpened { job, generation } => {
                if let Some(job) = self.open_job(&job, generation)
                    && job.central.phase == Phase::Opening
                {
                    job.central.phase = Phase::Running;
                    job.due.everybody = true;
                    job.central.started_us = Some(now_us);
                    job.touched.central = true;
                    job.event("started", now_us, vec![("workers", job.active().count().to_string())]);
                    fx.extend(job.clock_roster());
                }
            }
            Input::ShardLost { shard, reason } => {
                let opened = |j: &&mut Job| matches!(j.central.phase, Phase::Opening | Phase::Running);
                for job in self.jobs.values_mut().filter(opened) {
                    let reason = format!("parameter shard {shard} is lost: {reason}");
                    job.end(Phase::Failed { code: SHARD_LOST.into(), reason }, now_us, &mut fx);
                }
            }
            Input::ShardFailed { job, generation, code, reason } => {
                if let Some(job) = self.open_job(&job, generation) {
                    job.end(Phase::Failed { code, reason }, now_us, &mut fx);
                }
            }
            Input::BarrierClosed { job, generation, shard, stand } => {
                if let Some(job) = self.open_job(&job, generation) {
                    job.shard_closed(shard, stand, now_us);
                }
            }
            Input::Sealed { job, generation, worker, shard, stand } => {
                if let Some(job) = self.open_job(&job, generation) {
                    job.sealed(worker, shard, stand, now_us, &mut fx);
                }
            }
            Input::Planned { job, generation, superstep, revision, plan } => {
                if let Some(job) = self.open_job(&job, generation) {
                    job.planned(superstep, revision, plan, now_us, &mut fx);
                }
            }
            Input::Tick => {
                for job in self.jobs.values_mut().filter(|j| j.central.phase == Phase::Running) {
                    job.tick(now_us, &mut fx);
                }
            }
            Input::SnapshotWritten { key, outcome } => {
                if let Some(job) = self.open_job(&key.job.clone(), key.generation) {
                    job.snapshot_written(&key, outcome, now_us, &mut fx);
                }
            }
        }
        if place || fx.iter().any(|e| matches!(e, Effect::CloseShards { .. })) {
            self.place(now_us, &mut fx);
        }
        for job in self.jobs.values_mut() {
            job.advance(now_us, &mut fx);
        }
        Ok(fx)
    }

    fn open_job(&mut self, job: &JobId, generation: Generation) -> Option<&mut Job> {
        self.jobs.get_mut(job).filter(|j| j.central.generation == generation && !j.central.phase.is_over())
    }

    /// Gives idle workers to the jobs that want more, oldest job first.
    fn place(&mut self, now_us: u64, fx: &mut Vec<Effect>) {
        let busy = |jobs: &BTreeMap<JobId, Job>, w: &Incarnation| {
            jobs.values()
                .any(|j| !j.central.phase.is_over() && j.members.get(w).is_some_and(|m| !m.is_gone()))
        };
        let mut idle: Vec<Incarnation> =
            self.workers.keys().filter(|w| !busy(&self.jobs, w)).copied().rev().collect();
        if idle.is_empty() {
            return;
        }
        let mut order: Vec<(u64, JobId)> = self
            .jobs
            .values()
            .filter(|j| !j.central.phase.is_over())
            .map(|j| (j.central.submitted_us, j.id().clone()))
            .collect();
        order.sort();
        for (_, id) in order {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            let active = job.active().count();
            let train = job.train();
            let room = (train.max_workers as usize).saturating_sub(active);
            let trained = job.central.trained_us.is_some();
            if job.central.phase == Phase::Queued && idle.len() < train.min_workers as usize
                || trained && active > 0
            {
                continue;
            }
            for _ in 0..room {
                let Some(worker) = idle.pop() else { break };
                let about = self.workers.get(&worker).cloned().unwrap_or_default();
                job.join(worker, about, now_us, fx);
            }
            if job.central.phase == Phase::Queued {
                job.central.phase = Phase::Opening;
                fx.push(Effect::OpenShards { job: id, generation: job.central.generation });
            }
        }
    }

    /// What changed since the last call, by job. Commit each as a unit before carrying out the effects.
    pub fn take_commits(&mut self, now_us: u64) -> Commits {
        self.jobs.iter_mut().filter_map(|(id, job)| Some((id.clone(), job.take_commit(now_us)?))).collect()
    }

    /// One job.
    pub fn job(&self, id: &JobId) -> Option<&Job> {
        self.jobs.get(id)
    }

    /// Takes in a job that was loaded, and returns what has to be repeated because it may not have been carried out.
    pub fn restore(&mut self, job: Job) -> Vec<Effect> {
        let fx = job.unfinished();
        if !job.central.phase.is_over() {
            for worker in job.active() {
                self.workers.insert(worker, job.members[&worker].about.clone());
            }
        }
        self.jobs.insert(job.id().clone(), job);
        fx
    }

    /// Forgets a job that is over.
    pub fn forget(&mut self, id: &JobId) {
        if self.jobs.get(id).is_some_and(|j| j.central.phase.is_over()) {
            self.jobs.remove(id);
        }
    }

    /// Workers that take part in some job or wait for one.
    pub fn workers(&self) -> impl Iterator<Item = Incarnation> + '_ {
        self.workers.keys().copied()
    }
}

impl Job {
    fn join(&mut self, worker: Incarnation, about: WorkerAbout, now_us: u64, fx: &mut Vec<Effect>) {
        self.event(
            "worker_joined",
            now_us,
            vec![("worker", worker.to_string()), ("name", about.name.clone())],
        );
        self.clocks.join(worker, None);
        let train = self.train();
        let member = Member {
            about,
            standing: Standing::Active,
            planned: 0,
            granted: 0,
            finished: 0,
            reserved: Default::default(),
            clock_base: self.clocks.get(worker).map_or(0, |c| c.pushes),
            batch: train.batch,
            last_end_us: now_us,
            interval_us: 0,
            interval_samples: 0,
            speed: Speedometer::new(train.policy.predictor),
            curve: train.policy.fits_curves().then(CurveFit::default),
            transfer: Transfer::default(),
            slow: None,
            spent: Spent::default(),
        };
        self.members.insert(worker, member);
        self.touched.central = true;
        self.due.workers.insert(worker);
        self.touched.members.insert(worker);
        self.clocks_changed(fx);
    }
}
