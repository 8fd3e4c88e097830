//! Engine, shards and workers as threads, from their start to their stop.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    panic::resume_unwind,
    path::{Path, PathBuf},
    time::Duration,
};

use syncline_engine::{
    service::{EngineHandle, EngineOptions, Limits},
    store::redacted,
};
use syncline_kit::{RedisOptions, RedisServer};
use syncline_ps::{PsError, server};
use syncline_rpc::{Token, folder};
use syncline_runtime::{Device, ExecOptions, Runtime};
use tempfile::TempDir;
use tokio::runtime::Handle;

use super::{
    LocalError, LocalOptions,
    saving::{self, StartingShards},
    worker::LocalWorker,
};
use crate::{
    blocking,
    client::{Client, Cluster, token_file},
    worker::{Throttle, WorkerOptions, threads_each},
};

/// How long the lead may take: an engine that died a moment ago holds it until its lease ends.
const LEADERSHIP_TIMEOUT: Duration = Duration::from_secs(8);

/// A running cluster. Dropping it stops everything.
///
/// ```no_run
/// # async fn example() -> Result<(), syncline_workers::local::LocalError> {
/// # use syncline_workers::local::{LocalCluster, LocalOptions};
/// let cluster = LocalCluster::start(LocalOptions::workers(4)).await?;
/// let client = cluster.client();
/// // Whatever a program does with a cluster: client.submit(&job).await?
/// cluster.stop().await?;
/// # Ok(())
/// # }
/// ```
pub struct LocalCluster {
    workers: Vec<LocalWorker>,
    shards: Vec<server::Handle>,
    engine: EngineHandle,
    redis: Option<RedisServer>,
    redis_url: String,
    token: Token,
    runtime: Runtime,
    exec: ExecOptions,
    trainings: u32,
    state_dir: PathBuf,
    /// In which it was started: a worker may be added outside of it.
    tasks: Handle,
    /// Removed last.
    _temporary: Option<TempDir>,
}

impl LocalCluster {
    /// Finds the native parts, or fetches them, and starts everything.
    ///
    /// # Errors
    /// As [`start_with`](Self::start_with).
    pub async fn start(options: LocalOptions) -> Result<Self, LocalError> {
        Self::start_with(options, |_| {}).await
    }

