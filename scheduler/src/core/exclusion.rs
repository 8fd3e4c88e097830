//! A worker that cannot run a job, because it lacks a file, memory or a connection, is excluded from that job
//! for a while; the others go on. Only if nobody is left who might run it does the job fail.

use serde::{Deserialize, Serialize};

use super::{
    effects::Effect, event::Happening, inputs::TaskFault, job::Job, member::Member, panics::Handling,
    records::Phase, state_machine::Core, turn::Turn, worker_info::WorkerInfo, worker_protocol::TaskKey,
};
use crate::{
    fault_code::FaultCode,
    graph::{TaskEvent, TaskId},
    ids::Incarnation,
};

/// How long a worker is excluded the first time; twice as long each further time.
const FIRST_US: u64 = 30_000_000;
const LONGEST_US: u64 = 600_000_000;
/// A link to a shard that was broken, or its disk, may be mended any moment, and costs those that meet the
/// worker at a barrier some seconds to try.
const LONGEST_OF_SHARD_US: u64 = 120_000_000;
/// Where nobody is left whom it could cost anything, it is tried again so soon.
const NOBODY_LEFT_US: u64 = 5_000_000;
/// Deaths of a worker's process, one after the other, before it had finished an iteration of a job: from then
/// on it is offered the job less and less often, since the job may be what ends it, and all else that the
/// process did ends with it.
const DEATHS: u32 = 3;
/// The first pause then; twice as long each further time.
const FIRST_OF_DEATHS_US: u64 = 5_000_000;
/// Exclusions that a job remembers when they are over.
const KEPT: usize = 64;
/// Exclusions that hold at a time: a job must not take up again a worker that is excluded because many others
/// are.
const MAX_IN_FORCE: usize = 1_024;
/// Most characters of a reason that are kept, and exclusions that are named: both are written with each
/// commit.
const REASON_CHARS: usize = 200;
const NAMED: usize = 16;
/// After so many faults of the computation itself of each worker, between which the job has not come further,
/// waiting is in vain.
const MAX_IN_VAIN: u32 = 3;

/// A worker that could not run a job, and when it is offered again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exclusion {
    /// Name that people gave the worker.
    pub name: String,
    /// Its machine.
    pub host: String,
    /// Stable code of what it lacked, see docs/errors.md.
    pub code: FaultCode,
    /// What it lacked, in words; they may begin with the code.
    pub reason: String,
    /// When it was excluded last, in epoch µs.
    pub since_us: u64,
    /// When it is offered the job again, in epoch µs.
    pub until_us: u64,
    /// How often it was excluded.
    pub times: u32,
    /// Whether it may be offered the job again; what it lacked is kept in case it lacks it still.
    pub over: bool,
    /// How often in a row it was excluded while the job came no further, and how many iterations were done
    /// then.
    #[serde(default)]
    pub in_vain: u32,
    /// Iterations of the job that were done then; with more of them `in_vain` begins anew.
    #[serde(default)]
    pub iterations_done: u64,
}

/// Whether what a worker met is a shard, which it does not reach or whose disk or memory failed: that may
/// pass.
fn is_of_shard(code: FaultCode) -> bool {
    [FaultCode::SHARD_UNREACHED, FaultCode::SHARD_IO].contains(&code)
}

impl WorkerInfo {
    /// What stays the same when the worker registers again, and changes when its process is started again.
    /// Host, name and pid may be those of another worker as well: containers made of one image share
    /// them.
    fn identity(&self) -> String {
        let known = self.process.map(|process| process.to_string());
        known.unwrap_or_else(|| format!("{}/{}/{}", self.host, self.name, self.pid))
    }

    /// What stays the same when its process is started again. A worker that nobody named is called after its
    /// process.
    fn place(&self) -> String {
        let named = !self.name.starts_with(&format!("worker-{}-", self.pid));
        format!("{}/{}", self.host, if named { self.name.as_str() } else { "" })
    }
}

impl Core {
    /// Takes a worker out of a job that it cannot run. It registers again, and may serve other jobs
    /// meanwhile.
    pub(super) fn exclude(
        &mut self,
        worker: Incarnation,
        key: &TaskKey,
        fault: TaskFault,
        turn: &mut Turn<'_>,
    ) {
        let Some(job) = self.jobs.get_mut(&key.run.job) else { return };
        if let Some(left) = job.exclude(worker, &fault, turn) {
            self.release_worker(worker, left, turn);
        }
        let Some(job) = self.jobs.get_mut(&key.run.job) else { return };
        // One that died at its beginning is offered it again soon.
        let able = self.workers.values().any(|about| about.trains && !job.holds_against(about.identity()));
        // A job that has begun waits for a worker that can go on: what was trained is worth more than an
        // early end. Its weights are kept where that is in vain. So does any whose links are broken,
        // until they are mended, and for some tries any that a shard's disk or memory failed: that
        // may pass, or the job is too large for the shards.
        let waits = job.state.counters.done > 0 || is_of_shard(fault.code);
        if !able && (!waits || job.is_beyond_everybody(&key.task)) {
            let TaskFault { code, reason } = fault;
            let reason = format!("task {}: {reason}", key.task);
            job.end(Phase::Failed { code, reason }, turn);
        }
    }

