//! Copying a checkpoint from the other process of a shard.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io::{self, Read},
    sync::{Mutex, atomic::AtomicBool},
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use syncline_rpc::{ShardFault, threads::lock};
use syncline_scheduler::ids::{ContentDigest, RunId};
use tracing::{info, warn};

use super::{
    Shared,
    checked_file::DIGEST_BYTES,
    checkpoints,
    mirroring::{PEER_LIMIT, ask_for_list, in_pieces},
    snapshot::SHARD_ITSELF,
};
use crate::{
    client::{Link, LinkError, unexpected_reply},
    wire::{Reply, Request, SessionKey},
};

/// Longest list that is read: some hundred thousand names.
const MAX_LIST_BYTES: u64 = 16 << 20;
/// How long a process that has begun to serve waits for the other one before a checkpoint that it lacks counts
/// as lost: longer than a machine takes to start again, or a network to be mended. Without it the job has to go
/// back to an earlier one, and fails where there is none.
pub(super) const CHECKPOINT_PATIENCE: Duration = Duration::from_secs(900);

/// A shard's part of a checkpoint that is on disk. The generation says nothing but of which job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(super) struct KeptCheckpoint {
    pub run: RunId,
    pub number: u64,
}

/// Those that a process has, with when they were written.
pub(super) type KeptCheckpoints = BTreeMap<KeptCheckpoint, SystemTime>;

/// What other threads know of those that fetch.
#[derive(Default)]
pub(super) struct Fetching {
    /// Whether there is a thread that fetches what a standby lacks.
    pub is_mirroring: AtomicBool,
    wishes: Mutex<Wishes>,
}

/// What is being fetched, by the number of who fetches it.
#[derive(Default)]
struct Wishes {
    next: u64,
    wanted: HashMap<u64, KeptCheckpoint>,
}

/// A checkpoint that somebody fetches, until it is dropped. Others may fetch the same.
pub(super) struct Wish<'a> {
    fetching: &'a Fetching,
    number: u64,
    pub kept: &'a KeptCheckpoint,
}

impl Fetching {
    /// This one is to be fetched.
    pub(super) fn want<'a>(&'a self, kept: &'a KeptCheckpoint) -> Wish<'a> {
        let mut wishes = lock(&self.wishes);
        let number = wishes.next;
        wishes.next += 1;
        wishes.wanted.insert(number, kept.clone());
        Wish { fetching: self, number, kept }
    }

    /// Whoever removes checkpoints says so: what of them is being fetched is not kept. The engine tells the
    /// process that serves first, so that nothing is asked for afterwards that is still there.
    pub(super) fn give_up(&self, is_removed: impl Fn(&KeptCheckpoint) -> bool) {
        lock(&self.wishes).wanted.retain(|_, kept| !is_removed(kept));
    }
}

impl Wish<'_> {
    /// Whether it is still to be kept.
    pub(super) fn is_wanted(&self) -> bool {
        lock(&self.fetching.wishes).wanted.contains_key(&self.number)
    }
}

impl Drop for Wish<'_> {
    fn drop(&mut self) {
        lock(&self.fetching.wishes).wanted.remove(&self.number);
    }
}

/// What the other process has on its disk.
pub(super) fn list(link: &mut Link) -> Result<KeptCheckpoints, LinkError> {
    let body = ask_for_list(link, &Request::ListCheckpoints, &Reply::CheckpointList, MAX_LIST_BYTES)?;
    Ok(postcard::from_bytes(&body).map_err(io::Error::other)?)
}

/// Copies one over a connection of its own, while `goes_on`. It is kept if it is whole, its end says what all
/// before it must be, and if nobody has removed it meanwhile. An [`ShardFault::Io`] is one of this process.
pub(super) fn copy(
    shared: &Shared,
    peer: &str,
    kept: &KeptCheckpoint,
    written_at: SystemTime,
    goes_on: impl Fn() -> bool,
) -> Result<bool, LinkError> {
    let copied = copy_wanted(shared, peer, &shared.fetching.want(kept), written_at, goes_on);
    checkpoints::remove_folder_if_empty(shared, kept);
    copied
}

