//! What callers of the parameter server see.

use std::{
    io::{self, ErrorKind},
    path::Path,
};

use syncline_rpc::{Cause, NoDescriptor, ShardFault, ShardPosition, hello::HelloError, threads::NoThread};
use syncline_scheduler::ids::{ContentDigest, JobId};

use crate::{transport::Transport, wire::WireError};

/// Why a shard could not be used. Conditions that a shard reports keep code and hint of [`ShardFault`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PsError {
    /// A shard refuses what it was asked for.
    #[error(transparent)]
    Refused {
        /// What the shard answered.
        #[from]
        fault: ShardFault,
    },
    /// No connection could be opened, or each broke, for as long as the caller tries.
    #[error("[E410] shard {address} could not be reached{}: {cause}", for_time(*after_ms))]
    Unreachable {
        /// Where the shard was last looked for.
        address: String,
        /// How long it was tried; 0 for a single try.
        after_ms: u64,
        /// What ended the last try.
        cause: Cause,
    },
    /// It greets, and what does not fit into one packet does not arrive.
    #[error(
        "[E594] shard {address} answers small messages, and {bytes} bytes do not pass there and back: {cause}"
    )]
    SmallOnly {
        /// Where that was met.
        address: String,
        /// How many bytes were tried.
        bytes: u64,
        /// What ended the try.
        cause: String,
    },
    /// Another program or release answers, or one of another token or role.
    #[error("[E411] shard {address} turned the connection away: {source}")]
    Greeting {
        /// Where that was met.
        address: String,
        /// Why the connection was not opened.
        source: HelloError,
    },
    /// A whole answer came that does not belong to what was asked: one of the two has a bug.
    #[error("[E412] shard {address} broke the protocol: {source}")]
    Protocol {
        /// Shard that answered.
        address: String,
        /// What came instead.
        source: WireError,
    },
    /// [`CancelToken::cancel`](crate::client::CancelToken::cancel) was called.
    #[error("[E413] the call was canceled here")]
    Canceled,
    /// What is to be pushed, or pulled into, is not as long as what the job has; nothing was sent.
    #[error("[E414] {what}: got {got} elements, expected {expected}")]
    Length {
        /// `gradient` or `buffer`.
        what: &'static str,
        /// Elements of what was given.
        got: u64,
        /// Elements of all parameters, or of the selected rows and what is no table.
        expected: u64,
    },
    /// No shard that was asked has the blob whole; the one that is named sent other bytes, and has removed it
    /// if it lay there so.
    #[error("[E415] blob {digest} arrived damaged from {address}")]
    Damaged {
        /// BLAKE3 that was asked for, in hex.
        digest: ContentDigest,
        /// Shard that sent them.
        address: String,
    },
    /// Something of the process's own failed: a file, a folder, a thread, the address it listens on.
    #[error("[E416] {what}: {source}")]
    Io {
        /// What could not be done, such as `cannot listen on ADDRESS`.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// This process is at its limit, or the machine at its own: what it was to reach has no part in it.
    #[error(transparent)]
    NoDescriptor(#[from] NoDescriptor),
    /// The text names no blob: no shard was asked.
    #[error("[E417] {given} is not a BLAKE3 digest of 64 hexadecimal digits")]
    Digest {
        /// The text that was given, its first 80 characters.
        given: String,
    },
    /// It is tried again.
    #[error("[E428] job {job} cannot be kept at {path} yet: {cause}")]
    NotSavedYet {
        /// Job that is to be kept.
        job: JobId,
        /// File that is to hold it.
        path: String,
        /// Why it could not be written.
        cause: String,
    },
    /// The job ends here: its next start does not have it.
    #[error("[E419] job {job} could not be kept at {path} and is lost: {cause}")]
    NotSaved {
        /// Job that is lost.
        job: JobId,
        /// File that was to hold it.
        path: String,
        /// Why it could not be written, the last time.
        cause: String,
    },
    /// Told in the log only: the start goes on without the job.
    #[error(
        "[E420] a job that was kept at the last stop cannot be read and is lost; it was set aside as {path}: {cause}"
    )]
    SaveDamaged {
        /// Where its file lies now.
        path: String,
        /// What is wrong with the file.
        cause: String,
    },
    /// Every process of a shard needs one of its own.
    #[error("[E421] the state directory {dir} is in use by another process")]
    StateDirInUse {
        /// The directory, whose lock another process holds.
        dir: String,
    },
    /// Where nobody waits any longer, the shard keeps its jobs as they are.
    #[error(
        "[E422] connections are still served {after_ms} ms after the stop, and jobs are kept once they end"
    )]
    StillServing {
        /// How long it was waited for connections to end.
        after_ms: u64,
    },
    /// Waiting cannot help: the engine will never have this shard as it was started.
    #[error("[E423] the engine at {engine} refuses this shard: {source}")]
    EngineRefused {
        /// The engine, or all of them, as they were named.
        engine: String,
        /// Why the connection was not opened.
        source: HelloError,
    },
    /// Shard and engine were started for different numbers of shards.
    #[error(
        "[E424] this was started as shard {index} of {count}, and the engine at {engine} has {expected} shards"
    )]
    WrongPosition {
        /// The engine, or all of them, as they were named.
        engine: String,
        /// Position with which this process was started, from 0.
        index: u32,
        /// Number of shards with which it was started.
        count: u32,
        /// Number of shards with which the engine was started.
        expected: u32,
    },
    /// Another process has the place of this one, and answers.
    #[error("[E425] shard {index} of the engine at {engine}, which leads, is another process, at {address}")]
    PositionTaken {
        /// The engine that leads.
        engine: String,
        /// Position with which this process was started, from 0.
        index: u32,
        /// Where that process is.
        address: String,
    },
    /// It does not answer, or does not lead: the shard goes on announcing itself.
    #[error("[E426] the engine at {engine} cannot be used yet: {cause}")]
    EngineUnavailable {
        /// The engine, or all of them, as they were named.
        engine: String,
        /// What it said, or how it could not be reached.
        cause: String,
    },
    /// Its file stays as it is.
    #[error("[E427] this was started as shard {here}, and {path} holds a job of shard {saved}")]
    SavedByOtherShard {
        /// Position with which this process was started.
        here: ShardPosition,
        /// File of the job.
        path: String,
        /// Position of the shard that kept it.
        saved: ShardPosition,
    },
    /// The shard does not start: who followed could serve as if it never had, with what it had then.
    #[error("[E632] the role that this process had cannot be read from {path}: {cause}")]
    RoleUnreadable {
        /// The file in the state directory.
        path: String,
        /// What the system said, or that it is damaged.
        cause: String,
    },
    /// It was asked for by name, so that nothing else is tried.
    #[error("[E436] shard {address} cannot be reached by {wanted}: {cause}")]
    NoTransport {
        /// Shard that was to be reached.
        address: String,
        /// The one transport that may be used.
        wanted: Transport,
        /// Why it is not to be had.
        cause: String,
    },
    /// Only on loopback does a shard use a token of its own making.
    #[error("[E418] listening on {listen} would serve other machines, which needs a token named on purpose")]
    BindWithoutToken {
        /// Where it was to listen.
        listen: std::net::SocketAddr,
    },
    /// What listens on all addresses cannot say by which one others reach it.
    #[error("[E614] shard {shard} would announce {address}, which means another machine to everybody else")]
    NoAddress {
        /// The shard that was to listen.
        shard: ShardPosition,
        /// By which others were to reach it.
        address: String,
    },
}

