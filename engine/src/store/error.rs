//! Why the store refused or failed.

use std::{
    error::Error,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use redis::{ErrorKind, RedisError};
use syncline_rpc::{AOF_HINT, Cause, NoDescriptor, is_aof_failure};
use syncline_scheduler::ids::JobId;

use super::address::RedisAddress;

/// Why the store refused or failed. Codes are stable, see docs/errors.md.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The text is no URL of Redis; nothing was tried.
    #[error("[E200] `{url}` is not a Redis address")]
    Address {
        /// The text, without user name and password.
        url: String,
        /// What the client library makes of it.
        #[source]
        source: RedisError,
    },
    /// Every script may be sent again, so the same call may be repeated.
    #[error("[E201] redis does not do `{op}` for now: {cause}")]
    Unavailable {
        /// What was being done, such as `commit`.
        op: &'static str,
        /// What Redis said, or how it could not be reached.
        cause: String,
    },
    /// For now, like [`StoreError::Unavailable`]: it was started and still reads its files.
    #[error("[E201] redis does not do `{op}` for now: {cause}")]
    Loading {
        /// What was being done, such as `commit`.
        op: &'static str,
        /// What Redis said.
        cause: String,
    },
    /// For now, like [`StoreError::Unavailable`]: it failed to write its append-only file.
    #[error("[E201] redis does not do `{op}` for now: {cause}")]
    AppendOnlyFile {
        /// What was being done, such as `commit`.
        op: &'static str,
        /// What Redis said.
        cause: String,
    },
    /// For now, like [`StoreError::Unavailable`]: it is at its limit `maxmemory`.
    #[error(
        "[E640] redis is at its memory limit and does not do `{op}`; `syncline delete JOB` makes room: {cause}"
    )]
    Full {
        /// What was being done, such as `commit`.
        op: &'static str,
        /// What Redis said.
        cause: String,
    },
    /// This engine leads no more, or Redis holds an epoch that no engine has had.
    #[error("[E202] another engine owns this job: stored epoch {epoch} and seq {seq}")]
    Fenced {
        /// Epoch that is stored; 0 where only the lead itself was looked at.
        epoch: u64,
        /// Number of the last commit that is stored; 0 where it was not looked at.
        seq: u64,
    },
    /// Redis answers and does not do it: the same call would be refused again.
    #[error("[E203] redis refused `{op}`: {cause}")]
    Refused {
        /// What was being done, such as `commit`.
        op: &'static str,
        /// What Redis said, or an answer that is none of ours.
        cause: String,
    },
    /// For now: the server wants another password, or one at all.
    #[error("[E203] redis refused `{op}`: {cause}")]
    LockedOut {
        /// What was being done, such as `commit`.
        op: &'static str,
        /// What Redis said.
        cause: String,
    },
    /// What is stored is not as it was written: the same call would fail again.
    #[error("[E205] `{op}` met bytes in Redis that Syncline does not write: {cause}")]
    NotText {
        /// What was being done, such as `read job`.
        op: &'static str,
        /// What the client library makes of the bytes.
        cause: String,
    },
    /// Before anything was asked.
    #[error("[E206] the redis server at {url} does not let us in: {refusal}")]
    Locked {
        /// Address of the server, without user name and password.
        url: String,
        /// What the server said.
        refusal: String,
        /// The file from which the password was taken, if there is one.
        password_file: Option<PathBuf>,
    },
    /// A later release has written a job: this one would read it wrong, and leaves all of them to an engine
    /// of that release.
    #[error(
        "[E207] job {job} was written by a later release, in schema {schema}; this engine knows {} and leads no jobs",
        super::keys::SCHEMA
    )]
    Newer {
        /// A job that is in that format.
        job: JobId,
        /// The format, as it is stored.
        schema: String,
    },
    /// Before anything was asked: what belongs together lies under keys that a cluster keeps apart.
    #[error(
        "[E209] the redis server at {url} is a node of a Redis cluster, which keeps the keys of a commit apart"
    )]
    Cluster {
        /// Address of the server, without user name and password.
        url: String,
    },
    /// Before anything was asked: the number at the end of the address is none that it has, or gives to us.
    #[error("[E656] the redis server at {url} does not give the database of that number: {refusal}")]
    Database {
        /// Address of the server, without user name and password.
        url: String,
        /// What the server said.
        refusal: String,
    },
    /// Before anything was asked: it watches servers and holds no keys.
    #[error("[E657] the redis server at {url} is a sentinel, which watches others and keeps no jobs")]
    Sentinel {
        /// Address of the server, without user name and password.
        url: String,
    },
    /// For now, as it may be made a master; nothing was asked.
    #[error(
        "[E658] the redis server at {url} is a replica of {master}, and keeps nothing that is written to it"
    )]
    Replica {
        /// Address of the server, without user name and password.
        url: String,
        /// The server that it copies, as `HOST:PORT`.
        master: String,
    },
    /// Before anything was asked.
    #[error("[E208] cannot read the password of the redis server from {}", path.display())]
    PasswordFile {
        /// The file that was named.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// What a server refuses for a while, whatever it is asked: it loads, runs a script, has no disk, master or
/// enough replicas. A transaction is given up where one of its commands was refused.
const PASSING: [&str; 9] = [
    "LOADING",
    "BUSY",
    "TRYAGAIN",
    "MISCONF",
    "READONLY",
    "NOREPLICAS",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "EXECABORT",
];

/// How addresses begin that ask for TLS.
const TLS_SCHEMES: [&str; 2] = ["rediss://", "valkeys://"];

impl StoreError {
    /// What others are told of it.
    pub fn cause(&self) -> Cause {
        Cause::new(self.code(), self)
    }

    /// The stable code, as in the message.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Address { .. } => "E200",
            Self::Unavailable { .. } | Self::Loading { .. } | Self::AppendOnlyFile { .. } => "E201",
            Self::Full { .. } => "E640",
            Self::Fenced { .. } => "E202",
            Self::Refused { .. } | Self::LockedOut { .. } => "E203",
            Self::NotText { .. } => "E205",
            Self::Locked { .. } => "E206",
            Self::Newer { .. } => "E207",
            Self::PasswordFile { .. } => "E208",
            Self::Cluster { .. } => "E209",
            Self::Database { .. } => "E656",
            Self::Sentinel { .. } => "E657",
            Self::Replica { .. } => "E658",
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Locked { password_file: Some(file), .. } => {
                return Some(format!(
                    "write the password of that server into {}, and nothing else",
                    file.display()
                ));
            }
            Self::Locked { .. } => {
                "write the password into the address, redis://:PASSWORD@HOST:PORT/, best as SYNCLINE_REDIS in the environment, or name a file that holds it with --redis-password-file"
            }
            Self::PasswordFile { .. } => {
                "name a file with the password of the Redis server, and nothing else in it"
            }
            Self::Cluster { .. } => {
                "name a server with `cluster-enabled no`, of one node or with replicas; of a managed service one with cluster mode off"
            }
            Self::Database { .. } => {
                "name a database that it has, as the last part of the address, redis://HOST:PORT/1: 0 to 15 unless its setting `databases` says otherwise; a node of a cluster has 0 alone, a sentinel none"
            }
            Self::Sentinel { .. } => {
                "name the server that it watches: `redis-cli -p PORT SENTINEL get-master-addr-by-name NAME` with the sentinel's port tells where that is"
            }
            Self::Replica { master, .. } => {
                return Some(format!(
                    "name the server that it copies, {master}; where that is gone, make this one the master: `redis-cli REPLICAOF NO ONE`"
                ));
            }
            Self::Full { .. } => {
                "delete jobs that are over, cancel what is not needed, or give Redis more: `redis-cli CONFIG SET maxmemory BYTES`"
            }
            Self::AppendOnlyFile { .. } => AOF_HINT,
            Self::Address { url, .. } if TLS_SCHEMES.iter().any(|scheme| url.starts_with(scheme)) => {
                "TLS is not spoken: name it as redis://HOST:PORT/ over a private network, or the near end of a tunnel, such as of stunnel or ssh"
            }
            _ => "see whether a Redis server runs there: `redis-cli -u URL ping`; --redis names another",
        };
        Some(hint.to_owned())
    }

    /// Whether the same call may succeed later.
    pub fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Unavailable { .. }
                | Self::Loading { .. }
                | Self::AppendOnlyFile { .. }
                | Self::Full { .. }
                | Self::Replica { .. }
        )
    }

    /// Whether the reason lies in what the keys hold that were asked for: everything else can still be read.
    pub fn is_of_keys(&self) -> bool {
        !matches!(
            self,
            Self::Unavailable { .. }
                | Self::Loading { .. }
                | Self::AppendOnlyFile { .. }
                | Self::Full { .. }
                | Self::LockedOut { .. }
                | Self::Locked { .. }
                | Self::Newer { .. }
                | Self::PasswordFile { .. }
                | Self::Cluster { .. }
                | Self::Database { .. }
                | Self::Sentinel { .. }
                | Self::Replica { .. }
        )
    }

    /// What answers at `address` is none of ours: for now, as another program may have the port for a while.
    pub(super) fn foreign(op: &'static str, address: &RedisAddress) -> Self {
        Self::Unavailable { op, cause: format!("{address}: what answers there is no Redis server") }
    }

    /// Why no connection to the server at `address` could be begun. Whatever may be well a moment later passes.
    pub(super) fn of_connecting(address: &RedisAddress, error: &RedisError) -> Self {
        let url = address.to_string();
        match error {
            _ if is_locked_out(error) => Self::Locked {
                url,
                refusal: error.to_string(),
                password_file: address.password_file().map(Path::to_path_buf),
            },
            _ if is_of_database(error) => Self::Database { url, refusal: error.to_string() },
            _ if is_foreign(error) => Self::foreign("connect", address),
            _ => Self::Unavailable { op: "connect", cause: format!("{url}: {}", in_words(error)) },
        }
    }

    /// What an error of the server at `address` means.
    pub(super) fn of(op: &'static str, address: &RedisAddress, error: &RedisError) -> Self {
        let cause = format!("{address}: {}", in_words(error));
        // Before Redis 7, what a script was refused is told in the text of another error.
        let told = |code: &str| error.code() == Some(code) || cause.contains(&format!("-{code} "));
        let passing = error.is_io_error()
            || error.is_timeout()
            || error.is_connection_dropped()
            || error.is_connection_refusal()
            || PASSING.into_iter().any(told);
        match error.kind() {
            _ if told("OOM") => Self::Full { op, cause },
            _ if is_foreign(error) => Self::foreign(op, address),
            _ if told("LOADING") => Self::Loading { op, cause },
            _ if told("MISCONF") && is_aof_failure(&cause) => Self::AppendOnlyFile { op, cause },
            _ if passing => Self::Unavailable { op, cause },
            _ if is_locked_out(error) => Self::LockedOut { op, cause },
            ErrorKind::Parse => Self::NotText { op, cause },
            _ => Self::Refused { op, cause },
        }
    }
}

