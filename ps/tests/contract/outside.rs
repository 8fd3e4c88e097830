//! What happens around the job: an engine that comes and goes, a shard that is gone.

use std::{fs, net::SocketAddr, time::Duration};

use syncline_ps::{
    PsError,
    client::{Addresses, CancelToken, ClientOptions, ShardSet},
    server::{self, Options},
    shard::ReadCondition,
    wire::SessionKey,
};
use syncline_rpc::{
    DiskState, EngineFault, ReplicaRole, ShardHello, ShardOrders, ShardRegistry, StoppingShard, Token,
    accept, answer_calls, channel, hello::Role,
};
use syncline_scheduler::ids::{EngineEpoch, Incarnation, ShardIndex};
use tarpc::{context::Context, server::Channel};
use tokio::{net::TcpListener, runtime::Runtime, sync::mpsc};

use super::rig::{FIRST, Rig, UNIT, client_options, job, run};

#[derive(Clone)]
struct Engine {
    hellos: mpsc::UnboundedSender<ShardHello>,
    stopping: mpsc::UnboundedSender<StoppingShard>,
}

impl Engine {
    /// Answers whoever calls.
    async fn serve_at(self, port: std::net::TcpListener, token: Token) {
        let listener = TcpListener::from_std(port).unwrap();
        let calls = move |_, stream| answer_calls(channel(stream).execute(self.clone().serve()));
        accept(listener, token, &[Role::Shard], calls).await;
    }
}

/// A port of which it is known where it is before anybody answers, and that nobody else gets.
fn engine_port() -> std::net::TcpListener {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    port.set_nonblocking(true).unwrap();
    port
}

impl ShardRegistry for Engine {
    async fn announce(self, _: Context, hello: ShardHello) -> Result<ShardOrders, EngineFault> {
        let _ = self.hellos.send(hello);
        Ok(ShardOrders {
            epoch: EngineEpoch(1),
            role: ReplicaRole::Primary { term: 1 },
            peer: None,
            lead_expired: false,
        })
    }

    async fn stopping(self, _: Context, shard: StoppingShard) -> Result<(), EngineFault> {
        let _ = self.stopping.send(shard);
        Ok(())
    }
}

#[test]
fn a_shard_announces_itself_again_and_again_through_an_engines_death() {
    let (token, dir, runtime) = (Token::generate(), tempfile::tempdir().unwrap(), Runtime::new().unwrap());
    let port = engine_port();
    let engine = port.local_addr().unwrap();
    let shard = server::start(Options {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        token: token.clone(),
        state_dir: dir.path().into(),
        index: 1,
        count: 2,
        engine: Some(engine.into()),
        advertise: None,
        replicas: 1,
    })
    .unwrap();
    let (hellos, mut heard) = mpsc::unbounded_channel();
    let told = Engine { hellos, stopping: mpsc::unbounded_channel().0 };
    let serve = || told.clone().serve_at(port.try_clone().unwrap(), token.clone());
    let first = Runtime::new().unwrap();
    first.spawn(serve());
    let hellos: Vec<ShardHello> = (0..2).map(|_| heard.blocking_recv().unwrap()).collect();
    // Meanwhile it was told what it is.
    assert_eq!((hellos[0].role, hellos[1].role), (None, Some(ReplicaRole::Primary { term: 1 })));
    assert_eq!((hellos[0].index, hellos[0].count), (ShardIndex(1), 2));
    assert_eq!(hellos[0].address, shard.address().to_string());
    first.shutdown_timeout(Duration::from_secs(5));
    while heard.try_recv().is_ok() {}
    runtime.spawn(serve());
    // Others write to that disk meanwhile.
    let without_disk = |hello: &ShardHello| ShardHello { disk: DiskState::default(), ..hello.clone() };
    assert_eq!(without_disk(&heard.blocking_recv().unwrap()), without_disk(&hellos[1]));
}

