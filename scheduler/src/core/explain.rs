//! Why is there a barrier here, and why is this task waiting? Answered from the stored state alone.

use super::{
    explanation::{
        BarrierExplanation, KeptExplanations, StragglerExplanation, TaskExplanation, WorkerExplanation,
    },
    job::Job,
    member::Membership,
    records::{Task, TaskBody},
    stragglers::NOT_SLOW,
    superstep::{RosterEntry, SuperstepPhase, SuperstepState},
};
use crate::{
    graph::{Holder, TaskId, TrainingTaskState},
    ids::{Incarnation, ShardIndex, Superstep},
    sync::{
        EndRule,
        search::{Alternative, Points},
    },
};

impl Job {
    /// The explanations of all barriers and tasks that the graph has now.
    pub fn explain_kept(&self, now_us: u64) -> KeptExplanations {
        KeptExplanations {
            barriers: self.supersteps.keys().filter_map(|barrier| self.explain_barrier(*barrier)).collect(),
            tasks: self.tasks.keys().filter_map(|task| self.explain_task(task, now_us)).collect(),
        }
    }

    /// The explanation of the barrier that ends a superstep; `None` if it is not begun or not kept any more.
    pub fn explain_barrier(&self, barrier: Superstep) -> Option<BarrierExplanation> {
        let record = self.supersteps.get(&barrier)?;
        let after = |at_us: u64| at_us.saturating_sub(record.opened_us);
        let actual_wait_us = match record.phase {
            SuperstepPhase::Closed { actual_wait_us, .. } => Some(actual_wait_us),
            _ => None,
        };
        Some(BarrierExplanation {
            barrier,
            state: record.word().to_owned(),
            why: record.why.clone(),
            opened_ms: record.opened_us / 1000,
            expected_us: record.sync_at_us.map(after),
            closed_us: record.closed_us().map(after),
            span_us: record.span_us,
            predicted_wait_us: record.predicted_wait_us,
            actual_wait_us,
            alternatives: record
                .alternatives
                .iter()
                .map(|w| Alternative { span_us: w.span_us, sync_at_us: after(w.sync_at_us) })
                .collect(),
            workers: record.roster.iter().map(|(w, entry)| self.part(record, *w, entry)).collect(),
        })
    }

    fn part(&self, record: &SuperstepState, worker: Incarnation, entry: &RosterEntry) -> WorkerExplanation {
        let after = |at_us: u64| at_us.saturating_sub(record.opened_us);
        let member = self.members.get(&worker);
        let row = record.predicted.iter().find(|row| row.worker == worker);
        let expected = row.zip(entry.last).map(|(row, last)| {
            let i = last.saturating_sub(row.first_seq);
            row.points.at(u32::try_from(i).unwrap_or(u32::MAX))
        });
        let slowest_us = record.roster.values().filter_map(RosterEntry::predicted_us).max();
        let done = member.map_or(0, |m| m.finished.min(entry.last.unwrap_or(u64::MAX)));
        WorkerExplanation {
            worker,
            name: member.map(|m| m.about.name.clone()).unwrap_or_default(),
            iterations: entry.last.map(|last| last - entry.base),
            done: done.saturating_sub(entry.base),
            batch: entry.batch,
            predicted_interval_us: row.map(|row| row.points.interval_us).or(entry.predicted_interval_us),
            expected_us: expected.map(after),
            // A worker hears a little later than the shards that its push is in.
            arrived_us: entry
                .arrived_us
                .map(|at_us| after(record.closed_us().map_or(at_us, |closed_us| at_us.min(closed_us)))),
            predicted_wait_us: expected
                .zip(record.sync_at_us)
                .or(entry.predicted_us().zip(slowest_us))
                .map(|(own_us, all_us)| all_us.saturating_sub(own_us)),
            actual_wait_us: entry.arrived_us.zip(record.met_us()).map(|(a, met)| met.saturating_sub(a)),
            awaited: !record.is_closed() && entry.last.is_none_or(|last| done < last),
            straggler: member
                .and_then(|m| m.straggler)
                // Who was slow a moment ago counts as slow for a second more; who became so later was not
                // slow here.
                .filter(|s| {
                    s.factor >= NOT_SLOW && record.closed_us().is_none_or(|closed_us| s.since_us <= closed_us)
                })
                .map(|s| StragglerExplanation { since_ms: s.since_us / 1000, factor: s.factor }),
        }
    }

