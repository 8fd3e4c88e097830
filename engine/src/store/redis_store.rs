//! The handle, bounded calls, and commits.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use redis::{
    Arg, AsyncCommands, Cmd, ErrorKind, FromRedisValue, RedisError, Script, ServerErrorKind,
    aio::ConnectionManager,
};
use syncline_scheduler::{core::Commit, ids::JobId};
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use super::{
    address::RedisAddress,
    batch::{Fence, MemoryLimit, commit_call},
    connection::SharedConnection,
    error::{StoreError, is_locked_out, is_of_connecting, is_read_only},
    keys::JobKeys,
    redis_info::info_number,
    redis_memory::RedisMemory,
    redis_setup::{RedisRisk, ServerKind},
};

/// No single call may take longer: the connection manager's own limits do not bound a call while it
/// reconnects.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// A call meets a lost connection, then a server with another password, and then it is done.
const ATTEMPTS: usize = 3;
/// Between two looks for the password that a server has since it was started.
const PASSWORD_PAUSE: Duration = Duration::from_millis(50);
/// What is large may take longer by so much: 5 MB/s, which is less than half of what a link of 100 Mbit/s
/// carries.
const SLOWEST_BYTES_PER_US: u64 = 5;

/// The outcome of a commit that was not refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Committed {
    /// It was applied by this call.
    Applied,
    /// It had been applied when it was sent the first time.
    AlreadyApplied,
    /// Nothing was written: the store knows only commits up to `seq`, fewer than this engine has made.
    StoreBehind {
        /// Number of the last commit that the store knows.
        seq: u64,
    },
}

/// A cheap handle; clones share one multiplexed connection.
#[derive(Clone)]
pub struct RedisStore {
    connection: Arc<SharedConnection>,
    /// The highest number of a worker that this process knows of.
    pub(super) highest_incarnation: Arc<AtomicU64>,
    /// Every call of a worker clones the store; a script holds its text.
    pub(super) scripts: Arc<Scripts>,
    /// Of commits.
    limit: MemoryLimit,
}

pub(super) struct Scripts {
    commit: Script,
    pub(super) lead: Script,
    pub(super) claim: Script,
    pub(super) list: Script,
    pub(super) crash: Script,
    pub(super) erase: Script,
    pub(super) incarnations: Script,
}

/// How long a call may take: all of a large graph is written as one, over whatever lies between.
fn time_for(call: &Cmd) -> Duration {
    let bytes: usize = call
        .args_iter()
        .map(|arg| match arg {
            Arg::Simple(bytes) => bytes.len(),
            _ => 0,
        })
        .sum();
    CALL_TIMEOUT + transfer_time(bytes as u64)
}

/// How much longer what has so many bytes may take.
pub(super) fn transfer_time(bytes: u64) -> Duration {
    Duration::from_micros(bytes / SLOWEST_BYTES_PER_US)
}

impl RedisStore {
    /// Connects to an address, for example `redis://127.0.0.1:6379/`. Fails at once if nothing answers there,
    /// or the server lets nobody in without a password, or not with this one. One in a file may be about
    /// to be replaced.
    pub async fn connect(address: impl Into<RedisAddress>) -> Result<Self, StoreError> {
        let address = address.into();
        let since = Instant::now();
        loop {
            match Self::connect_once(&address).await {
                Err(StoreError::Locked { .. })
                    if address.password_file().is_some() && since.elapsed() < CALL_TIMEOUT =>
                {
                    sleep(PASSWORD_PAUSE).await;
                }
                connected => return connected,
            }
        }
    }

    async fn connect_once(address: &RedisAddress) -> Result<Self, StoreError> {
        let connection = timeout(CALL_TIMEOUT, SharedConnection::open(address.clone(), address.client()?))
            .await
            .map_err(|_| StoreError::Unavailable {
                op: "connect",
                cause: format!("{address} did not answer"),
            })?
            .map_err(|error| StoreError::of_connecting(address, &error))?;
        if let Some(refusal) = refusal_without_password(connection.get().0).await {
            return Err(StoreError::of_connecting(address, &refusal));
        }
        check_kind(connection.get().0, address).await?;
        let scripts = Scripts {
            commit: Script::new(include_str!("commit.lua")),
            lead: Script::new(include_str!("lead.lua")),
            claim: Script::new(include_str!("claim.lua")),
            list: Script::new(include_str!("list.lua")),
            crash: Script::new(include_str!("crash.lua")),
            erase: Script::new(include_str!("erase.lua")),
            incarnations: Script::new(include_str!("incarnations.lua")),
        };
        Ok(Self {
            connection: Arc::new(connection),
            highest_incarnation: Arc::default(),
            scripts: Arc::new(scripts),
            limit: MemoryLimit::Within,
        })
    }

