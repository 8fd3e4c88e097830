//! A parameter server reduced to what the core and the workers can see of it: who pushed how far, which
//! barriers are closed, whose clocks count. No numbers are kept.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    core::{
        BarrierOrder, ClockRoster, ClosedBarrier, Effect, HeldJob, Input, OpenWith, ProgressFloor,
        PushProgress, ShardProgress, SnapshotFile, TaskFault,
    },
    fault_code::FaultCode,
    ids::{ContentDigest, Incarnation, RunId, ShardIndex, Superstep},
    sync::{self, Clock, Clocks, PlanRequest},
};

/// One shard, which holds one job.
#[derive(Debug, Clone, Default)]
pub struct ShardModel {
    run: Option<RunId>,
    /// Barriers closed so far, and those that the core has been told of.
    closed: u64,
    reported: u64,
    /// Iterations whose pushes were applied completely.
    pushes: u64,
    watermarks: BTreeMap<Incarnation, u64>,
    begun: BTreeMap<Incarnation, u64>,
    sealed: BTreeSet<Incarnation>,
    /// Barriers that are leased and open, by superstep; of the first of them, the workers that have not
    /// arrived.
    orders: BTreeMap<u64, BarrierOrder>,
    missing: usize,
    clock_revision: u64,
    clock_base: BTreeMap<Incarnation, u64>,
    clocks: Clocks,
    /// Pushes in each checkpoint, in memory and on disk. Only the latter outlive a crash.
    pinned: BTreeMap<u64, u64>,
    written: BTreeMap<u64, u64>,
}

impl ShardModel {
    /// Numbers of the checkpoints on its disk.
    pub fn written_checkpoints(&self) -> Vec<u64> {
        self.written.keys().copied().collect()
    }

    /// Iterations whose pushes were applied completely.
    pub fn pushes(&self) -> u64 {
        self.pushes
    }

    /// The clocks that count.
    pub fn clocks(&self) -> &Clocks {
        &self.clocks
    }

    /// Barriers closed so far: the version that pulls can get.
    pub fn closed(&self) -> u64 {
        self.closed
    }

    /// Whether the core does not know of all closed barriers.
    pub fn has_news(&self) -> bool {
        self.closed > self.reported
    }

    /// Whether a pull of `superstep` that waits for `min_clock` is answered.
    pub fn serves(&self, superstep: Superstep, min_clock: u64) -> bool {
        let reached = self.clock_revision > 0 && self.clocks.lowest().is_none_or(|low| low >= min_clock);
        self.closed >= superstep.0 && (min_clock == 0 || reached)
    }

    /// A push has begun to be applied; `false` if its worker is sealed.
    pub fn begin_push(&mut self, worker: Incarnation, seq: u64) -> bool {
        if self.sealed.contains(&worker) {
            return false;
        }
        let begun = self.begun.entry(worker).or_default();
        *begun = seq.max(*begun);
        true
    }

    /// A push that stands for `covers` iterations, the last of them `seq`, is applied; `false` if its worker
    /// is sealed. Closes the barriers that waited for nothing else.
    ///
    /// # Panics
    ///
    /// If it leaves one out behind the worker's last push.
    pub fn finish_push(&mut self, worker: Incarnation, seq: u64, covers: u64) -> bool {
        if self.sealed.contains(&worker) {
            return false;
        }
        let before = self.watermark(worker);
        if seq <= before {
            // It was applied, and nobody knows any more.
            return true;
        }
        assert_eq!(before + covers, seq, "pushes come in order");
        self.watermarks.insert(worker, seq);
        self.pushes += covers;
        self.count_clock(worker);
        let last = self.orders.get(&self.closed).and_then(|order| order.roster.get(&worker));
        if last.is_some_and(|last| before < *last && seq >= *last) {
            self.missing -= 1;
        }
        self.close_barriers();
        true
    }

    /// Whether such a push leaves one out behind the worker's last one: that is refused.
    pub fn misses_one_before(&self, worker: Incarnation, seq: u64, covers: u64) -> bool {
        self.watermark(worker) + covers < seq
    }

    /// Whether it holds the parameters of this very run.
    pub fn holds(&self, run: &RunId) -> bool {
        self.run.as_ref() == Some(run)
    }

    /// How far it is.
    pub fn progress(&self) -> ShardProgress {
        ShardProgress {
            closed: self.closed,
            watermarks: self.watermarks.clone(),
            orders: self.orders.values().cloned().collect(),
            clock_revision: self.clock_revision,
        }
    }

    fn holds_later(&self, run: &RunId) -> bool {
        self.run.as_ref().is_some_and(|held| held.follows(run))
    }