/// ` for 1200 ms`, or nothing where there was a single try.
fn for_time(after_ms: u64) -> String {
    if after_ms == 0 { String::new() } else { format!(" for {after_ms} ms") }
}

impl PsError {
    /// The stable code, see docs/errors.md.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused { fault } => fault.code(),
            Self::Unreachable { .. } => "E410",
            Self::SmallOnly { .. } => "E594",
            Self::Greeting { .. } => "E411",
            Self::Protocol { .. } => "E412",
            Self::Canceled => "E413",
            Self::Length { .. } => "E414",
            Self::Damaged { .. } => "E415",
            Self::Io { .. } => "E416",
            Self::NoDescriptor(source) => source.code(),
            Self::Digest { .. } => "E417",
            Self::BindWithoutToken { .. } => "E418",
            Self::NoAddress { .. } => "E614",
            Self::NotSaved { .. } => "E419",
            Self::SaveDamaged { .. } => "E420",
            Self::StateDirInUse { .. } => "E421",
            Self::StillServing { .. } => "E422",
            Self::EngineRefused { .. } => "E423",
            Self::WrongPosition { .. } => "E424",
            Self::PositionTaken { .. } => "E425",
            Self::EngineUnavailable { .. } => "E426",
            Self::SavedByOtherShard { .. } => "E427",
            Self::NotSavedYet { .. } => "E428",
            Self::NoTransport { .. } => "E436",
            Self::RoleUnreadable { .. } => "E632",
        }
    }

    /// Whether a process is away without which it is not known whether what was asked for is there.
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Refused { fault: ShardFault::SecondAway { .. } })
    }

    /// Whether the same call may go well later: a process is away, another release or program answers where
    /// it was, or its disk or memory fails for now. Who has something to lose by it waits.
    pub fn may_pass(&self) -> bool {
        self.is_away()
            || matches!(self, Self::Greeting { .. } | Self::Refused { fault: ShardFault::Io { .. } })
    }

    /// Whether what no shard gave may be there in a moment: a process that has just taken over may not know
    /// yet where it is, and a disk may give it the next time. It is asked for again for
    /// [`MISSING_PATIENCE`](crate::client::MISSING_PATIENCE).
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Refused { fault: ShardFault::MissingBlob { .. } | ShardFault::Io { .. } })
    }

    /// Whether an announcement that failed so will never be taken. An engine of another release is about to
    /// be replaced, as this shard was.
    pub(crate) fn is_permanent(&self) -> bool {
        match self {
            Self::EngineRefused { source, .. } => !matches!(source, HelloError::Version { .. }),
            Self::WrongPosition { .. } | Self::PositionTaken { .. } => true,
            _ => false,
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Refused { fault } => return fault.hint(),
            Self::NoDescriptor(_) => NoDescriptor::HINT,
            Self::Unreachable { cause, .. } if cause.code.is_some_and(|code| code == NoDescriptor::CODE) => {
                NoDescriptor::HINT
            }
            Self::Unreachable { .. } => "see whether `syncline ps` runs there and its port can be reached",
            Self::SmallOnly { .. } => {
                "packets of full size are lost on the way, as where a tunnel or VPN carries less than the MTU of the machines: \
                 `ping -M do -s 1472 HOST` shows it; set a smaller MTU on both, such as 1400"
            }
            Self::Greeting { .. } => "use the same release and the same token file everywhere",
            Self::Protocol { .. } => "use the same release everywhere; otherwise please report it",
            Self::Canceled => "nothing: it was asked for",
            Self::Length { .. } => "the model and the job's layout differ; submit the job again",
            Self::Damaged { .. } => {
                "submit again with the same files, which uploads it, and check the disk of that shard; trained weights come from the newest \
                 checkpoint: `syncline submit FILE --new --resume JOB`"
            }
            Self::Io { source, .. } if NoThread::is_behind(source) => NoThread::HINT,
            Self::Io { source, .. } if NoDescriptor::behind(source).is_some() => NoDescriptor::HINT,
            Self::Io { source, .. }
                if [ErrorKind::AddrInUse, ErrorKind::AddrNotAvailable].contains(&source.kind()) =>
            {
                "name an address of this machine that is free with --listen; port 0 takes a free one"
            }
            Self::Io { .. } => "correct what the system names, then try again",
            Self::NoAddress { .. } => {
                "name the address of this machine that the others reach: --listen IP:PORT, or --advertise HOST:PORT beside --listen"
            }
            Self::BindWithoutToken { .. } => {
                "give --token-file with the cluster's token, or listen on 127.0.0.1"
            }
            Self::NotSavedYet { .. } => {
                "make room on the disk of the state directory, or mend it; it is tried again every second; stopping once more gives the job up"
            }
            Self::NotSaved { .. } => {
                "make room on the disk of the state directory, or mend it; `syncline model export` has the job's last snapshot"
            }
            Self::SaveDamaged { .. } => "look at the disk of the state directory; submit the job again",
            Self::StateDirInUse { .. } => {
                "wait until the other process has ended: one that was told to stop has yet to write its jobs to the disk, as its log says (E428); or give this one a --state-dir of its own"
            }
            Self::StillServing { .. } => {
                "a large file on a slow disk takes its time, and the shard goes on waiting; stopping once more keeps its jobs as they are"
            }
            Self::EngineRefused { source: HelloError::Token, .. } => {
                "give --token-file with the file that the engine was started with"
            }
            Self::EngineRefused { .. } => {
                "name the engine with --engine, and use the same release everywhere"
            }
            Self::WrongPosition { .. } => "give --shard INDEX/COUNT with the count of the engine's --shards",
            Self::PositionTaken { .. } => {
                "stop the other process, give this one another index with --shard, or start all with --replicas 2 for two of each; where two are there and this one served the shard last, stop one of these and start this one again; if the engine that leads is that of another cluster, give the engine here a Redis database of its own, as in redis://HOST:6379/1"
            }
            Self::EngineUnavailable { .. } => {
                "nothing if the engine is about to start; otherwise see whether --engine names it, or all engines, and can be reached"
            }
            Self::SavedByOtherShard { here, path, saved } => return Some(folder_hint(*here, path, *saved)),
            Self::RoleUnreadable { .. } => {
                "correct what the system names; if the file is lost, remove it once the other process of the shard serves, or if there is none"
            }
            Self::NoTransport { .. } => {
                "start the worker with --transport auto, or on the shard's machine as the shard's user"
            }
            Self::Digest { .. } => "use a digest that `syncline submit` or `BlobClient::put` printed",
        };
        Some(hint.to_owned())
    }
}