    pub(super) fn address(&self) -> RedisAddress {
        self.connection.address().clone()
    }

    pub(super) fn connection(&self) -> ConnectionManager {
        self.connection.get().0
    }

    /// Bounds a call in time; its first failure after a lost connection is repeated once, and where no answer
    /// comes, those that follow go over another connection.
    pub(super) async fn bounded<T, F>(&self, op: &'static str, call: impl Fn() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = redis::RedisResult<T>>,
    {
        self.bounded_by(CALL_TIMEOUT, op, call).await
    }

    pub(super) async fn bounded_by<T, F>(
        &self,
        limit: Duration,
        op: &'static str,
        call: impl Fn() -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = redis::RedisResult<T>>,
    {
        let address = self.connection.address();
        let cause = || format!("{address}: no answer within {limit:?}");
        let mut last = None;
        let mut is_repeated = false;
        for _ in 0..ATTEMPTS {
            let (_, number) = self.connection.get();
            match timeout(limit, call()).await {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(e)) => {
                    // One that was refused once would be refused forever, whatever the password has become.
                    let has_other_password = is_locked_out(&e) && self.connection.replace_refused(number);
                    let error = StoreError::of(op, address, &e);
                    let is_passing = error.is_passing();
                    last = Some(error);
                    if is_read_only(&e) && !is_repeated && self.connection.replace(number) {
                        // The name may belong to another server by now, which writes. This may go on for
                        // hours.
                        debug!(number, "redis takes no writes; connecting anew");
                    }
                    if is_of_connecting(&e) && self.connection.replace(number) {
                        debug!(number, "redis lets no connection begin; connecting anew");
                    }
                    if !has_other_password && (is_repeated || !is_passing) {
                        break;
                    }
                    is_repeated |= !has_other_password;
                }
                Err(_) => {
                    self.connection.replace_silent(number);
                    break;
                }
            }
        }
        Err(last.unwrap_or_else(|| StoreError::Unavailable { op, cause: cause() }))
    }

    /// The same store, for commits that are written whether Redis is at its memory limit or not.
    pub fn committing(&self, limit: MemoryLimit) -> Self {
        Self { limit, ..self.clone() }
    }

    /// Commits the changes of one job. May be sent again with the same `seq` while the outcome is unknown.
    pub async fn commit(&self, job: &JobId, fence: Fence, commit: &Commit) -> Result<Committed, StoreError> {
        let hash = self.scripts.commit.get_hash();
        let call = commit_call(hash, &JobKeys::new(job), fence, self.limit, commit);
        let answer: Vec<String> = self
            .bounded_by(time_for(&call), "commit", || {
                let (call, mut connection) = (&call, self.connection());
                async move {
                    match call.query_async(&mut connection).await {
                        Err(e) if e.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                            self.scripts.commit.load_async(&mut connection).await?;
                            call.query_async(&mut connection).await
                        }
                        answer => answer,
                    }
                }
            })
            .await?;
        committed(&answer)
    }

    /// All fields of one of our bounded hashes, for people: bytes that are no text are replaced.
    pub async fn hash(&self, op: &'static str, key: &str) -> Result<BTreeMap<String, String>, StoreError> {
        let fields = self
            .bounded(op, || {
                let mut c = self.connection();
                async move { c.hgetall(key).await }
            })
            .await?;
        Ok(as_text(fields))
    }

    /// All fields of several of our bounded hashes in one round trip, in their order. Fails if one of them is
    /// no hash.
    pub async fn hashes(
        &self,
        op: &'static str,
        keys: &[String],
    ) -> Result<Vec<BTreeMap<String, String>>, StoreError> {
        let mut pipe = redis::pipe();
        keys.iter().for_each(|key| {
            pipe.hgetall(key);
        });
        let hashes: Vec<Fields> = self
            .bounded(op, || {
                let (pipe, mut connection) = (&pipe, self.connection());
                async move { pipe.query_async(&mut connection).await }
            })
            .await?;
        Ok(hashes.into_iter().map(as_text).collect())
    }

    /// How many keys the server has evicted since it was started, because its memory was full.
    pub async fn evicted_keys(&self) -> Result<u64, StoreError> {
        let stats: String = self.query("info", &["INFO", "stats"]).await?;
        Ok(info_number(&stats, "evicted_keys").unwrap_or(0))
    }

