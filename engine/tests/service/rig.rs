//! An engine with a real Redis, and whoever calls it.

use std::{net::Ipv4Addr, time::Duration};

use syncline_engine::service::{EngineHandle, EngineOptions, Limits};
use syncline_kit::{RedisOptions, RedisServer};
use syncline_rpc::{
    ClientServiceClient, ClientServiceRequest, ClientServiceResponse, Collected, EngineFault, ShardFault,
    ShardHello, ShardRegistryClient, ShardRegistryRequest, ShardRegistryResponse, ShardRequest,
    ShardResponse, Token, WorkerHello, WorkerServiceClient, WorkerServiceRequest, WorkerServiceResponse,
    accept, answer_calls, channel, connect, hello::Role, within,
};
use syncline_scheduler::ids::{ContentDigest, ShardIndex};
use tarpc::{
    client::Config,
    server::{self, Channel},
};
use tokio::{net::TcpListener, time::timeout};

/// Longer than anything takes that a test waits for.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);

pub struct Rig {
    /// `None` only while it crashes.
    engine: Option<EngineHandle>,
    pub token: Token,
    pub redis: RedisServer,
    shards: u32,
    _dir: tempfile::TempDir,
}

async fn start_engine(redis: &RedisServer, token: &Token, shards: u32) -> EngineHandle {
    let mut engine = start_inactive_engine(redis, token, shards).await;
    timeout(TEST_TIMEOUT, engine.active()).await.unwrap();
    engine
}

async fn start_inactive_engine(redis: &RedisServer, token: &Token, shards: u32) -> EngineHandle {
    syncline_engine::service::start(EngineOptions {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        token: token.clone(),
        redis: redis.url().into(),
        instance: "the-only-one".into(),
        shards,
        limits: Limits { worker_silence: TEST_TIMEOUT, ..Limits::default() },
    })
    .await
    .unwrap()
}

impl Rig {
    pub async fn start(shards: u32) -> Self {
        let (dir, token) = (tempfile::tempdir().unwrap(), Token::generate());
        let program = syncline_kit::redis_server(&|line| eprintln!("{line}")).unwrap();
        let redis = RedisServer::start(&program.path, RedisOptions::new(dir.path())).unwrap();
        let engine = Some(start_engine(&redis, &token, shards).await);
        Self { engine, token, redis, shards, _dir: dir }
    }

    /// Ends the engine as a crash would, and starts it again.
    pub async fn crash(&mut self) {
        drop(self.engine.take());
        self.engine = Some(start_engine(&self.redis, &self.token, self.shards).await);
    }

    /// The same, with another number of shards.
    pub async fn crash_and_want(&mut self, shards: u32) {
        self.shards = shards;
        self.crash().await;
    }

    /// The same, for an engine that cannot lead.
    pub async fn crash_for_long(&mut self) {
        drop(self.engine.take());
        self.engine = Some(start_inactive_engine(&self.redis, &self.token, self.shards).await);
    }

    /// Waits until the engine has ended with a bug, and gives its panic.
    pub async fn panicked(&mut self) -> String {
        timeout(TEST_TIMEOUT, self.engine.as_mut().unwrap().panicked()).await.unwrap()
    }

    pub fn address(&self) -> String {
        self.engine.as_ref().unwrap().address().to_string()
    }

    pub async fn client(&self) -> ClientServiceClient {
        let open = connect::<ClientServiceRequest, ClientServiceResponse>(
            &self.address(),
            Role::Client,
            &self.token,
        )
        .await;
        ClientServiceClient::new(Config::default(), open.unwrap()).spawn()
    }

    pub async fn worker(&self) -> WorkerServiceClient {
        let open = connect::<WorkerServiceRequest, WorkerServiceResponse>(
            &self.address(),
            Role::Worker,
            &self.token,
        )
        .await;
        WorkerServiceClient::new(Config::default(), open.unwrap()).spawn()
    }

    pub async fn announce(&self, hello: ShardHello) -> Result<(), EngineFault> {
        self.registry().await.announce(within(TEST_TIMEOUT), hello).await.unwrap().map(drop)
    }

    pub async fn registry(&self) -> ShardRegistryClient {
        let open =
            connect::<ShardRegistryRequest, ShardRegistryResponse>(&self.address(), Role::Shard, &self.token)
                .await;
        ShardRegistryClient::new(Config::default(), open.unwrap()).spawn()
    }

    /// A shard that keeps every blob and holds no job.
    pub async fn start_shard(&self) -> ShardHello {
        self.start_shard_without(None).await
    }

    /// The same, without this blob.
    pub async fn start_shard_without(&self, missing: Option<ContentDigest>) -> ShardHello {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let respond = move |_, request| async move { Ok(answer(request, missing)) };
        let serve = move |_, stream| answer_calls(channel(stream).execute(server::serve(respond)));
        tokio::spawn(accept(listener, self.token.clone(), &[Role::Control], serve));
        ShardHello::alone(ShardIndex(0), self.shards, address, 1)
    }
}

fn answer(request: ShardRequest, missing: Option<ContentDigest>) -> ShardResponse {
    match request {
        ShardRequest::HasBlobs { digests } => {
            ShardResponse::HasBlobs(digests.iter().map(|digest| Some(*digest) != missing).collect())
        }
        ShardRequest::ListJobs { .. } => ShardResponse::ListJobs(Ok(Vec::new())),
        ShardRequest::SetAddresses { .. } => ShardResponse::SetAddresses(Ok(())),
        ShardRequest::Close { .. } => ShardResponse::Close(Ok(())),
        // The number of blobs that it is to keep, so that a test sees it.
        ShardRequest::Collect { keep, older_than_s, .. } => {
            ShardResponse::Collect(Ok(Collected { blobs: keep.len() as u64, bytes: older_than_s }))
        }
        _ => ShardResponse::Attach(Err(ShardFault::Invalid { what: "not asked in these tests".into() })),
    }
}

pub fn hello() -> WorkerHello {
    WorkerHello {
        name: "worker-0".into(),
        host: "here".into(),
        pid: 7,
        process: 0,
        training_slot: 1,
        device: "cpu".into(),
        max_batch: None,
        trains: true,
        capacity: Default::default(),
    }
}

/// Repeats a call until its answer is good.
pub async fn until<T>(mut call: impl AsyncFnMut() -> Option<T>) -> T {
    let repeated = async {
        loop {
            if let Some(value) = call().await {
                return value;
            }
        }
    };
    timeout(TEST_TIMEOUT, repeated).await.unwrap()
}