    /// A worker's process is gone: see [`Job::count_death`].
    pub(super) fn count_deaths(&mut self, worker: Incarnation, now_us: u64) {
        for (id, job) in self.jobs.live_mut().filter(|(_, j)| !j.state.phase.is_over()) {
            let _handling = Handling(id);
            job.count_death(worker, now_us);
        }
    }

    /// Ends exclusions of workers that did not reach a shard: one is at another address now.
    pub(super) fn end_exclusions_for_links(&mut self) {
        for (id, job) in self.jobs.live_mut().filter(|(_, j)| !j.state.phase.is_over()) {
            let _handling = Handling(id);
            job.end_exclusions_where(|exclusion| exclusion.code == FaultCode::SHARD_UNREACHED);
        }
    }

    /// Ends exclusions whose time is over; whether there were any.
    pub(super) fn end_exclusions(&mut self, now_us: u64) -> bool {
        let mut any = false;
        for (id, job) in self.jobs.live_mut().filter(|(_, j)| !j.state.phase.is_over()) {
            let _handling = Handling(id);
            any |= job.end_exclusions(now_us);
        }
        any
    }
}

impl Job {
    /// Whether a worker is not offered this job for now.
    pub(super) fn excludes(&self, about: &WorkerInfo) -> bool {
        let excluded = &self.state.excluded;
        !excluded.is_empty() && (self.holds_against(about.identity()) || self.holds_against(about.place()))
    }

    fn holds_against(&self, who: String) -> bool {
        self.state.excluded.get(&who).is_some_and(|e| !e.over)
    }

    /// Counts that a worker is lost before it had finished an iteration, whether the job ended it or not. One
    /// that had begins anew.
    fn count_death(&mut self, worker: Incarnation, now_us: u64) {
        let runs = self.state.phase == Phase::Running;
        let Some(member) = self.members.get(&worker).filter(|member| runs && member.is_present()) else {
            return;
        };
        let (place, about) = (member.about.place(), member.about.clone());
        if member.finished > 0 {
            self.changes.job_state |= self.state.excluded.remove(&place).is_some();
            return;
        }
        // Several that share a name, as containers may, go at once when their machine does.
        let alike = |(other, m): (&Incarnation, &Member)| {
            *other != worker && m.is_present() && m.about.host == about.host && m.about.place() == place
        };
        if self.members.iter().any(alike) {
            return;
        }
        let times = self.state.excluded.get(&place).map_or(1, |e| e.times.saturating_add(1));
        let over = times < DEATHS;
        let pause_us = (FIRST_OF_DEATHS_US << times.saturating_sub(DEATHS).min(16)).min(LONGEST_US);
        let reason =
            format!("it was lost {times} times in a row before it had finished an iteration of this job");
        let fault = TaskFault { code: FaultCode::WORKER_LOST, reason };
        if !over {
            let worker = self.named(worker);
            let (host, fault, again_in_ms) = (about.host.clone(), fault.clone(), pause_us / 1000);
            self.tell(Happening::WorkerExcluded { worker, host, fault, again_in_ms }, now_us);
        }
        let exclusion = Exclusion {
            name: about.name,
            host: about.host,
            code: fault.code,
            reason: fault.reason,
            since_us: now_us,
            until_us: now_us + pause_us,
            times,
            over,
            in_vain: 0,
            iterations_done: self.state.counters.done,
        };
        self.state.excluded.insert(place, exclusion);
        self.forget_exclusions();
        self.changes.job_state = true;
    }

