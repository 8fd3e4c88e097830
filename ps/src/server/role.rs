//! Whether this process serves its shard or follows the process that does, as the engine decides.
//!
//! | process | jobs | standby |
//! |---|---|---|
//! | alone (`replicas` 1) | serves from its start | none |
//! | primary | serves | tells every change to the standby, if there is one |
//! | standby | follows; whoever asks for a job is hung up on, and finds the primary | |
//! | not told yet, with `replicas` 2 | as a standby | |
//!
//! The role is [kept in the state directory](super::role_file). What a change of it brings with it is done in
//! [another file](super::role_change).

use std::{
    net::{TcpStream, ToSocketAddrs},
    path::Path,
    sync::Mutex,
    time::{Duration, Instant, SystemTime},
};

use syncline_rpc::{ReplicaRole, ShardHello, ShardPeer, refuse_ourselves, threads::lock};
use tokio::sync::Notify;
use tracing::warn;

use super::{
    Shared,
    role_file::{Role, RoleFile},
    saves::ASIDE_KEPT,
};
use crate::{
    PsError,
    shard::{JobShard, Term},
};

/// A standby that failed is tried again after this time, doubled with each failure in a row.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// One that fails so long after the one before it is the first in a row.
pub(super) const FORGIVEN_AFTER: Duration = Duration::from_secs(90);

/// How long the other process may take to answer when this one stops.
const REACH_LIMIT: Duration = Duration::from_secs(1);

/// What this process is told to do.
pub(super) struct RoleKeeper {
    replicas: u32,
    file: RoleFile,
    /// Held while what a change of role brings with it is done.
    pub(super) changing: Mutex<()>,
    /// Held until what the engine has answered is done and on disk.
    pub(super) following: Mutex<()>,
    pub(super) state: Mutex<State>,
    /// The engine is to hear something at once.
    pub(super) urgent: Notify,
}

pub(super) struct State {
    pub role: Option<ReplicaRole>,
    /// Since when it has served, if it does.
    pub serves_since: Option<Instant>,
    /// As it was at the start.
    before: Role,
    /// What the file says.
    kept: Option<Role>,
    /// The last try to write the file failed.
    unwritten: bool,
    /// Under this term it has every blob of the primary, as far as it could ask.
    mirrored: Option<Term>,
    /// Under this term it lacks so many checkpoints of the primary.
    lacking_checkpoints: Option<(Term, u64)>,
    /// The other process of the shard.
    pub peer: Option<ShardPeer>,
    /// Term of a standby that is lost, until the engine knows.
    pub lost: Option<Term>,
    /// When this process was told last to go on without the standby that it had.
    pub let_go_at: Option<Instant>,
    /// Standbys lost in a row, and when the last one was.
    failures: u32,
    pub failed_at: Option<Instant>,
}

impl State {
    fn standby(&self) -> Option<&ShardPeer> {
        self.peer.as_ref().filter(|_| matches!(self.role, Some(ReplicaRole::Primary { .. })))
    }
}

impl RoleKeeper {
    pub(super) fn open(state_dir: &Path, replicas: u32) -> Result<Self, PsError> {
        let file = RoleFile::in_dir(state_dir);
        let kept = file.read()?;
        let before =
            kept.unwrap_or_else(|| Role { follows: false, identity: rand::random(), served_term: 0 });
        let state = State {
            role: None,
            serves_since: None,
            before,
            kept,
            unwritten: false,
            mirrored: None,
            lacking_checkpoints: None,
            peer: None,
            lost: None,
            let_go_at: None,
            failures: 0,
            failed_at: None,
        };
        let (changing, following, urgent) = Default::default();
        Ok(Self { replicas, file, changing, following, state: Mutex::new(state), urgent })
    }

    /// Whether this process answers those who ask for jobs.
    pub(super) fn serves(&self) -> bool {
        self.replicas == 1 || matches!(lock(&self.state).role, Some(ReplicaRole::Primary { .. }))
    }

    /// For how long this process has served a shard that has two.
    pub(super) fn serves_beside_another_for(&self) -> Option<Duration> {
        lock(&self.state).serves_since.filter(|_| self.replicas > 1).map(|since| since.elapsed())
    }

