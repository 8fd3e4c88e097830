//! Which worker serves which job, and why a job waits for workers.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    effects::Effect,
    inputs::WorkerInfo,
    job::Job,
    records::{Member, Membership, Phase, StepTimes, TimeTotals},
    state_machine::Core,
};
use crate::{
    balance::CurveFit,
    ids::{Incarnation, JobId},
    predict::IntervalEstimator,
};

impl Core {
    /// The job that each worker serves; who serves none is not in it.
    fn serving(&self) -> BTreeMap<Incarnation, JobId> {
        let of = |job: &Job| {
            let id = job.id().clone();
            let here = job.members.iter().filter(|(w, m)| !m.is_gone() && self.workers.contains_key(w));
            here.map(|(w, _)| (*w, id.clone())).collect::<Vec<_>>()
        };
        self.jobs.values().filter(|j| !j.state.phase.is_over()).flat_map(of).collect()
    }

    /// Gives idle workers to the jobs that want more, oldest job first, and notes what each queued job waits for.
    pub(super) fn assign_workers(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        let mut serving = self.serving();
        let mut idle: Vec<Incarnation> =
            self.workers.keys().rev().filter(|w| !serving.contains_key(w)).copied().collect();
        let mut order: Vec<(u64, JobId)> = self
            .jobs
            .values()
            .filter(|j| !j.state.phase.is_over())
            .map(|j| (j.state.submitted_us, j.id().clone()))
            .collect();
        order.sort();
        for (_, id) in &order {
            let Some(job) = self.jobs.get_mut(id) else { continue };
            let train = job.train();
            let (least, most) = (train.min_workers as usize, train.max_workers as usize);
            let active = job.active().count();
            let queued = job.state.phase == Phase::Queued;
            let about = |w: &Incarnation| self.workers.get(w).cloned().unwrap_or_default();
            let mut able: Vec<Incarnation> =
                idle.iter().filter(|w| !job.excludes(&about(w))).copied().collect();
            if queued && able.len() < least || job.state.trained_us.is_some() && active > 0 {
                continue;
            }
            let first = able.len() - able.len().min(most.saturating_sub(active));
            for worker in able.drain(first..).rev() {
                idle.retain(|w| *w != worker);
                serving.insert(worker, id.clone());
                job.join(worker, about(&worker), now_us, effects);
            }
            // A job that may run without workers still needs one to begin.
            if queued && job.active().next().is_some() {
                let generation = job.state.generation;
                job.state.phase = Phase::Opening;
                effects.push(Effect::OpenShards { job: id.clone(), generation });
            }
        }
        let there = describe_workers(self.workers.len(), idle.len(), &serving);
        for (_, id) in order {
            let waits = self.waits_for_workers(&id, &there);
            if let Some(job) = self.jobs.get_mut(&id).filter(|j| j.state.phase != Phase::Running) {
                job.wait_for(waits);
            }
        }
    }

    /// Why a job has not begun, in words, given those on the workers that are `there`; `None` if it has all the workers
    /// it needs.
    fn waits_for_workers(&self, id: &JobId, there: &str) -> Option<String> {
        let job = self.jobs.get(id)?;
        match job.state.phase {
            Phase::Queued => {}
            Phase::Opening => return Some("the shards, which load its parameters".into()),
            _ => return None,
        }
        let least = job.train().min_workers;
        let mut text = format!("{least} {}: {there}", if least == 1 { "worker" } else { "workers" });
        let excluded = self.workers.values().filter(|about| job.excludes(about)).count();
        if excluded > 0 {
            text.push_str(&format!(", {excluded} cannot run it ({})", job.exclusions()));
        }
        Some(text)
    }
}

/// Which workers are there and what they do, in words.
fn describe_workers(all: usize, idle: usize, serving: &BTreeMap<Incarnation, JobId>) -> String {
    if all == 0 {
        return "none is there".into();
    }
    let mut text = format!("of {all} that are there {idle} are idle");
    if !serving.is_empty() {
        let jobs: BTreeSet<String> = serving.values().map(|job| format!("`{job}`")).collect();
        let jobs: Vec<String> = jobs.into_iter().collect();
        text.push_str(&format!(", {} serve {}", serving.len(), jobs.join(", ")));
    }
    text
}

impl Job {
    /// Notes in words what the job waits for.
    pub(super) fn wait_for(&mut self, waits: Option<String>) {
        if self.state.waiting_for != waits {
            self.state.waiting_for = waits;
            self.changes.job_state = true;
        }
    }

    fn join(&mut self, worker: Incarnation, about: WorkerInfo, now_us: u64, effects: &mut Vec<Effect>) {
        self.event(
            "worker_joined",
            now_us,
            vec![("worker", worker.to_string()), ("name", about.name.clone())],
        );
        self.clocks.join(worker, None);
        let train = self.train();
        let member = Member {
            about,
            membership: Membership::Active,
            planned: 0,
            granted: 0,
            finished: 0,
            reserved: Default::default(),
            clock_base: self.clocks.get(worker).map_or(0, |c| c.pushes),
            batch: train.batch,
            last_end_us: now_us,
            interval_us: 0,
            interval_samples: 0,
            speed: IntervalEstimator::new(train.policy.predictor),
            curve: train.policy.fits_curves().then(CurveFit::default),
            step_times: StepTimes::default(),
            straggler: None,
            spent: TimeTotals::default(),
        };
        self.members.insert(worker, member);
        self.changes.job_state = true;
        self.grant_queue.workers.insert(worker);
        self.changes.members.insert(worker);
        self.clocks_changed(effects);
    }
}