    /// Returns why it has to go; `None` if it is going already.
    fn exclude(&mut self, worker: Incarnation, fault: &TaskFault, turn: &mut Turn<'_>) -> Option<String> {
        // Of one that is on its way out already, another task has failed with the first: that is no further
        // time.
        let member = self.members.get(&worker).filter(|member| member.is_present())?;
        let (identity, about) = (member.about.identity(), member.about.clone());
        let before = self.state.excluded.get(&identity);
        let times = before.map_or(1, |e| e.times.saturating_add(1));
        let iterations_done = self.state.counters.done;
        let in_row = before.filter(|e| e.iterations_done == iterations_done && e.code == fault.code);
        let in_vain = in_row.map_or(1, |e| e.in_vain.saturating_add(1));
        let longest_us = if is_of_shard(fault.code) { LONGEST_OF_SHARD_US } else { LONGEST_US };
        let pause_us = (FIRST_US << (times - 1).min(16)).min(longest_us);
        let excluded = Happening::WorkerExcluded {
            worker: self.named(worker),
            host: about.host.clone(),
            fault: fault.clone(),
            again_in_ms: pause_us / 1000,
        };
        self.tell(excluded, turn.now_us);
        for id in self.leased_to(worker) {
            let attempt = self.tasks.get(&id).map_or(0, |t| t.attempts);
            turn.effects.push(Effect::Revoke { worker, key: self.key(id.clone(), attempt) });
            if self.tasks.get(&id).is_some_and(|t| t.body.is_node()) {
                // It was this worker that failed, not the node: another one may take it.
                self.apply(&id, &TaskEvent::Retried, turn.now_us);
            }
        }
        let code = fault.code;
        let reason: String = fault.reason.chars().take(REASON_CHARS).collect();
        let (name, host) = (about.name, about.host);
        let until_us = turn.now_us + pause_us;
        let left = format!("it cannot run this job: {reason}");
        let (since_us, over) = (turn.now_us, false);
        let exclusion =
            Exclusion { name, host, code, reason, since_us, until_us, times, over, in_vain, iterations_done };
        self.state.excluded.insert(identity, exclusion);
        self.forget_exclusions();
        Some(left)
    }

    /// Bounds what is remembered, the oldest first.
    fn forget_exclusions(&mut self) {
        let excluded = &mut self.state.excluded;
        // The deaths of many workers are counted beside each other, and none of them makes another forgotten.
        let kind = |e: &Exclusion| (e.over, e.over && e.code == FaultCode::WORKER_LOST);
        let kinds = [((true, false), KEPT), ((true, true), MAX_IN_FORCE), ((false, false), MAX_IN_FORCE)];
        for (of, most) in kinds {
            while excluded.values().filter(|e| kind(e) == of).count() > most {
                let of_kind = excluded.iter().filter(|(_, e)| kind(e) == of);
                let oldest = of_kind.min_by_key(|(_, e)| e.until_us).map(|(identity, _)| identity.clone());
                excluded.remove(&oldest.expect("there are more than none"));
            }
        }
    }

    /// Whether all that are excluded now have failed to compute it again and again, and nobody else came
    /// further meanwhile. One of which nothing is done may be beyond the shards in the same way. What
    /// follows the training is given up for whatever it lacks but a shard: the trained weights are safe
    /// by then, and an answer is wanted.
    fn is_beyond_everybody(&self, task: &TaskId) -> bool {
        let trains = matches!(task, TaskId::Iteration { .. } | TaskId::Prepare(_));
        let computed = |code| [FaultCode::COMPUTATION_FAILED, FaultCode::DEVICE_MEMORY].contains(&code);
        let failed = |code| {
            computed(code)
                || !trains && !is_of_shard(code)
                || self.state.counters.done == 0 && code == FaultCode::SHARD_IO
        };
        let mut now = self.state.excluded.values().filter(|e| !e.over).peekable();
        now.peek().is_some() && now.all(|e| failed(e.code) && e.in_vain >= MAX_IN_VAIN)
    }

    fn end_exclusions(&mut self, now_us: u64) -> bool {
        let nobody_left = self.present().next().is_none();
        self.end_exclusions_where(|e| {
            e.until_us <= now_us
                || nobody_left && is_of_shard(e.code) && e.since_us + NOBODY_LEFT_US <= now_us
        })
    }

    fn end_exclusions_where(&mut self, is_due: impl Fn(&Exclusion) -> bool) -> bool {
        let mut any = false;
        for exclusion in self.state.excluded.values_mut().filter(|e| !e.over && is_due(e)) {
            exclusion.over = true;
            any = true;
        }
        self.changes.job_state |= any;
        any
    }

    /// Who cannot run this job for now and why, in words.
    pub(super) fn exclusions(&self) -> String {
        let one = |e: &Exclusion| format!("{} on {}: {}", e.name, e.host, e.code.in_front_of(&e.reason));
        let now = || self.state.excluded.values().filter(|e| !e.over);
        let named = now().take(NAMED).map(one).collect::<Vec<_>>().join("; ");
        match now().count().saturating_sub(NAMED) {
            0 => named,
            more => format!("{named}; and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_nobody_named_is_known_by_its_host_when_its_process_is_started_again() {
        let place = |name: &str| {
            WorkerInfo { name: name.into(), host: "h".into(), pid: 7, ..WorkerInfo::default() }.place()
        };
        assert_eq!([place("worker-7-0a1b"), place("worker-8-0a1b")], ["h/", "h/worker-8-0a1b"]);
    }
}
