//! Who waits and who is gone are told apart within seconds.

use std::{
    net::TcpListener,
    thread,
    time::{Duration, Instant},
};

use super::rig::{Cut, Cutter, FIRST, Rig, UNIT, client_options, run};
use syncline_ps::{
    PsError,
    client::{CancelToken, ClientOptions, ShardSet},
    shard::ReadCondition,
    transport::{Transport, TransportChoice},
    wire::SessionKey,
};
use syncline_rpc::{
    Token,
    hello::{self, Role},
};
use syncline_scheduler::ids::Incarnation;

/// Long enough for the greeting of a shard on a busy machine.
const SILENCE_LIMIT: Duration = Duration::from_secs(2);

fn options(silence_limit: Duration) -> ClientOptions {
    ClientOptions { silence_limit, retry_limit: Duration::from_secs(1), ..client_options() }
}

fn session() -> SessionKey {
    SessionKey { run: run(FIRST), incarnation: Incarnation(1) }
}

#[test]
fn a_shard_that_greets_and_then_hangs_is_given_up_within_seconds() {
    let token = Token::generate();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let greets = token.clone();
    thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = hello::receive_blocking(&mut stream, &greets, &[Role::Tensor], None);
            held.push(stream);
        }
    });
    // It says nothing of a faster transport either.
    let options =
        ClientOptions { transport: TransportChoice::Only(Transport::Tcp), ..options(SILENCE_LIMIT) };
    let cancel_token = CancelToken::default();
    let mut worker =
        ShardSet::connect_with(&[address].as_slice().into(), token, session(), 100, options, cancel_token)
            .unwrap();
    let since = Instant::now();
    let pull = worker.pull(ReadCondition::version(1), &mut [0.0; 100]).unwrap_err();
    assert!(matches!(pull, PsError::Unreachable { .. }), "{pull}");
    assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());
}

#[test]
fn a_shard_that_hangs_in_the_middle_of_a_push_is_given_up_within_seconds() {
    let rig = Rig::with_job(1, 100_000);
    let cutter = Cutter::start(rig.shards[0].address(), &rig.token, vec![Cut::Hang(100_000); 100]);
    let addresses = [cutter.address.clone()].as_slice().into();
    let (options, cancel_token) = (options(SILENCE_LIMIT), CancelToken::default());
    let token = rig.token.clone();
    let mut worker =
        ShardSet::connect_with(&addresses, token, session(), 100_000, options, cancel_token).unwrap();
    let since = Instant::now();
    let push = worker.push(1, UNIT, &[&[1.0; 100_000]]).unwrap_err();
    assert!(matches!(push, PsError::Unreachable { .. }), "{push}");
    assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());
}

#[test]
fn a_shard_that_waits_for_others_is_not_taken_for_one_that_hangs() {
    let rig = Rig::with_job(2, 100);
    let mut silence = Duration::from_secs(2);
    let cancel_token = CancelToken::default();
    let waiting = options(silence);
    let mut worker = ShardSet::connect_with(
        &rig.addresses().as_slice().into(),
        rig.token.clone(),
        session(),
        100,
        waiting,
        cancel_token,
    )
    .unwrap();
    thread::scope(|scope| {
        let since = Instant::now();
        let blocked = scope.spawn(move || worker.pull(ReadCondition::version(1), &mut [0.0; 100]));
        silence *= 2;
        while since.elapsed() < silence {
            assert!(!blocked.is_finished());
            thread::sleep(Duration::from_millis(50));
        }
        rig.worker(2, 100).push(1, UNIT, &[&[1.0; 100]]).unwrap();
        rig.barrier(0, 0, &[(2, 1)], false);
        let pulled = blocked.join().unwrap().unwrap();
        // One question was waited for all the time: a new one would have begun to count anew.
        assert!(Duration::from_micros(pulled.waited_us) >= silence, "{pulled:?}");
    });
}
