//! The client and the shard of the parameter server alone, without engine, Redis and worker.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    ptr::NonNull,
    slice,
    sync::Arc,
    time::Duration,
};

use syncline_ps::{
    PsError,
    client::{BlobClient, CancelToken, ClientOptions, GradientArea, ShardSet},
    codec::Codec,
    rows::RowSelection,
    server::{self, Handle, Options},
    shard::{PushHeader, ReadCondition},
    transport::{Transport, TransportChoice},
    wire::SessionKey,
};
use syncline_rpc::{OpenJob, ShardClient, ShardRequest, ShardResponse, Token, connect, hello::Role, within};
use syncline_scheduler::{
    ids::{EngineEpoch, Generation, Incarnation, InvalidName, RunId, ShardIndex},
    spec::{Compression, Layout, Optimizer, Parameter, PullCompression},
    sync::PushMode,
};
use tempfile::TempDir;

use super::{
    slow_link::SlowLink,
    training_step::{LEARNING_RATE, RULE},
};
use crate::cli::{CliError, Failure, block_on};

const HEADER: PushHeader = PushHeader {
    learning_rate: LEARNING_RATE,
    weight: 1.0,
    scale: 1.0,
    skip: false,
    mode: PushMode::Apply,
    covers: 1,
};
const NOW: ReadCondition = ReadCondition::version(0);
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// A real shard with one open job, and a worker connected to it.
pub(super) struct TensorPath {
    shards: ShardSet,
    seq: u64,
    placed: PlacedGradient,
    link: Option<SlowLink>,
    _server: Handle,
    _dir: TempDir,
}

impl TensorPath {
    /// Parameters that begin as `values`, all of them one tensor.
    pub(super) fn start(values: &[f32], transport: TransportChoice) -> Result<Self, Failure> {
        Self::start_through(values, transport, |_| Ok(None))
    }

    /// The same; where the shard reads gradients in the memory of who pushes, as those of workers, `gradient`
    /// lies there, and [`TensorPath::push_placed`] pushes it.
    pub(super) fn start_in_place(
        values: &[f32],
        transport: TransportChoice,
        gradient: Vec<f32>,
    ) -> Result<Self, Failure> {
        let layout = Layout(vec![Parameter::trained("w", vec![values.len() as u64])]);
        let options = ClientOptions { transport, in_place: true, ..ClientOptions::default() };
        let mut path = Self::start_job(values, layout, RULE, options, |_| Ok(None))?;
        path.placed = match path.shards.gradient_area() {
            Some(area) => PlacedGradient::copy(area, &gradient),
            None => PlacedGradient::Own(gradient),
        };
        Ok(path)
    }

    /// The same over TCP through a link of this speed, with gradients that travel so.
    pub(super) fn start_over_link(
        values: &[f32],
        mbit: Option<u32>,
        compression: Compression,
        pulls: PullCompression,
    ) -> Result<Self, Failure> {
        let link = |address| SlowLink::start(address, mbit).map(Some);
        let mut path = Self::start_through(values, TransportChoice::Only(Transport::Tcp), link)?;
        match Codec::of(compression) {
            Some(codec) => path.shards.compress_pushes(codec, values.len() as u64),
            None => path.shards.compress_if_faster(values.len() as u64),
        }
        path.shards.compress_pulls(Codec::of_pulls(pulls), values.len() as u64);
        Ok(path)
    }

    /// Parameters that lie so, and that this optimizer moves.
    pub(super) fn start_with(values: &[f32], layout: &Layout, rule: Optimizer) -> Result<Self, Failure> {
        let options = ClientOptions::default();
        let mut path = Self::start_job(values, layout.clone(), rule, options, |_| Ok(None))?;
        path.shards.set_tables(layout);
        Ok(path)
    }

    fn start_through(
        values: &[f32],
        transport: TransportChoice,
        link: impl FnOnce(SocketAddr) -> io::Result<Option<SlowLink>>,
    ) -> Result<Self, Failure> {
        let layout = Layout(vec![Parameter::trained("w", vec![values.len() as u64])]);
        let options = ClientOptions { transport, ..ClientOptions::default() };
        Self::start_job(values, layout, RULE, options, link)
    }

