//! Has the trials of a sweep trained: submits so many at a time, looks at them, stops those that others are
//! ahead of.

use std::time::{Duration, Instant, SystemTime};

use syncline_rpc::{
    EngineFault,
    status::{Entry, JobPhase, JobStatus},
};
use syncline_scheduler::{
    ids::{EngineEpoch, JobRef},
    spec::Metric,
};
use syncline_workers::{
    client::{Cancellation, Client, ClientError, Patience},
    submit::SubmitError,
};

use super::{
    display::Display,
    halving::{Contestant, Stop, ordinal, rank_at},
    measure::{evaluated, newest_training_loss, of_job, training_loss_after},
    outcome::{Outcome, reason, stop_reason},
    plan::{Plan, Trial},
    seen::{Fate, Seen},
    trials::in_words,
    trouble::Trouble,
};
use crate::cli::{CliError, Failure, describe, figure_in_words};

/// Pause between two looks at all trials.
const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// So long engine or Redis may be away when it begins, as for `submit`.
const AWAY_AT_FIRST: Duration = Duration::from_secs(20);
/// So much longer than [`POLL_INTERVAL`] a pause is only where this process was not awake, as with the lid
/// closed.
const ASLEEP: Duration = Duration::from_secs(60);

fn values<T>(entries: Vec<Entry<T>>) -> Vec<T> {
    entries.into_iter().map(|entry| entry.value).collect()
}

/// A sweep under way.
pub(super) struct Conduct<'a> {
    /// Repeats nothing: the next round does.
    client: Client,
    plan: &'a Plan,
    at_once: u32,
    /// The engine that led when the round began.
    epoch: Option<EngineEpoch>,
    seen: Vec<Seen>,
    display: Display,
}

impl<'a> Conduct<'a> {
    pub(super) fn new(client: &Client, plan: &'a Plan, at_once: u32, display: Display) -> Self {
        let seen = vec![Seen::untried(plan); plan.trials.len()];
        let client = client.clone().with_patience(Patience::all(Duration::ZERO));
        Self { client, plan, at_once, epoch: None, seen, display }
    }

    /// Takes up those that are there already, which have to be the same jobs. Returns how many are over and
    /// how many go on.
    pub(super) async fn take_up(&mut self) -> Result<(usize, usize), Failure> {
        let began = Instant::now();
        loop {
            match self.try_take_up().await {
                Err(Trouble::Passing(_)) if began.elapsed() < AWAY_AT_FIRST => {
                    tokio::time::sleep(POLL_INTERVAL).await
                }
                taken_up => return taken_up.map_err(Trouble::into_failure),
            }
        }
    }

    async fn try_take_up(&mut self) -> Result<(usize, usize), Trouble> {
        self.epoch = self.client.engine().await?.epoch;
        for number in 0..self.plan.trials.len() {
            let job = match self.client.status_once(&self.job_ref(number)).await {
                Ok(view) => view.job,
                Err(ClientError::Refused(EngineFault::UnknownJob { .. })) => continue,
                Err(error) => return Err(error.into()),
            };
            // Nobody can say what a damaged one was; it counts as failed.
            if job.state != JobPhase::Damaged {
                self.submit(number).await?;
            }
            self.see(number, job).await?;
        }
        let over = self.seen.iter().filter(|seen| seen.is_over()).count();
        let going = self.seen.iter().filter(|seen| !seen.is_over() && !seen.is_waiting()).count();
        Ok((over, going))
    }

    /// The job of a trial: before it is submitted whichever has its name, then that one alone.
    fn job_ref(&self, number: usize) -> JobRef {
        JobRef { id: self.plan.trials[number].id().clone(), nonce: self.seen[number].nonce }
    }