    /// Barriers whose explanations are kept.
    pub fn barriers_kept(&self) -> Option<(Superstep, Superstep)> {
        Some((*self.supersteps.keys().next()?, *self.supersteps.keys().next_back()?))
    }

    /// Which barriers are kept, in words that begin with a semicolon; empty where it has none yet.
    pub fn which_barriers_are_kept(&self) -> String {
        let kept = match self.barriers_kept() {
            Some((first, last)) => format!("; barriers {first} to {last} are kept"),
            None => String::new(),
        };
        match self.gone_back_to() {
            Some(to) => format!("{kept}; it went back to {to}, and keeps none of before"),
            None => kept,
        }
    }

    /// Why there is no task of that name, in words; empty where nothing more is known.
    pub fn why_absent(&self, id: &TaskId) -> String {
        match id {
            TaskId::Iteration { worker, .. } => self.members.get(worker).map_or_else(String::new, |member| {
                format!(
                    "; {} has done {} iterations, the first is 1",
                    self.display_name(*worker),
                    member.finished
                )
            }),
            _ => String::new(),
        }
    }

    /// The explanation of a task; `None` if the graph never had or will not have it.
    pub fn explain_task(&self, id: &TaskId, now_us: u64) -> Option<TaskExplanation> {
        let Some(task) = self.tasks.get(id) else { return self.absent(id, now_us) };
        let needs = task.control.iter().chain(&task.version);
        let needs = needs.map(|need| (need.clone(), self.state_word(need))).collect();
        Some(TaskExplanation {
            task: id.clone(),
            state: task.state.word().to_owned(),
            reasons: self.reasons(id, task, now_us),
            needs,
        })
    }

    fn state_word(&self, id: &TaskId) -> String {
        // What is not in the graph any more is over: tasks are forgotten only then.
        self.tasks.get(id).map_or("done", |t| t.state.word()).to_owned()
    }

    fn reasons(&self, id: &TaskId, task: &Task, now_us: u64) -> Vec<String> {
        match &task.state {
            TrainingTaskState::Waiting { .. } => vec!["it starts when everything it needs is done".into()],
            TrainingTaskState::Ready => match &self.state.waiting_for {
                Some(waits) => vec![format!("the job waits for {waits}")],
                None => vec!["everything it needs is done; no worker is free for it".into()],
            },
            TrainingTaskState::Leased { holder, .. } => self.under_way(id, task, *holder, now_us),
            TrainingTaskState::Done => vec!["it is done".into()],
            TrainingTaskState::Failed { code, reason } => {
                vec![format!("it failed: {}", code.in_front_of(reason))]
            }
            TrainingTaskState::Lost if task.body == TaskBody::Prepare => {
                vec!["its worker left before it had shown that it can run the job".into()]
            }
            TrainingTaskState::Lost => {
                vec!["its worker left before any shard had its push; its samples went to another".into()]
            }
            TrainingTaskState::Torn => {
                vec![
                    "its worker left when some shards had its push and others had not; it counts as seen"
                        .into(),
                ]
            }
            TrainingTaskState::Canceled => vec![self.state.phase.cut_short(&self.state.cancel_reason)],
        }
    }