    /// How full the server's memory is; `None` where it does not tell.
    pub async fn memory(&self) -> Result<Option<RedisMemory>, StoreError> {
        let info: String = self.query("info", &["INFO", "memory"]).await?;
        Ok(RedisMemory::of_info(&info))
    }

    /// How the server is set up so that it may lose jobs, as far as it tells.
    pub async fn risks(&self) -> Vec<RedisRisk> {
        let Ok(info) = self.query::<String>("info", &["INFO"]).await else { return Vec::new() };
        let saves = self.query::<Vec<String>>("read setting", &["CONFIG", "GET", "save"]).await;
        RedisRisk::of_info(&info, saves.ok().as_deref().and_then(|pair| pair.get(1)).map(String::as_str))
    }

    /// Any command, for `doctor`.
    pub async fn query<T: FromRedisValue>(&self, op: &'static str, words: &[&str]) -> Result<T, StoreError> {
        self.bounded(op, || {
            let mut connection = self.connection();
            async move {
                let mut command = redis::cmd(words[0]);
                words[1..].iter().for_each(|w| {
                    command.arg(*w);
                });
                command.query_async(&mut connection).await
            }
        })
        .await
    }
}

/// What an answer of the commit script means. A number that cannot be read is never taken for 0: the whole
/// job would be written again for it.
fn committed(answer: &[String]) -> Result<Committed, StoreError> {
    let unexpected = || StoreError::Refused { op: "commit", cause: format!("unexpected answer {answer:?}") };
    let number = |text: &str| text.parse::<u64>().map_err(|_| unexpected());
    match answer.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["ok"] => Ok(Committed::Applied),
        ["again"] => Ok(Committed::AlreadyApplied),
        ["lost", seq] => Ok(Committed::StoreBehind { seq: number(seq)? }),
        ["fenced", epoch, seq] => Err(StoreError::Fenced { epoch: number(epoch)?, seq: number(seq)? }),
        _ => Err(unexpected()),
    }
}

/// A hash as Redis gives it.
type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn as_text(fields: Fields) -> BTreeMap<String, String> {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    fields.into_iter().map(|(field, value)| (text(field), text(value))).collect()
}

/// What a server says that wants a password and was given none. Whatever else fails here is told by the first
/// call.
async fn refusal_without_password(mut connection: ConnectionManager) -> Option<RedisError> {
    let asked = timeout(CALL_TIMEOUT, connection.ping::<()>()).await.ok()?;
    asked.err().filter(is_locked_out)
}

/// Refuses a server on which no engine could ever lead. One that does not tell what it is, is tried.
async fn check_kind(mut connection: ConnectionManager, address: &RedisAddress) -> Result<(), StoreError> {
    let info = redis::cmd("INFO");
    let Ok(Ok(info)) = timeout(CALL_TIMEOUT, info.query_async::<String>(&mut connection)).await else {
        return Ok(());
    };
    let url = address.to_string();
    match ServerKind::of_info(&info) {
        ServerKind::Single => Ok(()),
        ServerKind::ClusterNode => Err(StoreError::Cluster { url }),
        ServerKind::Sentinel => Err(StoreError::Sentinel { url }),
        ServerKind::Replica { master } => Err(StoreError::Replica { url, master }),
    }
}

#[cfg(test)]
mod tests {
    use super::{Committed, StoreError, committed, time_for};

    #[test]
    fn an_answer_of_the_commit_script_whose_numbers_cannot_be_read_is_refused() {
        let answered =
            |words: &[&str]| committed(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>());
        assert_eq!(answered(&["lost", "7"]).unwrap(), Committed::StoreBehind { seq: 7 });
        let fenced = answered(&["fenced", "3", "7"]);
        assert!(matches!(fenced, Err(StoreError::Fenced { epoch: 3, seq: 7 })), "{fenced:?}");
        let unreadable: [&[&str]; 6] = [
            &["lost"],
            &["lost", "1.5"],
            &["lost", "-1"],
            &["fenced", "1e+17", "7"],
            &["type", "key", "list"],
            &[],
        ];
        for words in unreadable {
            let refused = answered(words);
            assert!(
                matches!(refused, Err(StoreError::Refused { op: "commit", .. })),
                "{words:?}: {refused:?}"
            );
        }
    }

    #[test]
    fn what_is_large_has_more_time() {
        let mut call = redis::cmd("EVALSHA");
        call.arg("x").arg(vec![0u8; 1_000]);
        assert_eq!(time_for(&call).as_secs(), 3);
        call.arg(vec![0u8; 50_000_000]);
        assert_eq!(time_for(&call).as_secs(), 13);
    }
}