/// Why nothing came of a connection.
pub(crate) fn unreached(error: &io::Error) -> Cause {
    match NoDescriptor::behind(error) {
        Some(none) => Cause::new(none.code(), &none),
        None => error.to_string().into(),
    }
}

/// What to do with the state directory of another shard.
fn folder_hint(here: ShardPosition, file: &str, saved: ShardPosition) -> String {
    // The file lies in its folder `jobs`.
    let dir = Path::new(file).ancestors().nth(2).unwrap_or(Path::new(".")).display();
    match here.count == saved.count {
        true => format!(
            "{dir} is the state directory of shard {saved}, and that of shard {here} is elsewhere, perhaps where this one was: give each shard its own back, or start this process with --shard {saved}; removing the job's file gives the job up"
        ),
        false => "start it with --shard and the engine with --shards as before; the job goes on then, and removing its file gives it up".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::{
        fault_code::FaultCode,
        ids::{EngineEpoch, Generation, Incarnation},
    };

    use super::*;

    #[test]
    fn a_shard_that_was_tried_once_was_not_away_for_any_time() {
        let error =
            |after_ms| PsError::Unreachable { address: "a:1".into(), after_ms, cause: "refused".into() };
        // The core decides by it how long the worker is left out.
        assert_eq!(FaultCode::new(error(0).code()), FaultCode::SHARD_UNREACHED);
        assert_eq!(error(0).to_string(), "[E410] shard a:1 could not be reached: refused");
        assert_eq!(error(1_200).to_string(), "[E410] shard a:1 could not be reached for 1200 ms: refused");
    }

    #[test]
    fn what_a_shard_does_not_do_for_a_while_may_pass_and_what_it_refuses_or_has_lost_does_not() {
        let (address, digest, cause) = ("a:1".to_owned(), ContentDigest::LOWEST, "refused".to_owned());
        let greeting = |source| PsError::Greeting { address: address.clone(), source };
        let what = "cannot read".to_owned();
        #[rustfmt::skip]
        let cases = [
            (PsError::Unreachable { address: address.clone(), after_ms: 0, cause: (*cause).into() }, true),
            (greeting(HelloError::Version { theirs: 1 }),                                          true),
            (greeting(HelloError::Role(3)),                                                        true),
            (ShardFault::SecondAway { digest, cause: cause.clone() }.into(),       true),
            (ShardFault::Io { what: what.clone(), cause }.into(),                                  true),
            (ShardFault::MissingBlob { digest }.into(),                            false),
            (ShardFault::Invalid { what }.into(),                                                  false),
            (PsError::Damaged { digest, address: address.clone() },                                false),
            (PsError::Canceled,                                                                    false),
        ];
        for (error, may_pass) in cases {
            assert_eq!(error.may_pass(), may_pass, "{error}");
        }
    }

    #[test]
    fn an_engine_of_another_release_is_asked_again_and_one_of_another_cluster_is_not() {
        let refused = |source| PsError::EngineRefused { engine: "a:1".into(), source };
        assert!(!refused(HelloError::Version { theirs: 1 }).is_permanent());
        assert!(refused(HelloError::Token).is_permanent());
    }

    #[test]
    fn whoever_starts_a_shard_in_the_folder_of_another_is_told_whose_it_is() {
        let (here, path) = ("0/2".parse().unwrap(), "/state/shard-0/jobs/digits.job".to_owned());
        let hint = |saved: &str| {
            let (path, saved) = (path.clone(), saved.parse().unwrap());
            PsError::SavedByOtherShard { here, path, saved }.hint().unwrap()
        };
        let swapped = hint("1/2");
        assert!(swapped.starts_with("/state/shard-0 is the state directory of shard 1/2,"), "{swapped}");
        assert!(swapped.contains("start this process with --shard 1/2"), "{swapped}");
        assert!(hint("0/3").starts_with("start it with --shard and the engine with --shards as before"));
    }

    #[test]
    fn a_process_at_its_limit_on_open_files_is_told_of_that_and_of_no_shard() {
        let none = NoDescriptor::explain(io::Error::from_raw_os_error(libc::EMFILE));
        let cause = unreached(&none);
        let errors = [
            PsError::Unreachable { address: "a:1".into(), after_ms: 0, cause },
            NoDescriptor::behind(&none).unwrap().into(),
            PsError::Io { what: "cannot open x".into(), source: io::Error::from_raw_os_error(libc::EMFILE) },
        ];
        for error in errors {
            assert!(error.hint().unwrap().contains("LimitNOFILE"), "{error}");
            assert!(!error.is_permanent(), "{error}");
        }
    }

    #[test]
    fn whoever_cannot_listen_is_told_of_another_address() {
        let hint = |kind: ErrorKind| PsError::Io { what: "x".into(), source: kind.into() }.hint().unwrap();
        assert!(hint(ErrorKind::AddrInUse).contains("--listen"));
        assert!(hint(ErrorKind::AddrNotAvailable).contains("--listen"));
        assert!(!hint(ErrorKind::PermissionDenied).contains("--listen"));
    }

    #[test]
    fn the_code_is_the_one_in_the_text() {
        let job: JobId = "digits".parse().unwrap();
        let all = [
            PsError::from(ShardFault::Closed { job: job.clone() }),
            ShardFault::Sealed { job: job.clone(), worker: Incarnation(1) }.into(),
            ShardFault::UnknownJob { job: job.clone() }.into(),
            ShardFault::Invalid { what: "x".into() }.into(),
            ShardFault::Io { what: "x".into(), cause: "y".into() }.into(),
            ShardFault::NotPinned { job: job.clone(), wanted: 1 }.into(),
            ShardFault::MissingBlob { digest: ContentDigest::LOWEST }.into(),
            ShardFault::SecondAway { digest: ContentDigest::LOWEST, cause: "y".into() }.into(),
            ShardFault::WrongGeneration { job, given: Generation(1), current: Generation(2) }.into(),
            ShardFault::Fenced { given: EngineEpoch(1), highest: EngineEpoch(2) }.into(),
            PsError::Unreachable { address: "a".into(), after_ms: 1, cause: "b".into() },
            PsError::SmallOnly { address: "a".into(), bytes: 1, cause: "b".into() },
            PsError::NoTransport { address: "a".into(), wanted: Transport::Shm, cause: "b".into() },
            PsError::Canceled,
            PsError::Length { what: "gradient", got: 1, expected: 2 },
            PsError::Digest { given: "x".into() },
        ];
        for error in all {
            assert!(error.to_string().starts_with(&format!("[{}] ", error.code())), "{error}");
            assert!(error.hint().is_some());
        }
    }
}
