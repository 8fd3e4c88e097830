//! Whether this process serves its shard or follows the process that does, as the engine decides.
//!
//! | process | jobs | backup |
//! |---|---|---|
//! | alone (`replicas` 1) | serves from its start | none |
//! | primary | serves | tells every change to the standby, if there is one |
//! | standby | follows; whoever asks for a job is hung up on, and finds the primary | |
//! | not told yet, with `replicas` 2 | as a standby | |
//!
//! The role is kept in the state directory: who followed must not serve after a start of the whole cluster because it came
//! first, nor who served before another one did alone.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use syncline_rpc::{ReplicaRole, ShardFault, ShardHello, ShardOrders, ShardPeer};
use syncline_scheduler::ids::EngineEpoch;
use tokio::sync::Notify;
use tracing::{error, info, warn};

use super::{
    Shared, blob_mirror,
    blobs::{PendingFile, UNFINISHED},
    norms, replication,
};
use crate::shard::{Term, lock};

/// File in the state directory that says which role the process had.
const ROLE_FILE: &str = "role";
const STANDBY: &str = "standby";
const PRIMARY: &str = "primary";
/// A backup that failed is tried again after this time, doubled with each failure in a row.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// One that fails so long after the one before it is the first in a row.
const FORGIVEN_AFTER: Duration = Duration::from_secs(90);

/// What this process is told to do.
pub(super) struct RoleKeeper {
    replicas: u32,
    role_file: PathBuf,
    /// Held while what a change of role brings with it is done.
    changing: Mutex<()>,
    state: Mutex<State>,
    /// The engine is to hear something at once.
    urgent: Notify,
}

struct State {
    role: Option<ReplicaRole>,
    /// As it was at the start.
    before: Role,
    /// What the file says.
    kept: Option<Role>,
    /// The last try to write the file failed.
    unwritten: bool,
    /// Under this term it has had every blob of the primary.
    mirrored: Option<Term>,
    /// The other process of the shard.
    peer: Option<ShardPeer>,
    /// Term of a backup that is lost, until the engine knows.
    lost: Option<Term>,
    /// Backups lost in a row, and when the last one was.
    failures: u32,
    failed_at: Option<Instant>,
}

/// What a process was, as its state directory says: `ROLE IDENTITY TERM`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Role {
    follows: bool,
    /// Random number of the state directory.
    identity: u64,
    /// The last term under which it served.
    served_term: Term,
}

impl Role {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let follows = match words.next()? {
            STANDBY => true,
            PRIMARY => false,
            _ => return None,
        };
        Some(Self {
            follows,
            identity: words.next()?.parse().ok()?,
            served_term: words.next()?.parse().ok()?,
        })
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { follows, identity, served_term } = self;
        writeln!(f, "{} {identity} {served_term}", if *follows { STANDBY } else { PRIMARY })
    }
}

impl RoleKeeper {
    pub(super) fn open(state_dir: &Path, replicas: u32) -> Self {
        let role_file = state_dir.join(ROLE_FILE);
        let kept = fs::read_to_string(&role_file).ok().and_then(|text| Role::parse(&text));
        let before =
            kept.unwrap_or_else(|| Role { follows: false, identity: rand::random(), served_term: 0 });
        let state = State {
            role: None,
            before,
            kept,
            unwritten: false,
            mirrored: None,
            peer: None,
            lost: None,
            failures: 0,
            failed_at: None,
        };
        let (changing, urgent) = Default::default();
        Self { replicas, role_file, changing, state: Mutex::new(state), urgent }
    }

    /// Whether this process answers those who ask for jobs.
    pub(super) fn serves(&self) -> bool {
        self.replicas == 1 || matches!(lock(&self.state).role, Some(ReplicaRole::Primary { .. }))
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
        let state = lock(&self.state);
        state.peer.clone().filter(|_| matches!(state.role, Some(ReplicaRole::Primary { .. })))
    }

    /// Where the other process of the shard is, whatever each of them does.
    pub(super) fn peer_address(&self) -> Option<String> {
        lock(&self.state).peer.as_ref().map(|peer| peer.address.clone())
    }