#[test]
fn a_shard_that_cannot_keep_a_job_yet_says_so_until_it_can() {
    let (token, runtime, port) = (Token::generate(), Runtime::new().unwrap(), engine_port());
    let (stopping, mut heard) = mpsc::unbounded_channel();
    let told = Engine { hellos: mpsc::unbounded_channel().0, stopping };
    let engine = port.local_addr().unwrap();
    runtime.spawn(told.serve_at(port, token.clone()));
    let mut rig = Rig::announced_to(engine, token, 100);
    let address = rig.addresses().remove(0);
    // A folder stands where the file should be written.
    let in_the_way = rig.dir.path().join("0/jobs/digits.job");
    fs::create_dir(&in_the_way).unwrap();
    let kept = rig.shards.remove(0).stop_and_save(|error| {
        let says_so = |shard: StoppingShard| shard.problem == Some(error.to_string());
        while !says_so(heard.blocking_recv().unwrap()) {}
        let again = heard.blocking_recv().unwrap();
        assert!((again.index, &again.address) == (ShardIndex(0), &address) && says_so(again));
        fs::remove_dir(&in_the_way).unwrap();
        true
    });
    assert_eq!(kept.unwrap(), [job()]);
}

/// A worker that puts up with a broken connection for a moment only.
fn impatient(rig: &Rig) -> ShardSet {
    let session = SessionKey { run: run(FIRST), incarnation: Incarnation(1) };
    let options = ClientOptions { retry_limit: Duration::from_millis(50), ..client_options() };
    let addresses = rig.addresses().as_slice().into();
    ShardSet::connect_with(&addresses, rig.token.clone(), session, 100, options, CancelToken::default())
        .unwrap()
}

#[test]
fn a_shard_that_stays_away_is_an_error_within_the_callers_patience() {
    let mut rig = Rig::with_job(2, 100);
    let mut worker = impatient(&rig);
    worker.push(1, UNIT, &[&[1.0; 100]]).unwrap();
    let gone = rig.shards.remove(1);
    let address = gone.address().to_string();
    gone.stop();
    let push = worker.push(2, UNIT, &[&[1.0; 100]]).unwrap_err();
    let pull = worker.pull(ReadCondition::version(0), &mut [0.0; 100]).unwrap_err();
    for error in [push, pull] {
        assert!(matches!(&error, PsError::Unreachable { address: a, .. } if *a == address), "{error}");
    }
}

#[test]
fn whoever_calls_a_shard_where_another_one_is_reaches_nobody() {
    let rig = Rig::with_job(2, 100);
    let mut exchanged = rig.addresses();
    exchanged.reverse();
    // The first answer counts: another try on a busy machine may get none in time.
    let options = ClientOptions { retry_limit: Duration::ZERO, ..client_options() };
    let session = SessionKey { run: run(FIRST), incarnation: Incarnation(1) };
    let (addresses, token) = (exchanged.as_slice().into(), rig.token.clone());
    let refused = ShardSet::connect_with(&addresses, token, session, 100, options, CancelToken::default());
    match refused.err().unwrap() {
        PsError::Unreachable { cause, .. } => assert!(cause.reason.contains("[E613]"), "{cause}"),
        other => panic!("{other}"),
    }
    assert_eq!([0, 1].map(|shard| rig.state(shard).pushes), [0, 0]);
}

#[test]
fn a_stop_ends_blocked_pulls() {
    let mut rig = Rig::with_job(1, 100);
    let mut worker = impatient(&rig);
    std::thread::scope(|scope| {
        let blocked = scope.spawn(move || worker.pull(ReadCondition::version(1), &mut [0.0; 100]));
        rig.shards.remove(0).stop();
        assert!(matches!(blocked.join().unwrap(), Err(PsError::Unreachable { .. })));
    });
}

#[test]
fn a_pull_that_waits_is_asked_again_where_the_shard_is_now() {
    let rig = Rig::with_job(1, 100);
    let session = SessionKey { run: run(FIRST), incarnation: Incarnation(1) };
    let options = ClientOptions { retry_limit: Duration::from_millis(50), ..client_options() };
    let addresses: Addresses = rig.addresses().as_slice().into();
    let cancel = CancelToken::default();
    let mut worker =
        ShardSet::connect_with(&addresses, rig.token.clone(), session, 100, options, cancel).unwrap();
    let moved = "127.0.0.1:1".to_owned();
    std::thread::scope(|scope| {
        let blocked = scope.spawn(move || worker.pull(ReadCondition::version(1), &mut [0.0; 100]));
        addresses.set(rig.addresses());
        addresses.set(vec![moved.clone()]);
        let error = blocked.join().unwrap().unwrap_err();
        assert!(matches!(&error, PsError::Unreachable { address, .. } if *address == moved), "{error}");
    });
}