    /// What it answers to an order about a run that it does not hold.
    fn refusal(&self, shard: ShardIndex, run: &RunId) -> Option<Input> {
        let (code, reason) = match self.holds_later(run) {
            true => (FaultCode::STORE_LOST, format!("{shard} holds a later generation")),
            false => (FaultCode::PARAMETERS_LOST, format!("{shard} does not hold it")),
        };
        Some(Input::ShardFailed { run: run.clone(), code, reason })
    }

    /// Its process is killed and started again: it has what was on disk.
    pub fn crash(&mut self) {
        let written = std::mem::take(&mut self.written);
        *self = Self { written, ..Self::default() };
    }

    /// Begins with a job, as it was at a checkpoint or anew; one that is open already goes on.
    fn open(&mut self, run: &RunId, checkpoint: Option<u64>) {
        if !self.holds(run) {
            let pushes = checkpoint.map_or(0, |number| self.written[&number]);
            let (run, written) = (Some(run.clone()), std::mem::take(&mut self.written));
            *self = Self { run, pushes, written, ..Self::default() };
        }
    }

    /// Brings what was pinned to disk; gives its bytes.
    fn write_checkpoint(&mut self, number: u64) -> Result<u64, TaskFault> {
        let (code, reason) = (FaultCode::CHECKPOINT_UNUSABLE, "it was started again".to_owned());
        let pushes = *self.pinned.get(&number).ok_or(TaskFault { code, reason })?;
        self.written.insert(number, pushes);
        Ok(1)
    }

    fn watermark(&self, worker: Incarnation) -> u64 {
        self.watermarks.get(&worker).copied().unwrap_or(0)
    }

    fn count_clock(&mut self, worker: Incarnation) {
        if let Some(base) = self.clock_base.get(&worker)
            && !self.sealed.contains(&worker)
        {
            let pushes = base + self.watermark(worker);
            self.clocks.join(worker, Some(Clock { pushes, granted: pushes, ..Clock::default() }));
        }
    }

    fn take_order(&mut self, order: &BarrierOrder) {
        let superstep = order.superstep.0;
        let newer = self.orders.get(&superstep).is_none_or(|known| known.revision < order.revision);
        if superstep < self.closed || !newer {
            return;
        }
        self.orders.insert(superstep, order.clone());
        if superstep == self.closed {
            self.count_missing();
            self.close_barriers();
        }
    }

    fn count_missing(&mut self) {
        let arrived = |(worker, last): &(&Incarnation, &u64)| self.watermark(**worker) >= **last;
        let roster = self.orders.get(&self.closed).map(|order| &order.roster);
        self.missing = roster.map_or(0, |roster| roster.iter().filter(|entry| !arrived(entry)).count());
    }

    fn close_barriers(&mut self) {
        while self.missing == 0 && self.orders.remove(&self.closed).is_some() {
            self.closed += 1;
            self.count_missing();
        }
    }

    fn take_clocks(&mut self, roster: &ClockRoster) {
        if roster.revision <= self.clock_revision {
            return;
        }
        self.clock_revision = roster.revision;
        self.clock_base.clone_from(&roster.base);
        self.clocks = Clocks::default();
        let workers: Vec<Incarnation> = roster.base.keys().copied().collect();
        workers.into_iter().for_each(|worker| self.count_clock(worker));
    }

    fn seal(&mut self, worker: Incarnation) -> PushProgress {
        self.sealed.insert(worker);
        self.clocks.leave(worker);
        let watermark = self.watermark(worker);
        PushProgress { watermark, partial: self.begun.get(&worker).is_some_and(|&begun| begun > watermark) }
    }
}

/// All shards, and whoever computes plans.
#[derive(Debug, Clone)]
pub struct ParameterServerModel {
    /// In the order of their indices.
    pub shards: Vec<ShardModel>,
}

impl ParameterServerModel {
    /// Shards that hold nothing yet.
    pub fn new(shards: u32) -> Self {
        Self { shards: (0..shards).map(|_| ShardModel::default()).collect() }
    }

