//! What happens to one job of a shard, and what its other jobs notice of it.

use std::{
    io::{self, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    sync::mpsc,
    thread,
    time::Duration,
};

use syncline_rpc::{ReplicaRole, ShardHello};
use syncline_scheduler::ids::ShardIndex;

use super::{
    super::{
        connections::ConnectionGuard, pull::tests::shard_of, rig::follow_orders, standby_files, tensor,
    },
    *,
};
use crate::{
    shard::PushCursor,
    transport::{Channel, Socket},
    waiting::until,
    wire::{Reply, Request, SessionKey},
};

const EPOCH: EngineEpoch = EngineEpoch(1);
const WORKER: Incarnation = Incarnation(1);

/// A shard that serves alone, and two jobs on it.
fn serving_two(dir: &Path) -> (Arc<Shared>, [Arc<JobShard>; 2]) {
    let shared = Shared::for_test(dir);
    follow_orders(&shared, ReplicaRole::Primary { term: 1 }, None);
    let jobs = ["first", "second"].map(|name| Arc::new(shard_of(name, &[0.0; 3], None)));
    jobs.iter().for_each(|job| shared.jobs.restore(job.clone()));
    (shared, jobs)
}

/// The end of a worker over a connection that is served.
fn connect(shared: &Arc<Shared>) -> UnixStream {
    let (socket, worker) = Socket::with_peer();
    worker.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let connection = ConnectionGuard::new(shared.clone(), &socket);
    thread::spawn(move || tensor::serve(&connection.shared, Channel::Socket(socket)));
    worker
}

fn session(job: &JobShard) -> SessionKey {
    SessionKey { run: job.run().clone(), incarnation: WORKER }
}

fn ask(worker: &mut UnixStream, request: Request) {
    let mut bytes = Vec::new();
    request.encode(0, &mut bytes);
    worker.write_all(&bytes).unwrap();
}

fn hear(worker: &mut UnixStream) -> io::Result<Reply> {
    match Reply::read(worker, &mut Vec::new()) {
        Ok((reply, _)) => Ok(reply),
        Err(error) => Err(io::Error::other(error.to_string())),
    }
}

/// As a large job closes a barrier, is copied, or is written down.
#[test]
fn a_job_whose_state_is_held_for_long_holds_up_no_other_job_and_no_announcement() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, [large, other]) = serving_two(dir.path());
    let [mut waits, mut goes_on] = [(); 2].map(|()| connect(&shared));
    let pinned = large.clone();
    let pinning = large.read_chunks(0, 1, |_| {
        let pinning = thread::spawn(move || pinned.pin_checkpoint(EPOCH, 1));
        until("the state is held", || large.is_busy());
        ask(&mut waits, Request::PushCursor { session: session(&large) });
        assert_eq!(hear(&mut waits).expect("it is told that it waits"), Reply::Waiting);
        ask(&mut goes_on, Request::PushCursor { session: session(&other) });
        let cursor = PushCursor { watermark: 0, next_chunk: 0, pushes: 0 };
        assert_eq!(hear(&mut goes_on).expect("the other job goes on"), Reply::PushCursor(cursor));
        let hello = ShardHello::alone(ShardIndex(0), 1, String::new(), 1);
        assert_eq!(shared.role.complete_hello(&shared, &hello).jobs, 2);
        assert!(large.is_busy());
        pinning
    });
    pinning.join().unwrap().unwrap();
}

/// Its primary goes on with the job meanwhile.
#[test]
fn what_a_standby_writes_down_holds_up_no_other_job_that_it_follows() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, [aside, other]) = serving_two(dir.path());
    aside.read_chunks(0, 1, |_| {
        standby_files::hand_over(&shared, &aside, StandbyOp::SetAside);
        until("it is being written", || aside.is_busy());
        let (done, ends) = mpsc::channel();
        let (held, run) = (shared.clone(), aside.run().clone());
        thread::spawn(move || {
            standby_files::end_aside(&held, &run);
            let nothing = StandbyOp::KeepCheckpoints { numbers: Vec::new(), through: 0 };
            standby_files::hand_over(&held, &other, nothing);
            done.send(()).unwrap();
        });
        ends.recv_timeout(Duration::from_secs(60)).expect("the other one is told of changes");
    });
    until("nothing waits", || standby_files::is_idle(&shared));
    assert!(!shared.unclaimed.is_set_aside(aside.run()));
    assert_eq!(std::fs::read_dir(dir.path().join("jobs")).unwrap().count(), 0);
}
