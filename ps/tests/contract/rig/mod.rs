//! A parameter server with real sockets, an engine's hand on its control service, and connections that break.

mod cutter;

pub use cutter::{Cut, Cutter};

use std::{
    collections::BTreeMap,
    fmt::Display,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use syncline_ps::{
    client::{BlobClient, CancelToken, ClientOptions, ShardSet, connect as connect_channel},
    codec::Codec,
    server::{self, Handle, Options},
    shard::PushHeader,
    transport::{Channel, TransportChoice},
    wire::SessionKey,
};
use syncline_rpc::{
    BarrierOrder, ClockRoster, ClosedBarrier, Collected, DigestRange, FolderGc, Forgotten, HeldJob,
    JobFolders, KnownJobs, OpenJob, PushProgress, Retention, ShardClient, ShardFault, ShardRequest,
    ShardResponse, ShardState, SnapshotFile, Token, connect, hello::Role,
};
use syncline_scheduler::{
    ids::{ContentDigest, EngineEpoch, Generation, Incarnation, JobId, RunId, ShardIndex, Superstep},
    spec::{Layout, Optimizer, Parameter},
    sync::{PushMode, RoundRule},
};
use tarpc::{client, context};
use tokio::runtime::Runtime;

pub const SGD: Optimizer = Optimizer::Sgd { weight_decay: 0.0 };
pub const FIRST: Generation = Generation(1);
pub const EPOCH: EngineEpoch = EngineEpoch(1);

/// One step of size one along the gradient.
pub const UNIT: PushHeader =
    PushHeader { learning_rate: 1.0, weight: 1.0, scale: 1.0, skip: false, mode: PushMode::Apply, covers: 1 };
/// The same into the round of the next barrier.
pub const ROUND: PushHeader = PushHeader { mode: PushMode::Accumulate, ..UNIT };

/// A client over the transport of these tests, or an error.
pub fn client_options() -> ClientOptions {
    ClientOptions {
        transport: TransportChoice::Only(super::super::TRANSPORT),
        in_place: super::super::IN_PLACE,
        ..ClientOptions::default()
    }
}

pub fn session(incarnation: u64) -> SessionKey {
    SessionKey { run: run(FIRST), incarnation: Incarnation(incarnation) }
}

/// The job in a generation of its parameters.
pub fn run(generation: Generation) -> RunId {
    RunId { job: job(), generation }
}

pub fn job() -> JobId {
    "digits".parse().unwrap()
}

pub struct Rig {
    pub shards: Vec<Handle>,
    pub token: Token,
    pub dir: tempfile::TempDir,
    runtime: Runtime,
    controls: Vec<ShardClient>,
}

impl Rig {
    pub fn start(count: u32) -> Self {
        let (token, dir) = (Token::generate(), tempfile::tempdir().unwrap());
        let runtime = Runtime::new().unwrap();
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let start = |index| server::start(options(&token, dir.path(), anywhere, index, count)).unwrap();
        let shards: Vec<Handle> = (0..count).map(start).collect();
        let controls = shards.iter().map(|s| control(&runtime, s.address(), &token)).collect();
        Self { shards, token, dir, runtime, controls }
    }

    /// A rig of one shard that tells this engine of itself, whose job is open with all parameters zero.
    pub fn announced_to(engine: SocketAddr, token: Token, elements: u64) -> Self {
        let (dir, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let options = options(&token, dir.path(), anywhere, 0, 1);
        let shard = server::start(Options { engine: Some(engine.into()), ..options }).unwrap();
        let controls = vec![control(&runtime, shard.address(), &token)];
        let rig = Self { shards: vec![shard], token, dir, runtime, controls };
        let initial = rig.blob(&vec![0.0; elements as usize]);
        rig.open(FIRST, elements, SGD, &initial).into_iter().for_each(|opened| drop(opened.unwrap()));
        rig
    }

    /// Stops every shard as a signal does, and starts it again at its place.
    pub fn restart(&mut self) {
        let places: Vec<SocketAddr> = self.shards.iter().map(Handle::address).collect();
        for shard in std::mem::take(&mut self.shards) {
            shard.stop_and_save(|_| false).unwrap();
        }
        self.start_again(&places);
    }

    /// Starts every shard again where it was.
    pub fn start_again(&mut self, places: &[SocketAddr]) {
        let count = places.len() as u32;
        let start = |(index, place)| {
            server::start(options(&self.token, self.dir.path(), place, index, count)).unwrap()
        };
        self.shards = (0..).zip(places.iter().copied()).map(start).collect();
        self.controls =
            self.shards.iter().map(|s| control(&self.runtime, s.address(), &self.token)).collect();
    }

    /// A rig whose job is open with all parameters zero.
    pub fn with_job(count: u32, elements: u64) -> Self {
        let rig = Self::start(count);
        let initial = rig.blob(&vec![0.0; elements as usize]);
        for result in rig.open(FIRST, elements, SGD, &initial) {
            result.unwrap();
        }
        rig
    }

    pub fn addresses(&self) -> Vec<String> {
        self.shards.iter().map(|s| s.address().to_string()).collect()
    }

    pub fn blobs(&self) -> BlobClient {
        BlobClient::new(self.token.clone())
    }

    pub fn blob_path(&self, shard: usize, name: impl Display) -> PathBuf {
        self.dir.path().join(shard.to_string()).join("blobs").join(name.to_string())
    }

    /// Puts values on the first shard only: the others must fetch their part.
    pub fn blob(&self, values: &[f32]) -> ContentDigest {
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.blobs().put(&self.addresses()[0], &bytes).unwrap()
    }

    pub fn order(&self, shard: u32, elements: u64, initial: &ContentDigest) -> OpenJob {
        OpenJob {
            run: run(FIRST),
            shard: ShardIndex(shard),
            shards: self.addresses(),
            layout: layout(elements),
            optimizer: SGD,
            clip_norm: None,
            initial: *initial,
            resumed: None,
            checkpoint: None,
            known_through: None,
        }
    }

    pub fn open(
        &self,
        generation: Generation,
        elements: u64,
        optimizer: Optimizer,
        initial: &ContentDigest,
    ) -> Vec<Result<ShardState, ShardFault>> {
        let order = |i| OpenJob { run: run(generation), optimizer, ..self.order(i, elements, initial) };
        (0..self.shards.len() as u32).map(|i| self.open_one(EPOCH, order(i))).collect()
    }

    pub fn open_one(&self, epoch: EngineEpoch, order: OpenJob) -> Result<ShardState, ShardFault> {
        let control = &self.controls[order.shard.0 as usize];
        self.runtime.block_on(control.open(context::current(), epoch, order)).unwrap()
    }

    pub fn worker(&self, incarnation: u64, elements: u64) -> ShardSet {
        self.worker_at(&self.addresses(), incarnation, elements)
    }

    pub fn worker_at(&self, addresses: &[String], incarnation: u64, elements: u64) -> ShardSet {
        self.connect(addresses, session(incarnation), elements)
    }

    /// One whose gradients travel as they are, for numbers that an encoding would change.
    pub fn exact_worker(&self, incarnation: u64, elements: u64) -> ShardSet {
        let mut worker = self.worker(incarnation, elements);
        worker.compress_pushes(Codec::Plain, elements);
        worker
    }

    /// A worker of another generation of the job.
    pub fn worker_of(&self, generation: Generation, incarnation: u64, elements: u64) -> ShardSet {
        let session = SessionKey { run: run(generation), ..session(incarnation) };
        self.connect(&self.addresses(), session, elements)
    }

    fn connect(&self, addresses: &[String], session: SessionKey, elements: u64) -> ShardSet {
        let (token, options) = (self.token.clone(), client_options());
        let cancel_token = CancelToken::default();
        let shards =
            ShardSet::connect_with(&addresses.into(), token, session, elements, options, cancel_token);
        let mut shards = shards.unwrap();
        shards.compress_pushes(super::super::CODEC, elements);
        shards
    }

    /// A connection to a shard for bytes that no client of ours sends.
    pub fn channel(&self, shard: usize) -> Channel {
        let (address, limit) = (self.addresses()[shard].clone(), Duration::from_secs(5));
        connect_channel(
            &address,
            None,
            &self.token,
            limit,
            TransportChoice::Only(super::super::TRANSPORT),
            1 << 20,
        )
        .unwrap()
    }

    /// Orders a barrier on every shard.
    pub fn barrier(&self, superstep: u64, revision: u32, roster: &[(u64, u64)], pin: bool) {
        for shard in 0..self.shards.len() {
            let order = BarrierOrder { pin, ..barrier(superstep, revision, roster) };
            self.give(shard, EPOCH, order).unwrap();
        }
    }

    pub fn give(&self, shard: usize, epoch: EngineEpoch, order: BarrierOrder) -> Result<(), ShardFault> {
        let call = self.controls[shard].order_barrier(context::current(), epoch, run(FIRST), order);
        self.runtime.block_on(call).unwrap()
    }

    /// Tells every shard whose clocks count.
    pub fn clocks(&self, revision: u64, base: &[(u64, u64)]) {
        for shard in 0..self.shards.len() {
            self.clocks_on(shard, revision, base).unwrap();
        }
    }

    pub fn clocks_on(&self, shard: usize, revision: u64, base: &[(u64, u64)]) -> Result<(), ShardFault> {
        let order = ClockRoster { revision, base: named(base) };
        let call = self.controls[shard].set_clock_roster(context::current(), EPOCH, run(FIRST), order);
        self.runtime.block_on(call).unwrap()
    }

    pub fn seal(&self, shard: usize, worker: u64) -> PushProgress {
        let call = self.controls[shard].seal(context::current(), EPOCH, run(FIRST), Incarnation(worker));
        self.runtime.block_on(call).unwrap().unwrap()
    }

    pub fn attach(&self, shard: usize, epoch: EngineEpoch) -> Result<Option<ShardState>, ShardFault> {
        self.attach_run(shard, epoch, run(FIRST))
    }

    pub fn attach_run(
        &self,
        shard: usize,
        epoch: EngineEpoch,
        run: RunId,
    ) -> Result<Option<ShardState>, ShardFault> {
        self.runtime.block_on(self.controls[shard].attach(context::current(), epoch, run)).unwrap()
    }

    pub fn state(&self, shard: usize) -> ShardState {
        self.attach(shard, EPOCH).unwrap().unwrap()
    }

    pub fn closed(&self, shard: usize, seen: u64, wait_ms: u64) -> Result<Vec<ClosedBarrier>, ShardFault> {
        let call = self.controls[shard].await_closed(context::current(), EPOCH, run(FIRST), seen, wait_ms);
        self.runtime.block_on(call).unwrap()
    }

    pub fn snapshot(&self, shard: usize, version: u64, name: &str) -> Result<SnapshotFile, ShardFault> {
        let call =
            self.controls[shard].snapshot(context::current(), EPOCH, run(FIRST), Some(version), name.into());
        self.runtime.block_on(call).unwrap()
    }

    pub fn pin_checkpoint(&self, shard: usize, number: u64) -> Result<(), ShardFault> {
        let call = self.controls[shard].pin_checkpoint(context::current(), EPOCH, run(FIRST), number);
        self.runtime.block_on(call).unwrap()
    }

    pub fn write_checkpoint(&self, shard: usize, number: u64) -> Result<u64, ShardFault> {
        let call = self.controls[shard].write_checkpoint(context::current(), EPOCH, run(FIRST), number);
        self.runtime.block_on(call).unwrap()
    }

    /// What a shard kept of a checkpoint, fetched as anybody fetches it.
    pub fn shared_checkpoint(&self, shard: usize, number: u64) -> Vec<u8> {
        let call = self.controls[shard].share_checkpoint(context::current(), run(FIRST), number);
        let digest = self.runtime.block_on(call).unwrap().unwrap();
        self.blobs().get(&self.addresses(), digest).unwrap()
    }

    pub fn retain_checkpoints(&self, shard: usize, retention: Retention) -> Result<(), ShardFault> {
        let call = self.controls[shard].retain_checkpoints(context::current(), EPOCH, run(FIRST), retention);
        self.runtime.block_on(call).unwrap()
    }

    pub fn close(&self) {
        self.close_under(EPOCH);
    }

    pub fn close_under(&self, epoch: EngineEpoch) {
        for control in &self.controls {
            self.runtime.block_on(control.close(context::current(), epoch, run(FIRST))).unwrap().unwrap();
        }
    }

    pub fn held(&self, shard: usize, epoch: EngineEpoch) -> Vec<HeldJob> {
        self.runtime.block_on(self.controls[shard].list_jobs(context::current(), epoch)).unwrap().unwrap()
    }

    pub fn set_aside(&self) {
        for control in &self.controls {
            let call = control.set_aside(context::current(), EPOCH, run(FIRST));
            self.runtime.block_on(call).unwrap().unwrap();
        }
    }

    pub fn collect(
        &self,
        shard: usize,
        keep: &[&ContentDigest],
        older_than_s: u64,
    ) -> Result<Collected, ShardFault> {
        self.collect_in(DigestRange::default(), shard, keep, older_than_s)
    }

    pub fn collect_in(
        &self,
        range: DigestRange,
        shard: usize,
        keep: &[&ContentDigest],
        older_than_s: u64,
    ) -> Result<Collected, ShardFault> {
        let keep = keep.iter().copied().copied().collect();
        let call = self.controls[shard].collect(context::current(), EPOCH, range, keep, older_than_s);
        self.runtime.block_on(call).unwrap()
    }

    /// What checkpoints are forgotten where no job is known.
    pub fn collect_checkpoints(&self, shard: usize, gc: FolderGc) -> Result<Forgotten, ShardFault> {
        let call = self.controls[shard].collect_folders(
            context::current(),
            EPOCH,
            JobFolders::Checkpoints,
            KnownJobs::default(),
            0,
            gc,
        );
        self.runtime.block_on(call).unwrap()
    }

    pub fn release(
        &self,
        epoch: EngineEpoch,
        shard: usize,
        digests: &[&ContentDigest],
    ) -> Result<(), ShardFault> {
        let digests = digests.iter().copied().copied().collect();
        self.runtime.block_on(self.controls[shard].release(context::current(), epoch, digests)).unwrap()
    }

    pub fn has_blobs(&self, shard: usize, digests: &[&ContentDigest]) -> Vec<bool> {
        let digests = digests.iter().copied().copied().collect();
        self.runtime.block_on(self.controls[shard].has_blobs(context::current(), digests)).unwrap()
    }
}

/// What a shard of a rig is told.
pub fn options(token: &Token, dir: &Path, listen: SocketAddr, index: u32, count: u32) -> Options {
    Options {
        listen,
        token: token.clone(),
        state_dir: dir.join(index.to_string()),
        index,
        count,
        engine: None,
        advertise: None,
        replicas: 1,
    }
}

/// A barrier of the plain kind: one step of size one.
pub fn barrier(superstep: u64, revision: u32, roster: &[(u64, u64)]) -> BarrierOrder {
    BarrierOrder {
        superstep: Superstep(superstep),
        revision,
        roster: named(roster),
        rule: RoundRule::Optimizer,
        learning_rate: 1.0,
        pin: false,
    }
}

fn named(numbers: &[(u64, u64)]) -> BTreeMap<Incarnation, u64> {
    numbers.iter().map(|&(worker, n)| (Incarnation(worker), n)).collect()
}

fn control(runtime: &Runtime, address: SocketAddr, token: &Token) -> ShardClient {
    runtime.block_on(async {
        let address = address.to_string();
        let transport = connect::<ShardRequest, ShardResponse>(&address, Role::Control, token).await.unwrap();
        ShardClient::new(client::Config::default(), transport).spawn()
    })
}

/// Two tensors, so that shard cuts and tensor cuts differ.
pub fn layout(elements: u64) -> Layout {
    let first = elements / 3;
    Layout(vec![
        Parameter::trained("first", vec![first]),
        Parameter::trained("second.weight", vec![1, elements - first]),
    ])
}

/// The parameters as a fresh onlooker sees them.
pub fn look(rig: &Rig, elements: u64) -> Vec<f32> {
    let mut values = vec![f32::NAN; elements as usize];
    rig.worker(u64::MAX - 1, elements)
        .pull(syncline_ps::shard::ReadCondition::version(0), &mut values)
        .unwrap();
    values
}