    fn start_job(
        values: &[f32],
        layout: Layout,
        optimizer: Optimizer,
        options: ClientOptions,
        link: impl FnOnce(SocketAddr) -> io::Result<Option<SlowLink>>,
    ) -> Result<Self, Failure> {
        let token = Token::generate();
        let cannot = |source| CliError::Path { path: std::env::temp_dir(), source };
        let dir = tempfile::tempdir().map_err(cannot)?;
        let server = server::start(Options {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            token: token.clone(),
            state_dir: dir.path().into(),
            index: 0,
            count: 1,
            engine: None,
            advertise: None,
            replicas: 1,
        })?;
        let address = server.address().to_string();
        let job = "bench".parse().map_err(|error: InvalidName| bug(&error))?;
        let run = RunId { job, generation: Generation(1) };
        let initial = BlobClient::new(token.clone()).put(&address, bytemuck::cast_slice(values))?;
        let order = OpenJob {
            run: run.clone(),
            shard: ShardIndex(0),
            shards: vec![address.clone()],
            layout,
            optimizer,
            clip_norm: None,
            initial,
            resumed: None,
            checkpoint: None,
            known_through: None,
        };
        block_on(open(&address, &token, order))?;
        let session = SessionKey { run, incarnation: Incarnation(1) };
        let cannot = |source| CliError::Setting { what: format!("the slow link does not start: {source}") };
        let link = link(server.address()).map_err(cannot)?;
        let address = link.as_ref().map_or(address, |link| link.address.to_string());
        let (addresses, cancel_token) = ([address].as_slice().into(), CancelToken::default());
        let shards =
            ShardSet::connect_with(&addresses, token, session, values.len() as u64, options, cancel_token)?;
        let placed = PlacedGradient::Own(Vec::new());
        Ok(Self { shards, seq: 0, placed, link, _server: server, _dir: dir })
    }

    /// How the bytes are sent.
    pub(super) fn transport(&self) -> String {
        self.shards.transports().iter().map(ToString::to_string).collect()
    }

    /// Bytes that went through the link to the shard.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.link.as_ref().map_or(0, SlowLink::up_bytes)
    }

    pub(super) fn push(&mut self, gradients: &[&[f32]]) -> Result<(), PsError> {
        self.seq += 1;
        self.shards.push(self.seq, HEADER, gradients).map(drop)
    }

    /// Pushes the gradient that was given at the start.
    pub(super) fn push_placed(&mut self) -> Result<(), PsError> {
        self.seq += 1;
        self.shards.push(self.seq, HEADER, &[self.placed.values()]).map(drop)
    }

    pub(super) fn pull(&mut self, values: &mut [f32]) -> Result<(), PsError> {
        self.shards.pull(NOW, values).map(drop)
    }

    pub(super) fn push_rows(&mut self, rows: &RowSelection, gradient: &[f32]) -> Result<(), PsError> {
        self.seq += 1;
        self.shards.push_rows(self.seq, HEADER, rows, &[gradient], None).map(drop)
    }

    pub(super) fn pull_rows(&mut self, rows: &RowSelection, values: &mut [f32]) -> Result<(), PsError> {
        self.shards.pull_rows(NOW, rows, values).map(drop)
    }

    /// Both, with the request of the pull right behind the push, as a worker does it.
    pub(super) fn exchange(&mut self, gradients: &[&[f32]], values: &mut [f32]) -> Result<(), PsError> {
        self.seq += 1;
        self.shards.push_and_request(self.seq, HEADER, gradients, Some(NOW))?;
        self.pull(values)
    }
}

/// A gradient that is pushed again and again.
enum PlacedGradient {
    Own(Vec<f32>),
    /// Where shards read it.
    Shared(Arc<GradientArea>),
}

impl PlacedGradient {
    #[expect(unsafe_code, reason = "an area is written through a pointer")]
    fn copy(area: Arc<GradientArea>, gradient: &[f32]) -> Self {
        assert_eq!(area.elements(), gradient.len(), "a gradient has the length of the parameters");
        // SAFETY: the area has as many floats, and nothing was pushed from there yet.
        unsafe { area.base().copy_from_nonoverlapping(NonNull::from(gradient).cast(), gradient.len()) };
        Self::Shared(area)
    }

    #[expect(unsafe_code, reason = "an area is read through a pointer")]
    fn values(&self) -> &[f32] {
        match self {
            Self::Own(gradient) => gradient,
            // SAFETY: the floats are there as long as the area is, and nobody writes them any more.
            Self::Shared(area) => unsafe { slice::from_raw_parts(area.base().as_ptr(), area.elements()) },
        }
    }
}

async fn open(address: &str, token: &Token, order: OpenJob) -> Result<(), Failure> {
    let calls = connect::<ShardRequest, ShardResponse>(address, Role::Control, token).await;
    let calls = calls.map_err(|error| bug(&error))?;
    let control = ShardClient::new(tarpc::client::Config::default(), calls).spawn();
    let opened = control.open(within(CALL_TIMEOUT), EngineEpoch(1), order).await;
    opened.map_err(|error| bug(&error))?.map_err(|error| bug(&error))?;
    Ok(())
}

/// The shard is in this process: what it refuses is nobody else's fault.
fn bug(error: &dyn std::error::Error) -> Failure {
    CliError::Bug { reason: error.to_string() }.into()
}
