//! Which worker serves which job, and why a job waits for workers.

use super::{
    fleet::Core,
    io::{Effect, WorkerAbout},
    job::Job,
    state::{Member, Phase, Spent, Standing, Transfer},
};
use crate::{
    balance::CurveFit,
    ids::{Incarnation, JobId},
    predict::Speedometer,
};

impl Core {
    /// The job that a worker serves.
    fn serves(&self, worker: Incarnation) -> Option<&JobId> {
        let serves =
            |j: &&Job| !j.central.phase.is_over() && j.members.get(&worker).is_some_and(|m| !m.is_gone());
        self.jobs.values().find(serves).map(Job::id)
    }

    /// Gives idle workers to the jobs that want more, oldest job first, and notes what each queued job waits for.
    pub(super) fn place(&mut self, now_us: u64, fx: &mut Vec<Effect>) {
        let mut idle: Vec<Incarnation> =
            self.workers.keys().rev().filter(|w| self.serves(**w).is_none()).copied().collect();
        let mut order: Vec<(u64, JobId)> = self
            .jobs
            .values()
            .filter(|j| !j.central.phase.is_over())
            .map(|j| (j.central.submitted_us, j.id().clone()))
            .collect();
        order.sort();
        for (_, id) in &order {
            let Some(job) = self.jobs.get_mut(id) else { continue };
            let train = job.train();
            let (least, most) = (train.min_workers as usize, train.max_workers as usize);
            let active = job.active().count();
            let queued = job.central.phase == Phase::Queued;
            let about = |w: &Incarnation| self.workers.get(w).cloned().unwrap_or_default();
            let mut able: Vec<Incarnation> =
                idle.iter().filter(|w| !job.excludes(&about(w))).copied().collect();
            if queued && able.len() < least || job.central.trained_us.is_some() && active > 0 {
                continue;
            }
            let first = able.len() - able.len().min(most.saturating_sub(active));
            for worker in able.drain(first..).rev() {
                idle.retain(|w| *w != worker);
                job.join(worker, about(&worker), now_us, fx);
            }
            // A job that may run without workers still needs one to begin.
            if queued && job.active().next().is_some() {
                let generation = job.central.generation;
                job.central.phase = Phase::Opening;
                fx.push(Effect::OpenShards { job: id.clone(), generation });
            }
        }
        for (_, id) in order {
            let waits = self.waits_for_workers(&id, &idle);
            if let Some(job) = self.jobs.get_mut(&id).filter(|j| j.central.phase != Phase::Running) {
                job.wait_for(waits);
            }
        }
    }

    /// Why a job has not begun, in words; `None` if it has all the workers it needs.
    fn waits_for_workers(&self, id: &JobId, idle: &[Incarnation]) -> Option<String> {
        let job = self.jobs.get(id)?;
        match job.central.phase {
            Phase::Queued => {}
            Phase::Opening => return Some("the shards, which load its parameters".into()),
            _ => return None,
        }
        let least = job.train().min_workers;
        let mut text = format!("{least} {}: ", if least == 1 { "worker" } else { "workers" });
        if self.workers.is_empty() {
            text.push_str("none is there");
            return Some(text);
        }
        let excluded = self.workers.values().filter(|about| job.excludes(about)).count();
        let mut busy: Vec<String> =
            self.workers.keys().filter_map(|w| self.serves(*w)).map(|j| format!("`{j}`")).collect();
        let serving = busy.len();
        busy.sort();
        busy.dedup();
        text.push_str(&format!("of {} that are there {} are idle", self.workers.len(), idle.len()));
        if serving > 0 {
            text.push_str(&format!(", {serving} serve {}", busy.join(", ")));
        }
        if excluded > 0 {
            text.push_str(&format!(", {excluded} cannot run it ({})", job.exclusions()));
        }
        Some(text)
    }
}

impl Job {
    /// Notes in words what the job waits for.
    pub(super) fn wait_for(&mut self, waits: Option<String>) {
        if self.central.waiting_for != waits {
            self.central.waiting_for = waits;
            self.touched.central = true;
        }
    }

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