    fn under_way(&self, id: &TaskId, task: &Task, holder: Holder, now_us: u64) -> Vec<String> {
        let mut reasons = Vec::new();
        for need in &task.version {
            match need {
                TaskId::Barrier(n) if n.0 >= self.state.closed => {
                    reasons.push(format!("its pull waits for {need}: {}", self.barrier_waits(*n, now_us)));
                }
                TaskId::Clock(clock) if self.clocks.lowest().is_some_and(|low| low < *clock) => {
                    reasons.push(format!("its pull waits for {need}: {}", self.clock_waits(*clock)));
                }
                _ => {}
            }
        }
        match (id, holder) {
            (TaskId::Barrier(n), _) => reasons = vec![self.barrier_waits(*n, now_us)],
            (TaskId::Clock(clock), _) => reasons = vec![self.clock_waits(*clock)],
            (TaskId::Iteration { seq, .. }, Holder::Worker(worker)) => {
                let in_hand = || {
                    let name = self.display_name(worker);
                    match seq - self.members.get(&worker).map_or(0, |m| m.finished) - 1 {
                        0 => format!("{name} has it in hand"),
                        n => format!("{name} has it in hand, after {n} earlier iterations"),
                    }
                };
                reasons.push(self.describe_sealing(worker).unwrap_or_else(in_hand));
            }
            (TaskId::Prepare(_), Holder::Worker(worker)) => reasons.push(format!(
                "{} fetches the model, reads the data and computes a first batch, for {} s by now; nobody waits for it",
                self.display_name(worker),
                (now_us / 1000).saturating_sub(task.created_ms) / 1000
            )),
            (_, Holder::Worker(worker)) => {
                reasons.push(format!("{} has it in hand", self.display_name(worker)))
            }
            (_, Holder::Shards) => reasons.push("the shards work on it".into()),
            (_, Holder::Planner) => reasons.push(match &self.state.waiting_for {
                Some(what) => format!("waits for {what}"),
                None => "its rolling graph of iterations and barriers runs".into(),
            }),
        }
        reasons
    }

    /// Which shards have not said how far a worker that has left came, in words; `None` if it has not, or
    /// they have.
    fn describe_sealing(&self, worker: Incarnation) -> Option<String> {
        let Membership::Sealing { answers } = &self.members.get(&worker)?.membership else { return None };
        let all = (0..self.state.shards).map(ShardIndex);
        let silent: Vec<String> =
            all.filter(|shard| !answers.contains_key(shard)).map(|shard| format!("shard {shard}")).collect();
        let name = self.display_name(worker);
        Some(format!("{name} has left, and {} has not said yet how far it came", silent.join(" or ")))
    }

    /// Whom a barrier waits for, in words.
    fn barrier_waits(&self, barrier: Superstep, now_us: u64) -> String {
        let Some(explained) = self.explain_barrier(barrier) else { return "it is not begun".into() };
        let since_us = now_us.saturating_sub(self.supersteps[&barrier].opened_us);
        let missing = explained.workers.iter().filter(|w| w.awaited);
        let missing: Vec<String> = missing
            .map(|w| {
                if let Some(sealing) = self.describe_sealing(w.worker) {
                    return sealing;
                }
                let of_all = w.iterations.map(|all| format!(" of {all}")).unwrap_or_default();
                let (name, late) = (self.display_name(w.worker), lateness(w.expected_us, since_us));
                format!("{name}: {}{of_all} iterations done{late}{}", w.done, straggling(w.straggler))
            })
            .collect();
        match (&self.supersteps[&barrier].phase, missing.is_empty()) {
            (SuperstepPhase::Open(EndRule::Free), _) => "it has no planned end".into(),
            (SuperstepPhase::Open(_), _) => {
                format!("speeds are being watched; so far {}", missing.join(", "))
            }
            (SuperstepPhase::Planning(_), _) => "it is being planned".into(),
            (SuperstepPhase::Ordered, true) => "everybody is there; the shards are closing it".into(),
            (SuperstepPhase::Ordered, false) => format!("it waits for {}", missing.join(", ")),
            (SuperstepPhase::Closed { .. }, _) => "it is closed".into(),
        }
    }