    /// Carries out an effect and returns what is answered. Those for workers do nothing here, nor does
    /// [`Effect::CloseShards`].
    pub fn carry_out(&mut self, effect: Effect) -> Vec<Input> {
        match effect {
            Effect::OpenShards { run, with, known_through } => self.open(run, with, known_through),
            Effect::OrderBarrier { run, order } => self.order(&run, |_, model| {
                model.take_order(&order);
                None
            }),
            Effect::Clocks { run, roster } => self.order(&run, |_, model| {
                model.take_clocks(&roster);
                None
            }),
            Effect::Seal { run, worker } => self.order(&run, |shard, model| {
                let (run, progress) = (run.clone(), model.seal(worker));
                Some(Input::Sealed { run, worker, shard, progress })
            }),
            Effect::PinCheckpoint { run, number } => self.order(&run, |shard, model| {
                model.pinned.entry(number).or_insert(model.pushes);
                let run = run.clone();
                Some(Input::CheckpointPinned { run, number, shard, outcome: Ok(()) })
            }),
            Effect::WriteCheckpoint { run, number } => self.order(&run, |shard, model| {
                let (run, outcome) = (run.clone(), model.write_checkpoint(number));
                Some(Input::CheckpointWritten { run, number, shard, outcome })
            }),
            Effect::RetainCheckpoints { retention, .. } => {
                let stays = |number: u64| !retention.gives_up(number);
                self.shards.iter_mut().for_each(|shard| shard.written.retain(|n, _| stays(*n)));
                Vec::new()
            }
            Effect::Attach { run, shard, floor } => {
                if !self.shards[shard.0 as usize].holds(&run) {
                    return self.shards[shard.0 as usize].refusal(shard, &run).into_iter().collect();
                }
                let progress = self.shards[shard.0 as usize].progress();
                vec![Input::Attached { run, shard, progress, floor }]
            }
            Effect::Snapshot { key, .. } => {
                let lost = self.order(&key.run, |_, _| None);
                if !lost.is_empty() {
                    return lost;
                }
                let file = SnapshotFile {
                    path: "/snapshot".into(),
                    bytes: 1,
                    digest: ContentDigest::from_bytes([1; 32]),
                };
                vec![Input::SnapshotWritten { key, outcome: Ok(file) }]
            }
            Effect::Plan(request) => {
                let plan = sync::plan(&request.rows, request.search_options);
                let PlanRequest { run, superstep, revision, .. } = request;
                vec![Input::Planned { run, superstep, revision, plan }]
            }
            Effect::Assign { .. }
            | Effect::AckReport { .. }
            | Effect::Revoke { .. }
            | Effect::DismissWorker { .. }
            | Effect::CloseShards { .. }
            | Effect::Orders { .. }
            | Effect::ReleaseBlobs { .. } => Vec::new(),
        }
    }

    /// Opens a run on every shard; what one says that cannot ends it.
    fn open(&mut self, run: RunId, with: OpenWith, known_through: Option<u64>) -> Vec<Input> {
        for (shard, model) in (0..).map(ShardIndex).zip(&self.shards).filter(|(_, model)| !model.holds(&run))
        {
            let newest = model.written.keys().max();
            let fault = match (known_through, with.checkpoint()) {
                (Some(known), _) if newest.is_some_and(|newest| *newest > known) => Some("E646"),
                (_, Some(number)) if !model.written.contains_key(&number) => Some("E439"),
                _ => None,
            };
            let refused = match fault {
                _ if model.holds_later(&run) => model.refusal(shard, &run),
                Some(code) => {
                    let (code, reason) = (FaultCode::new(code), format!("{shard} has others"));
                    Some(Input::ShardFailed { run: run.clone(), code, reason })
                }
                None => None,
            };
            if refused.is_some() {
                return refused.into_iter().collect();
            }
        }
        let attached = |(shard, model): (ShardIndex, &mut ShardModel)| {
            let (run, floor) = (run.clone(), ProgressFloor::default());
            model.open(&run, with.checkpoint());
            Input::Attached { run, shard, progress: model.progress(), floor }
        };
        let mut inputs: Vec<Input> = (0..).map(ShardIndex).zip(&mut self.shards).map(attached).collect();
        inputs.push(Input::ShardsOpened { run });
        inputs
    }

    /// What every shard answers to an order about a job; one that does not hold it says so.
    fn order(
        &mut self,
        run: &RunId,
        mut act: impl FnMut(ShardIndex, &mut ShardModel) -> Option<Input>,
    ) -> Vec<Input> {
        let answer = |(shard, model): (ShardIndex, &mut ShardModel)| match model.holds(run) {
            true => act(shard, model),
            false => model.refusal(shard, run),
        };
        (0..).map(ShardIndex).zip(&mut self.shards).filter_map(answer).collect()
    }

    /// Tells of barriers that a shard has closed since it last told.
    pub fn report_closed(&mut self, shard: ShardIndex) -> Option<Input> {
        let model = self.shards.get_mut(shard.0 as usize).filter(|model| model.has_news())?;
        let run = model.run.clone()?;
        model.reported = model.closed;
        let superstep = Superstep(model.closed - 1);
        let barrier = ClosedBarrier { superstep, closed_ago_us: 0, pushes: model.pushes };
        Some(Input::BarrierClosed { run, shard, barrier })
    }

    /// What every shard answers to an engine that came after `now_us`: what it holds. It tells of closed
    /// barriers anew.
    pub fn meet_new_engine(&mut self, now_us: u64) -> Vec<Input> {
        let holds = |(shard, model): (ShardIndex, &mut ShardModel)| {
            model.reported = 0;
            let held = model.run.iter().map(|run| HeldJob { run: run.clone(), closed: false });
            Input::ShardHolds { shard, asked_us: now_us, held: held.collect() }
        };
        (0..).map(ShardIndex).zip(&mut self.shards).map(holds).collect()
    }
}
