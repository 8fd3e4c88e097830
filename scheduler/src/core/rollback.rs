//! A shard came back without the parameters that it held: the job goes back to its newest checkpoint, in a
//! new generation of its parameters, and trains on from there. One that is to keep checkpoints and has none
//! yet begins anew. One that has ended with the parameters of a checkpoint is given these again.
//!
//! Everything that was done since is undone, on all shards: they open the new generation with what they kept.
//! Whatever still comes from the old generation names its generation and changes nothing. Workers keep their
//! places; their iterations are counted from 1 again.

use super::{
    best_parameters::HandedOn,
    checkpoints::{Checkpoint, Checkpoints},
    effects::{Effect, OpenWith},
    evaluating::Evaluations,
    event::Happening,
    inputs::TaskFault,
    job::{GrantQueue, Job},
    member::{Member, Membership},
    progress::Progress,
    records::{Counters, Phase, Task},
    turn::Turn,
};
use crate::{
    fault_code::FaultCode,
    graph::TaskId,
    ids::Superstep,
    spec::TrainSpec,
    sync::{Clocks, Policy},
};

impl Job {
    /// A part of the parameters is lost: the job goes back to its newest checkpoint, or to its beginning. One
    /// that keeps none fails.
    pub(super) fn parameters_lost(&mut self, reason: &str, turn: &mut Turn<'_>) {
        if !self.may_go_back() {
            let reason = format!(
                "{reason}; its `checkpoint` is \"none\", and a job goes on after that only if it keeps some"
            );
            return self.end(Phase::Failed { code: FaultCode::PARAMETERS_LOST, reason }, turn);
        }
        match self.to_hand_on() {
            Some(best) => self.open_best(best, reason, turn),
            None => self.roll_back_to_newest(reason, turn),
        }
    }

    /// Whether it was submitted to go on after a loss: from its newest checkpoint, or from its beginning
    /// while it has none.
    pub(super) fn may_go_back(&self) -> bool {
        self.train().checkpoint.is_some() || self.keeps_best()
    }

    fn roll_back_to_newest(&mut self, reason: &str, turn: &mut Turn<'_>) {
        let target = match self.state.checkpoints.newest().cloned() {
            Some(Checkpoint { number, progress, .. }) => {
                RollBackTarget { checkpoint: Some(number), progress }
            }
            None => RollBackTarget { checkpoint: None, progress: Progress::at_begin(self.train()) },
        };
        self.roll_back(target, reason, turn);
    }

    /// The checkpoint that is being restored cannot be used: the one before it is, and where it was to be
    /// handed on, what is best of the rest. Where there is none, hours of work would be thrown away
    /// unasked by a job that began anew: it fails instead.
    pub(super) fn checkpoint_unusable(&mut self, code: FaultCode, reason: String, turn: &mut Turn<'_>) {
        let Some(number) = self.state.checkpoints.restored else { return };
        let complete = &mut self.state.checkpoints.complete;
        if let Some(index) = complete.iter().position(|checkpoint| checkpoint.number == number) {
            let unread = complete.remove(index);
            let samples = unread.samples();
            self.state.checkpoints.unread.push(unread);
            self.note_lost(samples, format!("could not be read: {reason}"));
        }
        let fault = TaskFault { code, reason };
        if self.hand_on_others(number, &fault, turn) {
            return;
        }
        let TaskFault { code, reason } = fault;
        match self.state.checkpoints.newest() {
            Some(_) => self.roll_back_to_newest(&reason, turn),
            None => {
                let Checkpoints { complete, unread, .. } = &mut self.state.checkpoints;
                *complete = std::mem::take(unread);
                complete.sort_by_key(|checkpoint| checkpoint.number);
                self.end(Phase::Failed { code, reason }, turn);
            }
        }
    }

    fn roll_back(&mut self, to: RollBackTarget, reason: &str, turn: &mut Turn<'_>) {
        let RollBackTarget { checkpoint, progress } = to;
        self.end_metrics_window(turn.now_us);
        let undone = self.undone_since(&progress.counters);
        let rolled_back = self.state.counters.rolled_back + undone.iterations;
        let samples_rolled_back = self.state.counters.samples_rolled_back + undone.samples;
        let counters = Counters { rolled_back, samples_rolled_back, ..progress.counters };
        self.state.evaluations.go_back(progress.watch.clone());
        let Undone { iterations, samples } = undone;
        let reason = reason.to_owned();
        self.tell(Happening::RolledBack { iterations, samples, reason, checkpoint }, turn.now_us);
        self.reopen(checkpoint, Progress { counters, ..progress }, turn);
        self.show_what_is_known_of_these();
    }