    /// Completes what the engine is told with what is so now.
    pub(super) fn complete_hello(&self, shared: &Shared, hello: &ShardHello) -> ShardHello {
        let role = lock(&self.state).role;
        // Counted without the lock: a job that is just being opened or closed is waited for.
        let jobs = match role {
            Some(ReplicaRole::Standby { .. }) => shared.replicas.in_step(),
            _ => shared.jobs.open_jobs().len(),
        };
        let state = lock(&self.state);
        ShardHello {
            replicas: self.replicas,
            role,
            identity: state.before.identity,
            followed_before: state.before.follows,
            served_term: state.before.served_term,
            mirrored: matches!(role, Some(ReplicaRole::Standby { term }) if state.mirrored == Some(term)),
            jobs: jobs as u64,
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

    /// The backup of this term cannot be reached. Nobody is told of any change until the engine knows; false if it does, as
    /// it has said already that another one follows, or none.
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

    /// How long the next backup is to wait after those that failed.
    pub(super) fn backup_pause(&self) -> Duration {
        let state = lock(&self.state);
        let Some(failed_at) = state.failed_at else { return Duration::ZERO };
        let pause =
            FIRST_PAUSE.saturating_mul(1 << state.failures.saturating_sub(1).min(16)).min(LONGEST_PAUSE);
        pause.saturating_sub(failed_at.elapsed())
    }

    /// Every blob of the primary is here.
    pub(super) fn set_mirrored(&self, term: Term) {
        lock(&self.state).mirrored = Some(term);
    }

    /// Notes the present role in the state directory.
    fn keep_role(&self) {
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
        let write = || -> Result<(), ShardFault> {
            let mut file = PendingFile::create(self.role_file.with_extension(UNFINISHED))?;
            file.write(role.to_string().as_bytes())?;
            file.finish(&self.role_file)
        };
        let written = write();
        let mut state = lock(&self.state);
        if let Err(error) = &written
            && !state.unwritten
        {
            let path = self.role_file.display();
            warn!(%path, %error, "cannot note which role this process has; trying again with each word of the engine");
        }
        state.unwritten = written.is_err();
        if written.is_ok() {
            state.kept = Some(role);
        }
    }
}

/// Does what the engine has answered. May block.
pub(super) fn follow_orders(shared: &Arc<Shared>, orders: &ShardOrders) {
    take_role(shared, orders);
    // A promotion does not wait for the disk.
    shared.role.keep_role();
}

fn take_role(shared: &Arc<Shared>, orders: &ShardOrders) {
    let keeper = &shared.role;
    let _alone = lock(&keeper.changing);
    let before = lock(&keeper.state).role;
    match orders.role {
        ReplicaRole::Undecided => {}
        ReplicaRole::Primary { term } => {
            match before {
                // An answer that was on its way when the promotion came, or before it.
                Some(ReplicaRole::Primary { term: own }) if own > term => return,
                Some(ReplicaRole::Standby { .. }) => return,
                _ => {}
            }
            lock(&keeper.state).role = Some(orders.role);
            follow_with_backup(shared, orders.peer.clone());
        }
        ReplicaRole::Standby { term } => {
            if before.is_some_and(|own| own.term() > term) {
                return;
            }
            if !matches!(before, Some(ReplicaRole::Standby { .. })) {
                step_down(shared);
            }
            if before != Some(orders.role) {
                shared.replicas.begin(term);
                info!(term, "follows the process that serves this shard");
            }
            let mut state = lock(&keeper.state);
            (state.role, state.peer) = (Some(orders.role), orders.peer.clone());
            drop(state);
            blob_mirror::run(shared);
        }
    }
}

/// Gives up the jobs: another process serves them.
fn step_down(shared: &Shared) {
    // Nobody new is served from here on.
    lock(&shared.role.state).role = None;
    let jobs = shared.jobs.open_jobs().len();
    if jobs > 0 {
        // First of all: who waits for something must not be told that the job is over, but ask the other process.
        shared.connections.shut_down();
        shared.jobs.give_up();
        warn!(jobs, "another process serves this shard: its jobs go on there");
    }
}

/// Lets this standby follow all jobs, or goes on alone.
fn follow_with_backup(shared: &Arc<Shared>, peer: Option<ShardPeer>) {
    let mut state = lock(&shared.role.state);
    let (old, lost) = (state.peer.take(), state.lost);
    let term = |peer: &Option<ShardPeer>| peer.as_ref().map(|peer| peer.term);
    let is_same = term(&old) == term(&peer);
    state.peer = peer.clone();
    if !is_same {
        state.lost = None;
    }
    drop(state);
    if is_same {
        return;
    }
    if let Some(gone) = lost.or(term(&old)) {
        shared.jobs.open_jobs().iter().for_each(|job| job.go_on_without_replica(gone));
        warn!(term = gone, "goes on without the process that followed");
    }
    if let Some(peer) = peer {
        info!(address = peer.address, "a second process follows");
        shared.jobs.open_jobs().iter().for_each(|job| replication::start(shared, job, &peer));
    }
}

/// Serves, from now on, the jobs that were followed so far. Answers how many there are.
pub(super) fn promote(shared: &Arc<Shared>, epoch: EngineEpoch, term: Term) -> Result<u64, ShardFault> {
    shared.jobs.fence().check(epoch)?;
    let keeper = &shared.role;
    let _alone = lock(&keeper.changing);
    let before = lock(&keeper.state).role;
    match before {
        Some(ReplicaRole::Standby { term: own }) if own < term => {}
        Some(ReplicaRole::Primary { .. }) => return Ok(shared.jobs.open_jobs().len() as u64),
        _ => return Err(ShardFault::NotFollowing { term }),
    }
    let jobs = shared.replicas.take();
    let count = jobs.len() as u64;
    for job in jobs {
        job.stop_following();
        // The others wait for what this process would fetch: none of the jobs is lost for want of a thread.
        if let Err(error) = norms::follow_peers(shared, &job) {
            error!(job = %job.job(), %error, "rounds of a job that are clipped will not close here");
        }
        shared.jobs.restore(job);
    }
    let mut state = lock(&keeper.state);
    (state.role, state.peer) = (Some(ReplicaRole::Primary { term }), None);
    drop(state);
    info!(jobs = count, term, "serves this shard now");
    keeper.urgent.notify_one();
    Ok(count)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        sync::atomic::Ordering,
        thread,
    };

    use syncline_scheduler::ids::{Generation, Incarnation, RunId};

    use super::{
        super::{connections::ConnectionGuard, pull::tests::shard, tensor},
        *,
    };
    use crate::{
        codec::Codec,
        shard::ReadCondition,
        transport::{Channel, Socket},
        wire::{Reply, Request, SessionKey},
    };

    fn role_file(dir: &tempfile::TempDir) -> String {
        fs::read_to_string(dir.path().join(ROLE_FILE)).unwrap()
    }

    fn keeper_with_role(dir: &tempfile::TempDir, replicas: u32, role: ReplicaRole) -> RoleKeeper {
        let keeper = RoleKeeper::open(dir.path(), replicas);
        lock(&keeper.state).role = Some(role);
        keeper.keep_role();
        keeper
    }

    /// A worker that is told that the job is over drops its task, and nobody gives it another.
    #[test]
    fn who_waits_at_a_process_that_steps_down_is_hung_up_on_and_not_told_that_the_job_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::for_test(dir.path());
        shared.jobs.restore(Arc::new(shard(&[0.0; 3])));
        take_role(&shared, &orders(ReplicaRole::Primary { term: 1 }));
        let (socket, mut worker) = Socket::with_peer();
        let connection = ConnectionGuard::new(shared.clone(), &socket);
        let served = thread::spawn(move || tensor::serve(&connection.shared, Channel::Socket(socket)));
        let (condition, incarnation) = (ReadCondition::version(1), Incarnation(1));
        let session = SessionKey {
            run: RunId { job: "digits".parse().unwrap(), generation: Generation(1) },
            incarnation,
        };
        let (mut bytes, mut scratch) = (Vec::new(), Vec::new());
        Request::Pull { session, condition, codec: Codec::Plain }.encode(0, &mut bytes);
        worker.write_all(&bytes).unwrap();
        assert_eq!(Reply::read(&mut worker, &mut scratch).unwrap().0, Reply::Waiting);
        take_role(&shared, &orders(ReplicaRole::Standby { term: 2 }));
        assert!(shared.jobs.open_jobs().is_empty());
        served.join().unwrap().unwrap_err();
        shared.stopping.store(true, Ordering::SeqCst);
        bytes.clear();
        let _ = worker.read_to_end(&mut bytes);
        assert!(bytes.is_empty(), "it is told {:?}", Reply::read(&mut &bytes[..], &mut scratch));
    }