/// What went wrong, which may have no part of the server's.
fn in_words(error: &RedisError) -> String {
    let behind = || {
        let source: &Arc<dyn Error + Send + Sync> = error.source()?.downcast_ref()?;
        NoDescriptor::behind(source.downcast_ref()?)
    };
    behind().map_or_else(|| error.to_string(), |none| none.to_string())
}

/// Whether the server wants another password, or one at all. Nothing is said of what was asked.
pub(super) fn is_locked_out(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed || matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
}

/// Whether what answered does not speak the protocol of Redis, or not as a Redis would: another program may
/// have its port for a while, or its address.
fn is_foreign(error: &RedisError) -> bool {
    let told = error.to_string();
    // Whatever a key holds, a status or a number is no answer where a text, a list or a hash was asked for.
    let is_of_another_kind = told.split_once("(value was ").is_some_and(|(_, value)| {
        ["ok)", "simple-string(", "int("].into_iter().any(|kind| value.starts_with(kind))
    });
    match error.kind() {
        // A transaction is answered by a list.
        ErrorKind::UnexpectedReturnType => true,
        ErrorKind::Parse => is_of_another_kind || told.contains("Parse error at "),
        _ => false,
    }
}

/// Whether no connection could be begun, for a reason that a lost connection which connects anew by itself
/// keeps as its answer to everything that is asked from then on.
pub(super) fn is_of_connecting(error: &RedisError) -> bool {
    is_foreign(error) || is_of_database(error)
}

