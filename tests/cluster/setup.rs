//! What a cluster consists of and what its processes are told, before any of them is started.

use syncline_engine::store::{RedisAddress, RedisStore};
use syncline_kit::{RedisOptions, RedisServer};
use syncline_rpc::Token;

use super::{Cluster, Relay, redis_program};

/// A cluster that is to be started: one engine, and one process for each shard, unless said otherwise.
pub struct Setup {
    pub(super) shards: u32,
    workers: u32,
    worker_flags: String,
    shard_silence_ms: Option<u32>,
    engines: Engines,
    is_replicated: bool,
}

/// How many engines there are, and how the first reaches Redis.
#[derive(Clone, Copy, PartialEq)]
enum Engines {
    One,
    Two,
    TwoRelayed,
}

impl Cluster {
    pub async fn start(shards: u32, workers: u32, worker_flags: &str) -> Self {
        Self::of(shards, workers).worker_flags(worker_flags).start().await
    }

    pub fn of(shards: u32, workers: u32) -> Setup {
        Setup {
            shards,
            workers,
            worker_flags: String::new(),
            // A test that has a shard missed does not wait for as long as people do.
            shard_silence_ms: Some(4_000),
            engines: Engines::One,
            is_replicated: false,
        }
    }
}

impl Setup {
    /// Every worker gets these.
    pub fn worker_flags(self, flags: &str) -> Self {
        Self { worker_flags: flags.into(), ..self }
    }

    /// A shard is missed after so long.
    pub fn shard_silence_ms(self, silence_ms: u32) -> Self {
        Self { shard_silence_ms: Some(silence_ms), ..self }
    }

    /// A shard is missed after as long as where the engine is told nothing.
    pub fn default_shard_silence(self) -> Self {
        Self { shard_silence_ms: None, ..self }
    }

    /// A second engine stands by; shards, workers and clients are told of both.
    pub fn standby_engine(self) -> Self {
        Self { engines: Engines::Two, ..self }
    }

    /// The same; the engine that leads first can be cut from Redis.
    pub fn relayed_leader(self) -> Self {
        Self { engines: Engines::TwoRelayed, ..self }
    }

    /// Every shard has two processes, which follow each other.
    pub fn replicated(self) -> Self {
        Self { is_replicated: true, ..self }
    }

    pub async fn start(self) -> Cluster {
        let mut cluster = self.start_without_shards().await;
        if self.is_replicated {
            cluster.start_shard_pairs();
        } else {
            cluster.shards = (0..self.shards).map(|index| cluster.spawn_shard(index)).collect();
        }
        self.start_workers(&mut cluster);
        cluster
    }

    /// Redis and the engines.
    pub(super) async fn start_without_shards(&self) -> Cluster {
        let dir = tempfile::tempdir().unwrap();
        let redis_dir = dir.path().join("redis");
        let redis = tokio::task::spawn_blocking(move || {
            RedisServer::start(redis_program(), RedisOptions::new(redis_dir)).unwrap()
        })
        .await
        .unwrap();
        let token = Token::load_or_create(&dir.path().join("token")).unwrap();
        let address = RedisAddress::from(redis.address()).with_password_file(Some(redis.password_file()));
        let store = RedisStore::connect(address).await.unwrap();
        let relay = (self.engines == Engines::TwoRelayed).then(|| Relay::to(redis.port()));
        let mut cluster = Cluster {
            redis,
            engine: None,
            engine_address: "127.0.0.1:0".into(),
            standby: None,
            engines: String::new(),
            shards: Vec::new(),
            pairs: Vec::new(),
            workers: Vec::new(),
            store,
            token,
            shard_count: self.shards,
            shard_silence_ms: self.shard_silence_ms,
            relay,
            dir,
        };
        cluster.start_engine();
        cluster.engines.clone_from(&cluster.engine_address);
        if self.engines != Engines::One {
            // Of two that start at once either may come first.
            cluster.until_led_by("test").await;
            let (process, address) = cluster.spawn_engine("127.0.0.1:0", "standby");
            cluster.standby = Some(process);
            cluster.engines = format!("{},{address}", cluster.engine_address);
        }
        cluster
    }

    pub(super) fn start_workers(&self, cluster: &mut Cluster) {
        for _ in 0..self.workers {
            let worker = cluster.spawn_worker(&self.worker_flags);
            cluster.workers.push(worker);
        }
    }
}