    fn clock_waits(&self, clock: u64) -> String {
        let late = self.clocks.iter().filter(|(_, c)| c.pushes < clock);
        let late: Vec<String> =
            late.map(|(w, c)| format!("{}: at {}", self.display_name(w), c.pushes)).collect();
        match late.is_empty() {
            true => "everybody has reached it".into(),
            false => format!("it waits for {}", late.join(", ")),
        }
    }

    /// A task that is not in the graph: over and forgotten, or not granted yet.
    fn absent(&self, id: &TaskId, now_us: u64) -> Option<TaskExplanation> {
        let explained = |state: &str, reason: String| {
            Some(TaskExplanation {
                task: id.clone(),
                state: state.to_owned(),
                reasons: vec![reason],
                needs: Vec::new(),
            })
        };
        let forgotten = "it is over; only the newest finished tasks are kept".to_owned();
        match *id {
            TaskId::Barrier(n) if n.0 < self.state.closed => explained("done", forgotten),
            TaskId::Evaluation { number, .. } if self.state.evaluations.has_begun(number) => {
                explained("done", forgotten)
            }
            TaskId::Barrier(n) if self.supersteps.contains_key(&n) => {
                explained("planned", self.barrier_waits(n, now_us))
            }
            TaskId::Clock(clock) if self.waits_for_clocks() => match self.clocks.lowest() {
                Some(low) if low >= clock => explained("done", forgotten),
                _ => explained("planned", self.clock_waits(clock)),
            },
            TaskId::Iteration { worker, seq } => {
                let member = self.members.get(&worker)?;
                match member.membership {
                    _ if seq == 0 => None,
                    _ if seq <= member.granted => explained("done", forgotten),
                    Membership::Active if !self.phase().is_over() => {
                        explained("planned", self.not_granted(worker, seq))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Whether its policy has workers wait for clocks that others reach; none of the other policies has such
    /// tasks.
    fn waits_for_clocks(&self) -> bool {
        let policy = self.state.policy.as_dyn();
        self.members.keys().any(|&worker| policy.gate(worker, &self.clocks).behind.is_some())
    }

    fn not_granted(&self, worker: Incarnation, seq: u64) -> String {
        let member = &self.members[&worker];
        if self.state.cursor.is_exhausted() && member.reserved.is_empty() {
            return "all samples are handed out".into();
        }
        if self.has_no_samples() && member.reserved.is_empty() {
            return "the epoch is handed out; an evaluation follows".into();
        }
        if seq == member.granted + 1 && self.is_gated(worker) {
            let lead = self.clocks.lead(worker);
            let slowest = self.clocks.slowest().map(|(w, _)| self.display_name(w)).unwrap_or_default();
            let worker = self.display_name(worker);
            return format!(
                "not granted: {worker} is {lead} ahead of {slowest}, as far as {} allows",
                self.train().policy
            );
        }
        let worker = self.display_name(worker);
        format!("not granted yet: {worker} is at {} of {} granted", member.finished, member.granted)
    }
}

/// How far behind what was expected of it somebody is, in words.
fn lateness(expected_us: Option<u64>, since_us: u64) -> String {
    match expected_us {
        None => String::new(),
        Some(at) if at < since_us => format!(", late by {} ms", (since_us - at) / 1000),
        Some(at) => format!(", expected in {} ms", (at - since_us) / 1000),
    }
}

fn straggling(straggler: Option<StragglerExplanation>) -> String {
    straggler.map(|s| format!(", {:.1} times as slow as most", s.factor)).unwrap_or_default()
}

impl SuperstepState {
    fn closed_us(&self) -> Option<u64> {
        match self.phase {
            SuperstepPhase::Closed { closed_us, .. } => Some(closed_us),
            _ => None,
        }
    }

    fn word(&self) -> &'static str {
        match self.phase {
            SuperstepPhase::Open(_) => "open",
            SuperstepPhase::Planning(_) => "planning",
            SuperstepPhase::Ordered => "ordered",
            SuperstepPhase::Closed { .. } => "closed",
        }
    }
}