    /// Submits a trial; one that is there already has to be the same job.
    async fn submit(&mut self, number: usize) -> Result<(), Trouble> {
        let trial = &self.plan.trials[number];
        match self.client.submit_prepared(trial.job.clone()).await {
            Ok(submitted) => {
                self.seen[number].nonce = Some(submitted.nonce);
                Ok(())
            }
            Err(SubmitError::Engine(ClientError::Refused(EngineFault::DuplicateJob { job, differs }))) => {
                let values = in_words(&trial.values);
                Err(Trouble::Final(CliError::OtherTrial { job, differs, values }.into()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Goes on until all trials are over. While the cluster is away it says so and tries again.
    pub(super) async fn run(&mut self) -> Result<(), Failure> {
        loop {
            match self.round().await {
                Ok(true) => break,
                Ok(false) => self.display.passed(),
                Err(Trouble::Passing(failure)) => self.display.problem(&failure),
                Err(Trouble::Final(failure)) => {
                    self.display.close();
                    return Err(failure);
                }
            }
            let began = SystemTime::now();
            tokio::time::sleep(POLL_INTERVAL).await;
            // Of the clocks this one alone goes on while the machine sleeps; one that was set back says
            // nothing.
            if began.elapsed().is_ok_and(|passed| passed > ASLEEP) {
                self.seen.iter_mut().for_each(|seen| seen.slept = true);
            }
        }
        self.display.passed();
        self.display.close();
        Ok(())
    }

    /// Looks at all that train, stops and begins. Whether all are over.
    async fn round(&mut self) -> Result<bool, Trouble> {
        self.epoch = self.client.engine().await?.epoch;
        for number in 0..self.seen.len() {
            if !self.seen[number].is_over() && !self.seen[number].is_waiting() {
                self.look(number).await?;
            }
        }
        if let Some(halving) = &self.plan.halving {
            let contestants: Vec<Contestant> = self.seen.iter().map(|seen| seen.contestant.clone()).collect();
            for stop in halving.stopped(&contestants) {
                self.stop(stop).await?;
            }
        }
        let training = self.seen.iter().filter(|seen| seen.is_training()).count();
        let free = (self.at_once as usize).saturating_sub(training);
        let waiting: Vec<usize> = (0..self.seen.len()).filter(|n| self.seen[*n].is_waiting()).collect();
        for number in waiting.into_iter().take(free) {
            self.begin(number).await?;
        }
        Ok(self.seen.iter().all(Seen::is_over))
    }

    async fn begin(&mut self, number: usize) -> Result<(), Trouble> {
        self.submit(number).await?;
        let trial = &self.plan.trials[number];
        let values = in_words(&self.plan.differing(trial));
        let values = if values.is_empty() { values } else { format!(", {values}") };
        self.display.note(&format!("{}: begins{values}", trial.id()));
        self.look(number).await
    }

    /// One trial as it is now.
    async fn look(&mut self, number: usize) -> Result<(), Trouble> {
        let trial = &self.plan.trials[number];
        let job = match self.client.status_once(&self.job_ref(number)).await {
            Ok(view) => view.job,
            Err(ClientError::Refused(EngineFault::UnknownJob { .. })) => {
                let now = self.client.engine().await?.epoch;
                self.miss(number, Fate::of(&self.seen[number], now));
                return Ok(());
            }
            Err(ClientError::Refused(EngineFault::Replaced { .. })) => {
                self.miss(number, Fate::Replaced);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let (is_over, metric) = (job.is_settled(), self.plan.metric);
        if of_job(Metric::Loss, &job).is_some() && of_job(metric, &job).is_none() {
            let what = format!(
                "--by {}: {} is evaluated, and that is not measured; `loss_options` of the job file have `top_k` and `perplexity`; an \
                 accuracy, F1, precision and recall are those of classes",
                metric.name(),
                trial.id()
            );
            return Err(Trouble::Final(CliError::Setting { what }.into()));
        }
        let before = self.seen[number].contestant.at_rungs.clone();
        self.see(number, job).await?;
        self.tell_rungs(number, &before);
        if is_over {
            self.display.end(number);
            self.display.note(&self.end_in_words(number));
        } else {
            let line = self.line(number);
            self.display.show(number, line);
        }
        Ok(())
    }

    /// One that the engine does not know any more, or not under its name.
    fn miss(&mut self, number: usize, fate: Fate) {
        let (id, seen) = (self.plan.trials[number].id(), &mut self.seen[number]);
        let is_gone = fate != Fate::Lost;
        *seen = Seen { is_gone, ..Seen::untried(self.plan) };
        seen.contestant.is_out = is_gone;
        self.display.end(number);
        self.display.note(&match fate {
            Fate::Deleted => format!("{id}: somebody has deleted it"),
            Fate::Lost => format!("{id}: Redis has lost it, and it begins once more"),
            Fate::DeletedOrLost => format!(
                "{id}: somebody has deleted it, or Redis has lost it, while this sweep slept; the same command trains it again"
            ),
            Fate::Replaced => format!(
                "{id}: somebody has replaced it by another job, which is left alone; `syncline status {id}` shows that one"
            ),
        });
    }

    /// Notes how a trial stands, and what it has measured. Where the cluster goes away meanwhile, a trial
    /// that is over is looked at again: what it had come to would be missing for good.
    async fn see(&mut self, number: usize, job: JobStatus) -> Result<(), ClientError> {
        let is_over = job.is_settled();
        let seen = &mut self.seen[number];
        (seen.job, seen.by, seen.slept) = (Some(job), self.epoch, false);
        self.measure(number).await?;
        self.seen[number].is_measured = is_over;
        Ok(())
    }

    /// What it has measured at the rungs that it has come to, and at its end the loss of training.
    async fn measure(&mut self, number: usize) -> Result<(), ClientError> {
        let (trial, seen) = (&self.plan.trials[number], &mut self.seen[number]);
        let Some(job) = &seen.job else { return Ok(()) };
        seen.contestant.is_settled = job.is_over() || job.state == JobPhase::Canceling;
        seen.contestant.is_out = job.is_over() && job.state != JobPhase::Done && stop_reason(job).is_none();
        if job.state == JobPhase::Damaged {
            return Ok(());
        }
        let is_over = job.is_over();
        let rungs = self.plan.halving.as_ref().map_or(&[][..], |halving| &halving.rungs);
        let is_open = |(rung, at): (&u32, &Option<f64>)| at.is_none() && *rung <= job.epochs_complete;
        let has_open = rungs.iter().zip(&seen.contestant.at_rungs).any(is_open);
        if !has_open && !is_over {
            return Ok(());
        }
        let yardstick = trial.yardstick;
        let wants_curve = is_over || yardstick.on.is_none();
        let curve = match wants_curve {
            true => values(self.client.metrics(trial.id(), None).await?),
            false => Vec::new(),
        };
        if is_over {
            seen.training_loss = newest_training_loss(job, &curve, yardstick.epoch_samples);
        }
        if !has_open {
            return Ok(());
        }
        let points = match yardstick.on {
            Some(_) => values(self.client.evaluations(trial.id(), None).await?),
            None => Vec::new(),
        };
        for (rung, at) in rungs.iter().zip(&mut seen.contestant.at_rungs).filter(|(_, at)| at.is_none()) {
            let samples = yardstick.epoch_samples.saturating_mul((*rung).into());
            let metric = self.plan.metric;
            let value = match yardstick.on {
                Some(on) => evaluated(&points, metric, on, yardstick.epoch_samples, samples),
                None => training_loss_after(*rung, job, &curve, yardstick.epoch_samples),
            };
            *at = value.map(|value| metric.cost(value));
        }
        Ok(())
    }

    /// Says what it has measured at rungs at which it had not been before.
    fn tell_rungs(&self, number: usize, before: &[Option<f64>]) {
        let Some(halving) = &self.plan.halving else { return };
        let contestants: Vec<Contestant> = self.seen.iter().map(|seen| seen.contestant.clone()).collect();
        for (rung, before) in before.iter().enumerate().filter(|(_, before)| before.is_none()) {
            let Some(cost) = contestants[number].at_rungs[rung].filter(|_| before.is_none()) else {
                continue;
            };
            let Some((rank, among)) = rank_at(&contestants, number, rung) else { continue };
            let metric = self.plan.metric;
            // Turning a cost around twice gives the value.
            let (name, value) = (metric.name(), figure_in_words(metric, metric.cost(cost)));
            let on = self.plan.trials[number].yardstick.on.map_or("training", |on| on.name());
            let (id, epoch, rank) = (self.plan.trials[number].id(), halving.rungs[rung], ordinal(rank));
            self.display.note(&format!("{id}: epoch {epoch}, {on} {name} {value}, {rank} of {among} so far"));
        }
    }

    async fn stop(&mut self, stop: Stop) -> Result<(), Trouble> {
        let number = stop.trial;
        let how = Cancellation::new().reason(reason(stop)).grace(Duration::ZERO);
        match self.client.cancel_job(&self.job_ref(number), &how).await {
            // It was over, or gone, a moment before.
            Ok(())
            | Err(ClientError::Refused(
                EngineFault::Over { .. } | EngineFault::UnknownJob { .. } | EngineFault::Replaced { .. },
            )) => {}
            Err(error) => return Err(error.into()),
        }
        self.look(number).await
    }

    /// How a trial that goes on stands, in a line.
    fn line(&self, number: usize) -> String {
        let trial = &self.plan.trials[number];
        let Some(job) = &self.seen[number].job else { return trial.id().to_string() };
        let loss = describe::loss(job).map(|loss| format!("loss {loss}"));
        let waits = Some(describe::waits_for(job))
            .filter(|text| !text.is_empty())
            .map(|text| format!("waits for: {text}"));
        // What runs says so by its epochs: a line has little room.
        let state =
            Some(job.state).filter(|state| *state != JobPhase::Running).map(|state| state.word().to_owned());
        let so_far =
            [state, Some(describe::extent(job))].into_iter().flatten().collect::<Vec<_>>().join("  ");
        let parts = [Some(format!("{}: {so_far}", trial.id())), loss, self.measured(job), waits];
        parts.into_iter().flatten().collect::<Vec<_>>().join("  ")
    }

    /// What its newest evaluation measured.
    fn measured(&self, job: &JobStatus) -> Option<String> {
        let metric = self.plan.metric;
        let (on, value) = of_job(metric, job)?;
        Some(format!("{} {} {}", on.name(), metric.name(), figure_in_words(metric, value)))
    }

    fn end_in_words(&self, number: usize) -> String {
        let trial = &self.plan.trials[number];
        let Some(job) = &self.seen[number].job else { return trial.id().to_string() };
        let how = match stop_reason(job) {
            Some(reason) => format!("stopped: {reason}"),
            None => job.outcome().unwrap_or_default(),
        };
        let weights = job.weights_lost.as_ref().map(|why| format!("its last weights are lost: {why}"));
        let loss = self.seen[number].training_loss;
        let loss = loss.map(|loss| format!("training loss {}", syncline_scheduler::core::significant(loss)));
        let parts = [
            Some(format!("{}: {how}", trial.id())),
            Some(describe::extent(job)),
            loss,
            self.measured(job),
            weights,
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("  ")
    }

    /// What has become of all trials, not ranked yet.
    pub(super) fn outcomes(&self) -> Vec<Outcome> {
        let outcome = |(trial, seen): (&Trial, &Seen)| {
            let (id, values) = (trial.id().clone(), self.plan.differing(trial).into_iter().collect());
            Outcome::of(id, values, seen.job.clone(), seen.training_loss, self.plan.metric)
        };
        self.plan.trials.iter().zip(&self.seen).map(outcome).collect()
    }
}