fn copy_wanted(
    shared: &Shared,
    peer: &str,
    wish: &Wish<'_>,
    written_at: SystemTime,
    goes_on: impl Fn() -> bool,
) -> Result<bool, LinkError> {
    let kept = wish.kept;
    let mut link = Link::open_shard(peer, shared.here, &shared.token, PEER_LIMIT)?;
    let session = SessionKey { run: kept.run.clone(), incarnation: SHARD_ITSELF };
    link.ask(&Request::GetCheckpoint { session, number: kept.number })?;
    let bytes = match link.answer() {
        Ok((Reply::Blob { total }, bytes)) if total == bytes => bytes,
        Ok((reply, _)) => return Err(unexpected_reply(&reply)),
        Err(LinkError::Fault(ShardFault::NoCheckpoint { .. })) => return Ok(false),
        Err(LinkError::Fault(fault)) => {
            return Err(LinkError::Fault(ShardFault::Invalid { what: fault.to_string() }));
        }
        Err(error) => return Err(error),
    };
    let begun = checkpoints::begin_copy(shared, wish).map_err(LinkError::Fault)?;
    let Some(mut file) = begun else { return Ok(false) };
    in_pieces(shared, bytes.saturating_sub(DIGEST_BYTES), |piece| {
        if !goes_on() || !wish.is_wanted() {
            return Err(io::Error::from(io::ErrorKind::Interrupted).into());
        }
        link.read_body(piece)?;
        file.write(piece).map_err(LinkError::Fault)
    })?;
    let mut digest = [0; ContentDigest::BYTES];
    link.channel().read_exact(&mut digest[..bytes.min(DIGEST_BYTES) as usize])?;
    checkpoints::keep_copy(shared, wish, file, &ContentDigest::from_bytes(digest), written_at)
        .map_err(LinkError::Fault)
}

/// Reads a checkpoint, and where it is not here, or damaged, once more when the process that follows this one
/// has given it. A disk may be new while that of the other process is not.
///
/// # Errors
/// Those of `read`; [`ShardFault::Io`] where it is too early to say that nobody has it.
pub(super) fn or_from_standby<T>(
    shared: &Shared,
    run: &RunId,
    number: u64,
    read: impl Fn() -> Result<T, ShardFault>,
) -> Result<T, ShardFault> {
    match read() {
        // Also where nothing was fetched: somebody else may have fetched it meanwhile.
        Err(ShardFault::NoCheckpoint { .. }) => {
            fetch_from_standby(shared, run, number)?;
            read()
        }
        done => done,
    }
}

/// Fetches it if the process that follows has it. An error: that one may have it and cannot be asked.
fn fetch_from_standby(shared: &Shared, run: &RunId, number: u64) -> Result<(), ShardFault> {
    let Some(serves_for) = shared.role.serves_beside_another_for() else { return Ok(()) };
    let away = |cause: String| match serves_for < CHECKPOINT_PATIENCE {
        true => {
            let what = format!(
                "checkpoint {number} of job {} is not here, and the process of the shard that may have it cannot be asked",
                run.job
            );
            Err(ShardFault::Io { what, cause })
        }
        false => Ok(()),
    };
    let Some(standby) = shared.role.standby() else {
        let minutes = CHECKPOINT_PATIENCE.as_secs() / 60;
        return away(format!(
            "it has not come yet; start it on its old state directory, it is waited for until {minutes} minutes after this one began to serve"
        ));
    };
    match fetch(shared, &standby.address, run, number) {
        Ok(Fetched::Kept) => {
            info!(job = %run.job, number, from = standby.address, "a checkpoint that was not here came from the standby");
            Ok(())
        }
        Ok(Fetched::Absent { theirs })
            if both_are_older(&checkpoints::list(shared)?, &theirs, run, number) =>
        {
            let minutes = CHECKPOINT_PATIENCE.as_secs() / 60;
            let address = &standby.address;
            away(format!(
                "nor does that one, at {address}, have it, and each has older checkpoints of its own: a third process served the shard \
                 after them. Stop the one at {address}, and start the one that served last on its old state directory; it is waited for \
                 until {minutes} minutes after this one began to serve"
            ))
        }
        Ok(Fetched::Absent { .. } | Fetched::Dropped) => Ok(()),
        Err(LinkError::Fault(fault @ ShardFault::Io { .. })) => Err(fault),
        Err(LinkError::Fault(fault)) => {
            warn!(job = %run.job, number, error = %fault, "the standby cannot give a checkpoint that is not here");
            Ok(())
        }
        Err(error) => away(error.into_error(&standby.address).to_string()),
    }
}