    /// The term under which this process follows.
    pub(super) fn standby_term(&self) -> Option<Term> {
        match lock(&self.state).role {
            Some(ReplicaRole::Standby { term }) => Some(term),
            _ => None,
        }
    }

    /// The standby that this process has, while it serves.
    pub(super) fn standby(&self) -> Option<ShardPeer> {
        lock(&self.state).standby().cloned()
    }

    /// Whether this process was told to go on without its standby not longer ago than this.
    pub(super) fn let_go_within(&self, time: Duration) -> bool {
        lock(&self.state).let_go_at.is_some_and(|at| at.elapsed() <= time)
    }

    /// The standby of which a job may have been kept that goes on now, and which the job [waits
    /// for](JobShard::await_standby). The engine does not replace it meanwhile.
    pub(super) fn await_standby(&self, job: &JobShard) -> Option<ShardPeer> {
        let state = lock(&self.state);
        let standby = state.standby();
        standby.inspect(|standby| job.await_standby(standby.term)).cloned()
    }

    /// Where the other process of the shard is, whatever each of them does.
    pub(super) fn peer_address(&self) -> Option<String> {
        lock(&self.state).peer.as_ref().map(|peer| peer.address.clone())
    }

    /// Whether this process follows one that nobody can reach: it has ended, or a network lies between. Takes
    /// up to a second.
    pub(super) fn primary_is_gone(&self) -> bool {
        let Some(primary) = self.peer_address().filter(|_| self.standby_term().is_some()) else {
            return false;
        };
        let mut addresses = primary.to_socket_addrs().into_iter().flatten();
        let is_there = |address| refuse_ourselves(&TcpStream::connect_timeout(&address, REACH_LIMIT)?);
        !addresses.any(|address| is_there(address).is_ok())
    }

    /// Completes what the engine is told with what is so now.
    pub(super) fn complete_hello(&self, shared: &Shared, hello: &ShardHello) -> ShardHello {
        let role = lock(&self.state).role;
        // Counted without the lock: a job that is just being opened or closed is waited for.
        let (jobs, set_aside) = match role {
            Some(ReplicaRole::Standby { .. }) => (shared.followed.in_step(), 0),
            _ => {
                let open = shared.jobs.open_jobs();
                let unclaimed = open.iter().filter(|job| shared.unclaimed.is_set_aside(job.run())).count();
                let still_kept = SystemTime::now() - ASIDE_KEPT;
                (open.len() - unclaimed, unclaimed + shared.jobs.count_aside(still_kept))
            }
        };
        let state = lock(&self.state);
        ShardHello {
            replicas: self.replicas,
            role,
            identity: state.before.identity,
            followed_before: state.before.follows,
            served_term: state.before.served_term,
            mirrored: matches!(role, Some(ReplicaRole::Standby { term }) if state.mirrored == Some(term)),
            lacking_checkpoints: match (role, state.lacking_checkpoints) {
                (Some(ReplicaRole::Standby { term }), Some((of, lacking))) if of == term => lacking,
                _ => 0,
            },
            disk: shared.disk.state(),
            jobs: jobs as u64,
            set_aside: set_aside as u64,
            lost: state.lost,
            follower: match state.role {
                Some(ReplicaRole::Primary { .. }) => state.peer.as_ref().map(|peer| peer.term),
                _ => None,
            },
            ..hello.clone()
        }
    }

    /// Returns when the engine is to hear something at once.
    pub(super) async fn urgent(&self) {
        self.urgent.notified().await;
    }

    /// The standby of this term cannot be reached. Nobody is told of any change until the engine knows; false
    /// if it does, as it has said already that another one follows, or none.
    #[must_use]
    pub(super) fn report_lost(&self, term: Term) -> bool {
        let mut state = lock(&self.state);
        if state.peer.as_ref().is_none_or(|peer| peer.term != term) {
            return false;
        }
        if state.lost != Some(term) {
            state.lost = Some(term);
            let in_a_row = state.failed_at.is_some_and(|before| before.elapsed() < FORGIVEN_AFTER);
            state.failures = if in_a_row { state.failures + 1 } else { 1 };
            state.failed_at = Some(Instant::now());
            self.urgent.notify_one();
        }
        true
    }