/// Whether the server has no database of the number in the address.
fn is_of_database(error: &RedisError) -> bool {
    error.to_string().contains("refused to switch database")
}

/// Whether a server that has become a replica refuses to write, on its own or in a script.
pub(super) fn is_read_only(error: &RedisError) -> bool {
    error.code() == Some("READONLY") || error.to_string().contains("-READONLY ")
}

#[cfg(test)]
mod tests {
    use redis::ServerErrorKind;

    use super::*;

    fn of(op: &'static str, error: &RedisError) -> StoreError {
        StoreError::of(op, &"redis://:secret@h:6379/".into(), error)
    }

    #[test]
    fn an_engine_without_a_descriptor_says_so_and_not_that_redis_is_away() {
        // EMFILE, as Linux and macOS number it.
        let error = RedisError::from(io::Error::from_raw_os_error(24));
        for error in [of("commit", &error), StoreError::of_connecting(&"redis://h:6379/".into(), &error)] {
            assert!(error.is_passing(), "{error:?}");
            assert!(
                error.to_string().contains("[E665] no descriptor for another file or connection is left"),
                "{error}"
            );
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_no_refusal_of_redis() {
        let no_text = String::from_utf8(vec![255]).unwrap_err();
        let error = RedisError::from(redis::ParsingError::from(no_text));
        assert!(matches!(of("read", &error), StoreError::NotText { .. }), "{error}");
    }

    #[test]
    fn a_status_or_a_number_in_the_place_of_records_passes_and_is_no_damage_of_a_job() {
        let read = |told: &str| {
            let reply = redis::parse_redis_value(told.as_bytes()).unwrap();
            let error = redis::from_redis_value::<Vec<Vec<(String, u64)>>>(reply).unwrap_err();
            of("read job", &error.into())
        };
        for told in ["+OK\r\n", "+hello\r\n", ":1\r\n", "*1\r\n+OK\r\n"] {
            let error = read(told);
            assert!(error.is_passing() && !error.is_of_keys(), "{error:?}");
            assert!(error.to_string().contains("what answers there is no Redis server"), "{error}");
        }
        let error = read("*1\r\n*2\r\n$1\r\na\r\n$14\r\n(value was ok)\r\n");
        assert!(matches!(error, StoreError::NotText { .. }), "that is stored: {error}");
    }

    #[test]
    fn a_password_that_was_changed_is_no_fault_of_the_keys() {
        for told in ["NOAUTH", "WRONGPASS"] {
            let error = redis::Value::ServerError(
                redis::parse_redis_value(format!("-{told} sorry\r\n").as_bytes())
                    .ok()
                    .and_then(|value| match value {
                        redis::Value::ServerError(error) => Some(error),
                        _ => None,
                    })
                    .unwrap(),
            )
            .extract_error()
            .unwrap_err();
            let error = of("read job", &error);
            assert!(matches!(error, StoreError::LockedOut { .. }) && !error.is_of_keys(), "{error:?}");
            let text = error.to_string();
            assert!(text.starts_with("[E203] redis refused `read job`: redis://***@h:6379/: "), "{text}");
        }
    }

    #[test]
    fn what_redis_refuses_for_a_while_is_tried_again_and_is_no_damage_of_a_job() {
        for told in PASSING {
            let reply = redis::parse_redis_value(format!("-{told} sorry\r\n").as_bytes()).unwrap();
            let error = of("commit", &reply.extract_error().unwrap_err());
            assert!(error.is_passing() && !error.is_of_keys(), "{error:?}");
            assert_eq!(matches!(error, StoreError::Loading { .. }), told == "LOADING");
            let text = error.to_string();
            assert!(
                text.starts_with("[E201] redis does not do `commit` for now: "),
                "it has answered: {text}"
            );
        }
    }

    #[test]
    fn a_server_that_failed_to_write_its_append_only_file_is_known_in_a_script_as_well() {
        let told = |text: &str| {
            let reply = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
            of("commit", &reply.extract_error().unwrap_err())
        };
        let failed = "MISCONF Errors writing to the AOF file: Input/output error";
        // As a plain command, and in a script of Redis 6.2.
        for text in
            [failed.to_owned(), format!("ERR Error running script (call to f_1): @user_script:4: -{failed}")]
        {
            let error = told(&text);
            assert!(matches!(error, StoreError::AppendOnlyFile { .. }), "{error:?}");
            assert!(error.is_passing() && !error.is_of_keys() && error.code() == "E201", "{error}");
            assert!(error.hint().unwrap().contains("BGREWRITEAOF"), "{error}");
        }
        let snapshot =
            told("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to");
        assert!(matches!(snapshot, StoreError::Unavailable { .. }), "{snapshot:?}");
    }

    #[test]
    fn a_server_at_its_memory_limit_is_tried_again_and_the_next_step_is_said() {
        let reply = redis::parse_redis_value(b"-OOM command not allowed\r\n").unwrap();
        let error = of("commit", &reply.extract_error().unwrap_err());
        assert!(matches!(error, StoreError::Full { .. }) && error.is_passing() && !error.is_of_keys());
        assert!(error.to_string().contains("`syncline delete JOB` makes room"), "{error}");
    }

    #[test]
    fn what_redis_refuses_for_a_while_inside_a_script_is_tried_again() {
        let told = |text: &str| {
            let error = RedisError::from((
                ErrorKind::Server(ServerErrorKind::ResponseError),
                "told",
                text.to_owned(),
            ));
            of("commit", &error).is_passing()
        };
        // As Redis 6.2 has it.
        let script = "Error running script (call to f_1): @user_script:44: @user_script: 44: ";
        assert!(told(&format!("{script}-OOM command not allowed when used memory > 'maxmemory'.")), "E640");
        assert!(told(&format!("{script}-READONLY You can't write against a read only replica.")));
        assert!(told(&format!("{script}-NOREPLICAS Not enough good replicas to write.")));
        assert!(!told(&format!("{script}Wrong number of args calling Redis command From Lua script")));
    }
}
