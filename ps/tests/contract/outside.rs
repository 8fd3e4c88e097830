//! What happens around the job: an engine that comes and goes, a shard that is gone.

use std::{net::SocketAddr, time::Duration};

use syncline_ps::{
    PsError,
    client::{Addresses, CancelToken, ClientOptions, ShardSet},
    server::{self, Options},
    shard::ReadCondition,
    wire::SessionKey,
};
use syncline_rpc::{
    DiskState, EngineFault, ReplicaRole, ShardHello, ShardOrders, ShardRegistry, Token, accept, answer_calls,
    channel, hello::Role,
};
use syncline_scheduler::ids::{EngineEpoch, Incarnation, ShardIndex};
use tarpc::{context::Context, server::Channel};
use tokio::{net::TcpListener, runtime::Runtime, sync::mpsc};

use super::rig::{FIRST, Rig, UNIT, client_options, run};

#[derive(Clone)]
struct Engine(mpsc::UnboundedSender<ShardHello>);

impl ShardRegistry for Engine {
    async fn announce(self, _: Context, hello: ShardHello) -> Result<ShardOrders, EngineFault> {
        let _ = self.0.send(hello);
        Ok(ShardOrders {
            epoch: EngineEpoch(1),
            role: ReplicaRole::Primary { term: 1 },
            peer: None,
            lead_expired: false,
        })
    }
}

#[test]
fn a_shard_announces_itself_again_and_again_through_an_engines_death() {
    let (token, dir, runtime) = (Token::generate(), tempfile::tempdir().unwrap(), Runtime::new().unwrap());
    // The engine's port is known before the engine is there, and nobody else gets it while it is away.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    port.set_nonblocking(true).unwrap();
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
    let (sender, mut heard) = mpsc::unbounded_channel();
    let serve = || {
        let (port, sender, token) = (port.try_clone().unwrap(), sender.clone(), token.clone());
        async move {
            let listener = TcpListener::from_std(port).unwrap();
            let calls =
                move |_, stream| answer_calls(channel(stream).execute(Engine(sender.clone()).serve()));
            accept(listener, token, &[Role::Shard], calls).await;
        }
    };
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