/// What became of a checkpoint that this process lacks.
enum Fetched {
    Kept,
    /// It was removed meanwhile.
    Dropped,
    /// The standby has these.
    Absent {
        theirs: KeptCheckpoints,
    },
}

/// Whether both processes of a shard were away when checkpoint `number` of a job was written: this one has
/// none but older ones of the job, and the other one has older ones that this one cannot have given it, as it
/// does to a new disk. One that is damaged here was written here.
fn both_are_older(ours: &KeptCheckpoints, theirs: &KeptCheckpoints, run: &RunId, number: u64) -> bool {
    let numbers = |of: &KeptCheckpoints| -> BTreeSet<u64> {
        of.keys().filter(|kept| kept.run.is_of_same_job(run)).map(|kept| kept.number).collect()
    };
    let (ours, theirs) = (numbers(ours), numbers(theirs));
    let was_here = ours.contains(&number);
    !was_here
        && ours.first().is_some_and(|first| *first < number)
        && theirs.difference(&ours).any(|other| *other < number)
}

fn fetch(shared: &Shared, standby: &str, run: &RunId, number: u64) -> Result<Fetched, LinkError> {
    let listed = list(&mut Link::open_shard(standby, shared.here, &shared.token, PEER_LIMIT)?)?;
    let is_it = |kept: &KeptCheckpoint| kept.number == number && kept.run.is_of_same_job(run);
    let Some((kept, written_at)) = listed.iter().find(|(kept, _)| is_it(kept)) else {
        return Ok(Fetched::Absent { theirs: listed });
    };
    let is_kept = copy(shared, standby, kept, *written_at, || shared.role.serves())?;
    Ok(if is_kept { Fetched::Kept } else { Fetched::Dropped })
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::ids::Generation;

    use super::*;

    #[test]
    fn a_third_process_served_last_where_both_have_older_checkpoints_and_neither_this_one() {
        let run = RunId { job: "digits".parse().unwrap(), generation: Generation::first(42) };
        let kept = |numbers: &[u64]| -> KeptCheckpoints {
            let kept = |&number| (KeptCheckpoint { run: run.clone(), number }, SystemTime::UNIX_EPOCH);
            numbers.iter().map(kept).collect()
        };
        #[rustfmt::skip]
        let cases: [(&str, &[u64], &[u64], bool); 8] = [
            ("they were lost one after the other",      &[3, 4],   &[9, 10],       true),
            ("in the other order",                      &[9, 10],  &[3, 4],        true),
            ("it has fetched some of them meanwhile",   &[9, 10],  &[3, 9, 10],    true),
            ("the other one has a new disk",            &[15, 16], &[],            false),
            ("it has fetched some of them meanwhile",   &[15, 16], &[15, 16],      false),
            ("this one has a new disk",                 &[],       &[15, 16],      false),
            ("it is damaged here",                      &[16, 17], &[15, 16],      false),
            ("Redis knows an older one alone",          &[18],     &[18, 19],      false),
        ];
        for (name, ours, theirs, third) in cases {
            assert_eq!(both_are_older(&kept(ours), &kept(theirs), &run, 17), third, "{name}");
        }
        let other = RunId { job: "other".parse().unwrap(), generation: Generation::first(1) };
        assert!(!both_are_older(&kept(&[3]), &kept(&[4]), &other, 17));
    }

    #[test]
    fn a_fetch_that_was_given_up_ends_without_another_one_of_the_same_checkpoint() {
        let run = RunId { job: "digits".parse().unwrap(), generation: Generation::first(42) };
        let (fetching, kept) = (Fetching::default(), KeptCheckpoint { run, number: 3 });
        let given_up = fetching.want(&kept);
        fetching.give_up(|removed| removed.number == 3);
        let again = fetching.want(&kept);
        assert!(!given_up.is_wanted() && again.is_wanted());
        drop(given_up);
        assert!(again.is_wanted());
    }
}