    /// Has the shards open a new generation of the parameters, with those of a checkpoint or anew, in which
    /// the job is as far as `progress` says.
    pub(super) fn reopen(&mut self, checkpoint: Option<u64>, progress: Progress, turn: &mut Turn<'_>) {
        self.revoke_all(turn.effects);
        self.forget_graph(turn.now_us);
        for (&worker, member) in &mut self.members {
            member.begin_anew(self.spec.train(), turn.now_us);
            self.changes.members.insert(worker);
        }
        self.samples_set_aside = 0;
        self.clocks = Clocks::default();
        for worker in self.active().collect::<Vec<_>>() {
            self.clocks.join(worker, None);
        }
        let (policy, evaluate) = (Policy::new(self.train().policy), self.train().evaluate);
        let age_s = self.age_s(turn.now_us);
        self.state.trained_for_us = None;
        let trained_us = self.training_us(turn.now_us).unwrap_or_default();
        let state = &mut self.state;
        let owes_evaluation = state.evaluations.owes(progress.counters.counted(), &progress.watch)
            || checkpoint.is_none() && Evaluations::are_due_at_begin(self.spec.train());
        state.phase = Phase::Opening;
        state.generation = match state.checkpoints.known_through {
            Some(_) => state.generation.beyond_unknown(age_s),
            None => state.generation.next(),
        };
        state.policy = policy;
        state.cursor = progress.cursor;
        state.counted = progress.counted;
        state.epochs_complete = progress.epochs_complete;
        state.loss = progress.loss;
        state.epoch_losses = progress.epoch_losses;
        state.counters = progress.counters;
        state.generation_begin = state.generation_begin.next(state.counters.generation_begin());
        (state.next_superstep, state.closed) = (Superstep(0), 0);
        state.clock_revision += 1;
        (state.trained_us, state.snapshot) = (None, None);
        (state.evaluation, state.validation) = (None, None);
        state.retries.clear();
        state.recent_rate.begin_anew(turn.now_us, state.counters.counted());
        state.checkpoints.put_off(turn.now_us, state.epochs_complete);
        state.evaluations.put_off(evaluate, trained_us, state.epochs_complete, state.counters.counted());
        if owes_evaluation {
            state.evaluations.make_up();
        }
        state.checkpoints.restored = checkpoint;
        self.changes.job_state = true;
        self.opening_problem = None;
        self.unattached.clear();
        self.wait_for(Some(self.waits_for_shards()));
        turn.effects.push(self.open_order());
    }

    /// Whether the shards read a checkpoint for the present generation of the parameters.
    pub(super) fn opens_checkpoint(&self) -> bool {
        self.state.phase == Phase::Opening && self.state.checkpoints.restored.is_some()
    }

    /// What a job waits for whose shards open the present generation of the parameters, in words.
    pub(super) fn waits_for_shards(&self) -> String {
        if let Some(lost) = self.describe_lost_shards() {
            return lost;
        }
        let mut text = match (self.state.checkpoints.restored, self.gone_back_to()) {
            (Some(_), Some(to)) => format!("the shards, which go back to {to}"),
            (None, Some(_)) => "the shards, which begin anew".into(),
            (_, None) => "the shards, which load its parameters".into(),
        };
        if let Some(problem) = &self.opening_problem {
            text.push_str(&format!(", and could not so far: {problem}"));
        }
        text
    }

    /// What the present generation of the parameters began with, in words; `None` for the first one.
    pub(super) fn gone_back_to(&self) -> Option<String> {
        if self.state.generation.number() <= 1 {
            return None;
        }
        let Some(number) = self.state.checkpoints.restored else { return Some("its beginning".to_owned()) };
        Some(match self.state.evaluations.handed_on {
            HandedOn::Best(_) => format!("the best parameters, those of checkpoint {number}"),
            HandedOn::Last => format!("the last parameters, those of checkpoint {number}"),
            HandedOn::Undecided => format!("checkpoint {number}"),
        })
    }

    /// The order to open the present generation of the parameters.
    pub(super) fn open_order(&self) -> Effect {
        let Checkpoints { restored, known_through, ref complete, .. } = self.state.checkpoints;
        let with = restored.map_or(OpenWith::Initial, |number| OpenWith::Checkpoint {
            number,
            has_others: complete.iter().any(|other| other.number != number),
        });
        Effect::OpenShards { run: self.run(), with, known_through }
    }

    fn undone_since(&self, then: &Counters) -> Undone {
        let now = &self.state.counters;
        Undone {
            iterations: (now.done + now.torn).saturating_sub(then.done + then.torn),
            samples: now.counted().saturating_sub(then.counted()),
        }
    }

    /// Tells workers that nobody wants what they have.
    pub(super) fn revoke_all(&self, effects: &mut Vec<Effect>) {
        for &worker in self.members.keys() {
            for id in self.leased_to(worker) {
                let attempt = self.tasks.get(&id).map_or(0, |t| t.attempts);
                effects.push(Effect::Revoke { worker, key: self.key(id, attempt) });
            }
        }
    }

    /// Forgets what the planner made, and begins the user's nodes anew.
    fn forget_graph(&mut self, now_us: u64) {
        self.record_all_barriers();
        self.changes.supersteps.extend(self.supersteps.keys().copied());
        self.supersteps.clear();
        self.changes.tasks.extend(self.tasks.keys().cloned());
        self.tasks.retain(|_, task| task.body.is_node());
        for node in &self.spec.nodes {
            let id = TaskId::Node(node.name.clone());
            let Some(old) = self.tasks.remove(&id) else { continue };
            let unmet = u32::try_from(node.after.len()).unwrap_or(u32::MAX);
            let mut task = Task::new(old.body, unmet, now_us);
            task.control = old.control;
            self.tasks.insert(id, task);
        }
        self.finished.clear();
        self.grant_queue = GrantQueue::default();
    }
}

/// Where a job goes back to.
struct RollBackTarget {
    /// `None`: to its beginning.
    checkpoint: Option<u64>,
    progress: Progress,
}

/// What a roll back undoes.
struct Undone {
    iterations: u64,
    samples: u64,
}

impl Member {
    /// Nothing of what it did in the generation before counts; what is known of its speed stays. One that was
    /// about to be sealed is gone: the generation in which it pushed is over. One that prepared itself
    /// begins with all others.
    fn begin_anew(&mut self, train: &TrainSpec, now_us: u64) {
        self.membership = if self.is_present() { Membership::Active } else { Membership::Gone };
        (self.planned, self.granted, self.finished) = (0, 0, 0);
        self.reserved.clear();
        self.seal = None;
        (self.newest_loss, self.held_back_us) = (None, None);
        self.arrivals_us.clear();
        self.clock_base = 0;
        self.batch = self.fitting(train);
        self.last_end_us = now_us;
    }
}