    /// Starts everything as [`start`](Self::start); `say` gets a line for whatever takes time.
    ///
    /// # Errors
    /// E635 for no shards; E101 to E113 if ONNX Runtime or Redis is neither found nor fetched, or Redis does
    /// not start; E320, E321 and E490 to E494 if ONNX Runtime cannot be loaded for the device; E200 to
    /// E206 for a Redis server that cannot be used; E370 for a folder that cannot; E371 if another engine
    /// leads on that server.
    pub async fn start_with(
        options: LocalOptions,
        say: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Self, LocalError> {
        let LocalOptions { workers, shards: count, redis, state_dir, device, threads, trainings } = options;
        if count == 0 {
            return Err(LocalError::NoShards);
        }
        let intra_threads = threads.unwrap_or_else(|| threads_each(workers.len()));
        let (state_dir, temporary) = make_state_dir(state_dir)?;
        let token_path = token_file(&state_dir);
        let token = Token::load_or_create(&token_path).map_err(state_error(&token_path))?;
        let (runtime, own_redis) =
            start_native_parts(device, redis.is_none().then(|| state_dir.join("redis")), say).await?;
        let redis_url = own_redis.as_ref().map(RedisServer::url).or(redis).unwrap_or_default();
        let engine = start_engine(&token, &redis_url, count).await?;
        let (engine, shards) = start_shards(&token, &state_dir, count, engine).await?;
        let mut cluster = Self {
            workers: Vec::new(),
            shards: shards.into_handles(),
            engine,
            redis: own_redis,
            redis_url,
            token,
            runtime,
            exec: ExecOptions { device, intra_threads, ..ExecOptions::default() },
            trainings,
            state_dir,
            tasks: Handle::current(),
            _temporary: temporary,
        };
        for throttle in workers {
            cluster.add_worker(throttle);
        }
        Ok(cluster)
    }

    /// Starts one more worker and returns its index in the order of start. One that fails says so in the log
    /// and runs again.
    pub fn add_worker(&mut self, throttle: Throttle) -> usize {
        let index = self.workers.len();
        let options = WorkerOptions {
            name: format!("worker-{index}"),
            exec: self.exec.clone(),
            throttle,
            trainings: self.trainings,
            ..WorkerOptions::new(self.cluster(), self.runtime.clone())
        };
        self.workers.push(LocalWorker::start(&self.tasks, options));
        index
    }

    /// Its address and secret, for workers and clients of one's own.
    pub fn cluster(&self) -> Cluster {
        Cluster { engines: self.engine.address().into(), token: self.token.clone() }
    }

    /// A client of this cluster.
    pub fn client(&self) -> Client {
        Client::new(self.engine.address(), self.token.clone()).with_models(&self.runtime)
    }

    /// The cluster's secret.
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// ONNX Runtime as the workers use it.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// How a person calls `redis-cli` to look at the graph: a command for a shell, to be followed by what is
    /// asked.
    pub fn redis_cli(&self) -> String {
        match &self.redis {
            Some(own) => own.redis_cli(),
            None => format!("redis-cli -u {}", redacted(&self.redis_url)),
        }
    }

    /// Where a program can look at the graph; it may hold a password, so show [`redis_cli`](Self::redis_cli)
    /// instead.
    pub fn redis_url(&self) -> &str {
        &self.redis_url
    }

    /// Where everything is kept.
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// Stops everything in order: workers leave, then engine, shards and Redis end. Where the state folder
    /// stays, shards keep the jobs they hold in it, and a cluster that starts on it goes on with them. A
    /// disk that takes none is tried every second, for ten minutes, which the log says. Begun, it goes on
    /// to its end, even where nobody waits for it any more.
    ///
    /// # Errors
    /// E419 for a job that could not be kept and is lost; the log names all of them.
    pub async fn stop(self) -> Result<(), LocalError> {
        // Here: the runtime that it was started on may be gone.
        let stopping = tokio::spawn(self.stop_in_order());
        stopping.await.unwrap_or_else(|ended| resume_unwind(ended.into_panic()))
    }

    async fn stop_in_order(self) -> Result<(), LocalError> {
        self.workers.iter().for_each(LocalWorker::request_stop);
        for worker in self.workers {
            worker.ended().await;
        }
        let (shards, engine, redis) = (self.shards, self.engine, self.redis);
        let stays = self._temporary.is_none();
        blocking(move || {
            // Before the shards: it would take them for lost.
            drop(engine);
            let kept = if stays {
                saving::stop_and_save(shards)
            } else {
                shards.into_iter().for_each(server::Handle::stop);
                Ok(())
            };
            drop(redis);
            Ok(kept?)
        })
        .await
    }
}

/// Any port of this machine.
const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn state_error(path: &Path) -> impl FnOnce(std::io::Error) -> LocalError {
    let path = path.to_owned();
    move |source| LocalError::State { path, source }
}

/// The state folder, made if it is missing; without one a temporary folder, which is removed with the second
/// value.
fn make_state_dir(wanted: Option<PathBuf>) -> Result<(PathBuf, Option<TempDir>), LocalError> {
    let (dir, temporary) = match wanted {
        Some(dir) => (dir, None),
        None => {
            let dir = tempfile::tempdir().map_err(state_error(&std::env::temp_dir()))?;
            (dir.path().to_owned(), Some(dir))
        }
    };
    folder::make_ours(&dir).map_err(state_error(&dir))?;
    Ok((dir, temporary))
}

/// Loads ONNX Runtime, and starts a Redis server that keeps its data in `redis_dir` if there is such a
/// folder.
async fn start_native_parts(
    device: Device,
    redis_dir: Option<PathBuf>,
    say: impl Fn(&str) + Send + Sync + 'static,
) -> Result<(Runtime, Option<RedisServer>), LocalError> {
    blocking(move || {
        let runtime = Runtime::load_for(device, &syncline_kit::for_device(device, &say)?)?;
        let start = |dir| -> Result<RedisServer, LocalError> {
            Ok(RedisServer::start(&syncline_kit::redis_server(&say)?.path, RedisOptions::new(dir))?)
        };
        Ok((runtime, redis_dir.map(start).transpose()?))
    })
    .await
}

/// Starts the engine and waits until it leads.
async fn start_engine(token: &Token, redis_url: &str, shards: u32) -> Result<EngineHandle, LocalError> {
    let mut engine = syncline_engine::service::start(EngineOptions {
        listen: LOOPBACK,
        token: token.clone(),
        redis: redis_url.into(),
        // Process ids repeat between containers, which may share a Redis server.
        instance: format!("local-{:016x}", rand::random::<u64>()),
        shards,
        limits: Limits::default(),
    })
    .await?;
    if tokio::time::timeout(LEADERSHIP_TIMEOUT, engine.active()).await.is_err() {
        return Err(LocalError::Standby { redis: redacted(redis_url) });
    }
    Ok(engine)
}

/// Starts all shards of an engine. Where one does not start, or nobody waits for them any more, they keep
/// their jobs, which they have taken off the disk.
async fn start_shards(
    token: &Token,
    state_dir: &Path,
    count: u32,
    engine: EngineHandle,
) -> Result<(EngineHandle, StartingShards), PsError> {
    let (token, state_dir) = (token.clone(), state_dir.to_owned());
    blocking(move || {
        let mut shards = StartingShards::default();
        for index in 0..count {
            let started = server::start(server::Options {
                listen: LOOPBACK,
                token: token.clone(),
                state_dir: state_dir.join(format!("shard-{index}")),
                index,
                count,
                engine: Some(engine.address().into()),
                advertise: None,
                replicas: 1,
            });
            match started {
                Ok(shard) => shards.push(shard),
                Err(error) => {
                    // Before the shards: it would take them for lost.
                    drop(engine);
                    return Err(error);
                }
            }
        }
        Ok((engine, shards))
    })
    .await
}
