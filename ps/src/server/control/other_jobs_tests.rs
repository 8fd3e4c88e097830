//! What happens to one job of a shard, and what its other jobs notice of it.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    sync::mpsc,
    thread,
    time::Duration,
};

use syncline_rpc::{BarrierOrder, ReplicaRole, ShardHello};
use syncline_scheduler::{
    ids::{ShardIndex, Superstep},
    sync::{PushMode, RoundRule},
};
use tokio::runtime::Runtime;

use super::{
    super::{
        connection::Connection,
        connections::ConnectionGuard,
        pull::tests::{Meanwhile, shard_of},
        rig::follow_orders,
        standby_files, tensor,
    },
    *,
};
use crate::{
    codec::Codec,
    shard::{PushCursor, PushHeader, PushedChunk, ReadCondition},
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

#[test]
fn a_job_that_is_set_aside_costs_no_other_job_its_connections_or_what_is_lent() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, [aside, other]) = serving_two(dir.path());
    other.lent_memory().unwrap().unwrap();
    assert_eq!(other.lend(), Some(0));
    let mut pulling = [&aside, &other].map(|job| {
        let mut worker = connect(&shared);
        let (session, condition) = (session(job), ReadCondition::version(1));
        ask(&mut worker, Request::Pull { session, condition, codec: Codec::Plain });
        assert_eq!(hear(&mut worker).unwrap(), Reply::Waiting);
        worker
    });
    let control = Control { shared: shared.clone(), hang_up: Arc::default() };
    let set_aside = control.set_aside(tarpc::context::current(), EPOCH, aside.run().clone());
    Runtime::new().unwrap().block_on(set_aside).unwrap();
    let [of_aside, of_other] = &mut pulling;
    let mut left = Vec::new();
    of_aside.read_to_end(&mut left).unwrap();
    let mut left = &left[..];
    while !left.is_empty() {
        assert_eq!(Reply::read(&mut left, &mut Vec::new()).unwrap().0, Reply::Waiting, "it asks again");
    }
    let mut woken_late = Meanwhile { sent: &[], happens: None::<fn()>, got: Vec::new() };
    let closed = Err(ShardFault::Closed { job: aside.job().clone() });
    let hung_up = Connection::new(&mut woken_late).answer_about(&aside, closed);
    assert_eq!(hung_up.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    assert!(woken_late.got.is_empty());
    other.give_back(0);
    let (superstep, rule) = (Superstep(0), RoundRule::Optimizer);
    let order =
        BarrierOrder { superstep, revision: 0, roster: [].into(), rule, learning_rate: 1.0, pin: false };
    other.add_barrier(EPOCH, order).unwrap();
    let mut reply = hear(of_other).expect("its connection stays");
    while reply == Reply::Waiting {
        reply = hear(of_other).unwrap();
    }
    assert!(matches!(reply, Reply::Pulled { version: 1, .. }), "{reply:?}");
    let (learning_rate, mode) = (1.0, PushMode::Apply);
    let header = PushHeader { learning_rate, weight: 1.0, scale: 1.0, skip: false, mode, covers: 1 };
    let chunk = PushedChunk { worker: WORKER, seq: 1, index: 0, header: &header, share: None };
    other.apply(chunk, &[1.0; 3]).unwrap();
    assert_eq!(other.lend(), Some(0), "its newest values, too, are where workers read them");
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
            let nothing = StandbyOp::RetainCheckpoints(Retention::Thin { keep: Vec::new(), through: 0 });
            standby_files::hand_over(&held, &other, nothing);
            done.send(()).unwrap();
        });
        ends.recv_timeout(Duration::from_secs(60)).expect("the other one is told of changes");
    });
    until("nothing waits", || standby_files::is_idle(&shared));
    assert!(!shared.unclaimed.is_set_aside(aside.run()));
    assert_eq!(std::fs::read_dir(dir.path().join("jobs")).unwrap().count(), 0);
}