    /// The engine says once that a process goes on alone, and maybe before the copy of a job has begun.
    #[test]
    fn a_backup_that_is_lost_after_the_engine_gave_it_up_is_not_reported_again() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::for_test(dir.path());
        let peer = ShardPeer { term: 5, address: "127.0.0.1:1".into() };
        let primary = orders(ReplicaRole::Primary { term: 4 });
        take_role(&shared, &ShardOrders { peer: Some(peer), ..primary.clone() });
        assert!(shared.role.report_lost(5) && shared.role.report_lost(5));
        assert!(!shared.role.report_lost(4));
        take_role(&shared, &primary);
        assert!(!shared.role.report_lost(5));
    }

    #[test]
    fn backups_that_are_lost_in_a_row_are_waited_for_longer_and_longer() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::for_test(dir.path());
        let lose = |term| {
            let peer = Some(ShardPeer { term, address: "127.0.0.1:1".into() });
            take_role(&shared, &ShardOrders { peer, ..orders(ReplicaRole::Primary { term: 1 }) });
            assert!(shared.role.report_lost(term));
            shared.role.backup_pause()
        };
        assert!(lose(5) <= FIRST_PAUSE);
        assert!(lose(6) > FIRST_PAUSE && lose(7) > 2 * FIRST_PAUSE);
        lock(&shared.role.state).failed_at = Instant::now().checked_sub(FORGIVEN_AFTER);
        assert!(lose(8) <= FIRST_PAUSE);
    }

    fn orders(role: ReplicaRole) -> ShardOrders {
        ShardOrders { epoch: EngineEpoch(1), role, peer: None, lead_expired: false }
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
        // A folder in the place of the file: no rename succeeds, as on a disk that is full.
        fs::create_dir(dir.path().join(ROLE_FILE)).unwrap();
        let keeper = keeper_with_role(&dir, 1, ReplicaRole::Primary { term: 3 });
        fs::remove_dir(dir.path().join(ROLE_FILE)).unwrap();
        keeper.keep_role();
        assert!(role_file(&dir).starts_with("primary "));
    }
}
