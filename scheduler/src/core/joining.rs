//! How a worker comes into a training.
//!
//! Where nobody is at work, it takes part at once. Where others are, it first shows that it can: it fetches
//! the model, reads its data, pulls the parameters and computes a batch that counts nowhere. From then on
//! others may have to wait for it. Whatever stops it before that, a file that its machine lacks or a link
//! that is broken, costs nobody else a moment.

use std::collections::BTreeMap;

use super::{
    effects::Effect,
    event::{Happening, NamedWorker},
    job::Job,
    member::{Member, Membership, StepTimes, TimeTotals},
    records::{Phase, Task, TaskBody},
    stragglers::StragglerNotice,
    turn::Turn,
    worker_info::WorkerInfo,
    worker_protocol::{TaskKey, Work},
};
use crate::{
    balance::CurveFit,
    graph::{Holder, TaskEvent, TaskId},
    ids::Incarnation,
    predict::{HeldUp, IntervalEstimator},
    samples::SampleRange,
    spec::PolicyRule,
};

/// Workers that are named where a job waits for many.
const NAMED: usize = 8;

/// How a worker that was idle begins.
#[derive(Debug, Clone, Copy)]
pub(super) enum Entry {
    /// It takes part at once, with all that come in the same moment: there is nobody whom it could hold up.
    AtOnce,
    /// It shows first that it can.
    Prepared,
}

impl Job {
    /// How workers begin that come now.
    pub(super) fn entry(&self) -> Entry {
        let others_are_at_work = self.state.phase == Phase::Running && self.active().next().is_some();
        if others_are_at_work { Entry::Prepared } else { Entry::AtOnce }
    }

    /// Takes in a worker that was idle.
    pub(super) fn join(&mut self, worker: Incarnation, about: WorkerInfo, entry: Entry, turn: &mut Turn<'_>) {
        let named = NamedWorker { id: worker, name: about.name.clone() };
        self.tell(Happening::WorkerJoined(named), turn.now_us);
        let number = self.state.joined;
        self.state.joined = number.saturating_add(1);
        let train = self.train();
        let member = Member {
            about,
            number,
            membership: Membership::Preparing,
            planned: 0,
            granted: 0,
            finished: 0,
            seal: None,
            reserved: Default::default(),
            clock_base: 0,
            batch: train.batch,
            last_end_us: turn.now_us,
            interval_us: 0,
            interval_samples: 0,
            speed: IntervalEstimator::new(train.policy.predictor),
            curve: train.policy.fits_curves().then(CurveFit::default),
            step_times: StepTimes::default(),
            held_up: HeldUp::default(),
            straggler: None,
            slow_told: StragglerNotice::default(),
            spent: TimeTotals::default(),
            newest_loss: None,
            held_back_us: None,
            arrivals_us: BTreeMap::new(),
        };
        let batch = member.fitting(train);
        self.members.insert(worker, Member { batch, ..member });
        self.count_workers();
        if matches!(entry, Entry::AtOnce) {
            return self.take_part(worker, turn);
        }
        let id = TaskId::Prepare(worker);
        self.tasks.insert(id.clone(), Task::new(TaskBody::Prepare, 0, turn.now_us));
        self.apply(&id, &TaskEvent::Leased { holder: Holder::Worker(worker) }, turn.now_us);
        let assignment = self.assignment(&id);
        turn.effects.extend(assignment.map(|assignment| Effect::Assign { worker, assignment }));
        self.member_mut(worker);
    }

    /// A worker has shown that it can run the job.
    pub(super) fn prepared(&mut self, worker: Incarnation, key: &TaskKey, turn: &mut Turn<'_>) {
        if self.apply(&key.task, &TaskEvent::Finished { attempt: key.attempt }, turn.now_us) {
            self.tell(Happening::WorkerPrepared(self.named(worker)), turn.now_us);
            self.take_part(worker, turn);
        }
    }

    /// From now on a worker is given iterations, and its clock counts.
    fn take_part(&mut self, worker: Incarnation, turn: &mut Turn<'_>) {
        self.clocks.join(worker, None);
        let clock_base = self.clocks.get(worker).map_or(0, |clock| clock.pushes);
        let member = self.member_mut(worker);
        member.membership = Membership::Active;
        member.clock_base = clock_base;
        member.last_end_us = turn.now_us;
        self.clocks_changed(turn.effects);
    }

    /// A batch as an iteration would have it, with the first samples there are.
    pub(super) fn rehearsal(&self, worker: Incarnation) -> Work {
        let train = self.train();
        let batch = self.members.get(&worker).map_or(train.batch, |member| member.fitting(train));
        let len = u64::from(batch).min(train.epoch_samples());
        let range = SampleRange { epoch: 0, start: 0, len: u32::try_from(len).unwrap_or(batch) };
        Work::Prepare { range }
    }

    /// Who takes part, and who is about to.
    pub(super) fn present(&self) -> impl Iterator<Item = Incarnation> + '_ {
        self.members_that(Member::is_present)
    }

    /// Who still prepares itself for a job that ends may do so for a while: it is free for another one when
    /// it registers again.
    pub(super) fn dismiss_preparing(&mut self, effects: &mut Vec<Effect>) {
        for worker in self.preparing().collect::<Vec<_>>() {
            let reason = format!("job {} ended while it prepared itself for it", self.id());
            self.member_mut(worker).membership = Membership::Gone;
            effects.push(Effect::DismissWorker { worker, reason });
        }
    }

    pub(super) fn preparing(&self) -> impl Iterator<Item = Incarnation> + '_ {
        self.members_that(|member| member.membership == Membership::Preparing)
    }

    /// Workers that have not finished anything yet, in words; `None` if one that takes part has.
    pub(super) fn describe_beginners(&self) -> Option<String> {
        // A local round is reported as a whole, at its end.
        let by_round =
            matches!(self.train().policy.rule, PolicyRule::LocalSgd { .. } | PolicyRule::DiLoCo { .. });
        if self.members.values().any(|m| m.membership == Membership::Active && (by_round || m.finished > 0)) {
            return None;
        }
        // At the end of the samples one that comes is given nothing.
        let given_out = self.state.cursor.is_exhausted();
        let comes_late = |m: &Member| given_out && m.membership == Membership::Active && m.outstanding() == 0;
        let begin: Vec<_> = self.present().filter(|worker| !comes_late(&self.members[worker])).collect();
        let names = self.name_some(&begin, NAMED)?;
        Some(format!("{names} to fetch the model, read the data and compute a first batch"))
    }
}