    /// How long the next standby is to wait after those that failed.
    pub(super) fn standby_pause(&self) -> Duration {
        let state = lock(&self.state);
        let Some(failed_at) = state.failed_at else { return Duration::ZERO };
        let pause =
            FIRST_PAUSE.saturating_mul(1 << state.failures.saturating_sub(1).min(16)).min(LONGEST_PAUSE);
        pause.saturating_sub(failed_at.elapsed())
    }

    /// Whether every blob of the primary is here.
    pub(super) fn set_mirrored(&self, term: Term, mirrored: bool) {
        lock(&self.state).mirrored = Some(term).filter(|_| mirrored);
    }

    /// How many checkpoints of the primary are not here.
    pub(super) fn set_lacking_checkpoints(&self, term: Term, lacking: u64) {
        lock(&self.state).lacking_checkpoints = Some((term, lacking));
    }

    /// Notes the present role in the state directory.
    pub(super) fn keep_role(&self) {
        let state = lock(&self.state);
        let last = state.kept.unwrap_or(state.before);
        let role = match state.role {
            Some(ReplicaRole::Primary { term }) => Role { follows: false, served_term: term, ..last },
            Some(ReplicaRole::Standby { .. }) => Role { follows: true, ..last },
            None | Some(ReplicaRole::Undecided) => return,
        };
        if state.kept == Some(role) {
            return;
        }
        drop(state);
        let written = self.file.write(role);
        let mut state = lock(&self.state);
        if let Err(error) = &written
            && !state.unwritten
        {
            let path = self.file.path().display();
            warn!(%path, %error, "cannot note which role this process has; trying again with each word of the engine");
        }
        state.unwritten = written.is_err();
        if written.is_ok() {
            state.kept = Some(role);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{super::role_file::ROLE_FILE, *};

    fn role_file(dir: &tempfile::TempDir) -> String {
        fs::read_to_string(dir.path().join(ROLE_FILE)).unwrap()
    }

    fn keeper_with_role(dir: &tempfile::TempDir, replicas: u32, role: ReplicaRole) -> RoleKeeper {
        let keeper = RoleKeeper::open(dir.path(), replicas).unwrap();
        lock(&keeper.state).role = Some(role);
        keeper.keep_role();
        keeper
    }

    /// A start with two processes after it would let the other one serve, without what this one saved last.
    #[test]
    fn a_former_standby_that_serves_alone_is_known_as_primary_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(ROLE_FILE), "standby 7 0\n").unwrap();
        keeper_with_role(&dir, 1, ReplicaRole::Primary { term: 5 });
        assert_eq!(role_file(&dir), "primary 7 5\n");
    }

    #[test]
    fn a_standby_keeps_the_last_term_under_which_it_served() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(ROLE_FILE), "primary 7 5\n").unwrap();
        keeper_with_role(&dir, 2, ReplicaRole::Standby { term: 9 });
        assert_eq!(role_file(&dir), "standby 7 5\n");
    }

    #[test]
    fn a_role_that_could_not_be_written_is_written_by_a_later_try() {
        let dir = tempfile::tempdir().unwrap();
        let keeper = RoleKeeper::open(dir.path(), 1).unwrap();
        lock(&keeper.state).role = Some(ReplicaRole::Primary { term: 3 });
        // A folder in the place of the file: no rename succeeds, as on a disk that is full.
        fs::create_dir(dir.path().join(ROLE_FILE)).unwrap();
        keeper.keep_role();
        fs::remove_dir(dir.path().join(ROLE_FILE)).unwrap();
        keeper.keep_role();
        assert!(role_file(&dir).starts_with("primary "));
    }
    #[test]
    fn a_role_that_cannot_be_read_is_not_taken_for_one_that_was_never_given() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(ROLE_FILE);
        let refused = || RoleKeeper::open(dir.path(), 2).err().map(|error| error.code());
        // Where a folder stands in place of the file, reading fails as on a disk that does not answer.
        fs::create_dir(&path).unwrap();
        assert_eq!(refused(), Some("E632"));
        fs::remove_dir(&path).unwrap();
        for damaged in ["", "stan", "standby 7"] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(refused(), Some("E632"), "{damaged}");
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(refused(), None);
    }
}
