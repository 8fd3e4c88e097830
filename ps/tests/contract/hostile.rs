//! Bytes that no client of ours sends.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use super::rig::{FIRST, Rig, UNIT, run};
use proptest::prelude::*;
use syncline_ps::{
    codec::Codec,
    shard::ReadCondition,
    transport::Channel,
    wire::{Reply, Request, SessionKey, seal_frame},
};
use syncline_rpc::{
    Token,
    hello::{self, Role},
};
use syncline_scheduler::ids::Incarnation;

fn tensor(rig: &Rig) -> Channel {
    rig.channel(0)
}

fn still_works(rig: &Rig) {
    let mut values = [0.0; 100];
    rig.worker(77, 100).pull(ReadCondition::version(0), &mut values).unwrap();
}

fn at() -> SessionKey {
    SessionKey { run: run(FIRST), incarnation: Incarnation(1) }
}

#[test]
fn a_wrong_token_and_a_wrong_role_are_turned_away() {
    let rig = Rig::with_job(1, 100);
    for (role, token) in [(Role::Tensor, Token::generate()), (Role::Worker, rig.token.clone())] {
        let mut stream = TcpStream::connect(rig.shards[0].address()).unwrap();
        assert!(hello::greet_blocking(&mut stream, role, None, &token).is_err());
    }
    let mut silent = TcpStream::connect(rig.shards[0].address()).unwrap();
    silent.write_all(b"GET /").unwrap();
    still_works(&rig);
}

#[test]
fn a_push_that_announces_the_wrong_size_is_refused_and_hung_up_on() {
    let rig = Rig::with_job(1, 100);
    for bytes in [0, 396, 404, 1 << 37] {
        let mut stream = tensor(&rig);
        let mut out = Vec::new();
        Request::Push { session: at(), seq: 1, first_chunk: 0, header: UNIT, codec: Codec::Plain }
            .encode(bytes, &mut out);
        stream.write_all(&out).unwrap();
        let (reply, _) = Reply::read(&mut stream, &mut Vec::new()).unwrap();
        assert!(matches!(reply, Reply::Fault(_)), "{reply:?}");
        assert_eq!(stream.read(&mut [0; 1]).unwrap_or(0), 0);
    }
    assert_eq!(rig.state(0).pushes, 0);
    still_works(&rig);
}

#[test]
fn a_push_cannot_begin_beyond_the_first_missing_chunk() {
    let rig = Rig::with_job(1, 100);
    let mut stream = tensor(&rig);
    let mut out = Vec::new();
    Request::Push { session: at(), seq: 1, first_chunk: u32::MAX, header: UNIT, codec: Codec::Plain }
        .encode(0, &mut out);
    stream.write_all(&out).unwrap();
    assert!(matches!(Reply::read(&mut stream, &mut out), Ok((Reply::Fault(_), 0))));
    assert_eq!(rig.state(0).pushes, 0);
}

#[test]
fn numbers_that_cannot_be_meant_are_refused() {
    let rig = Rig::with_job(1, 100);
    let mut worker = rig.worker(1, 100);
    for bad in [f32::NAN, f32::INFINITY, -1.0] {
        for header in [
            syncline_ps::shard::PushHeader { learning_rate: bad, ..UNIT },
            syncline_ps::shard::PushHeader { weight: bad, ..UNIT },
            syncline_ps::shard::PushHeader { scale: bad, ..UNIT },
        ] {
            assert_eq!(worker.push(1, header, &[&[1.0; 100]]).unwrap_err().code(), "E405");
        }
    }
    worker.push(1, UNIT, &[&[1.0; 100]]).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn noise_does_not_kill_the_server(
        noise in prop::collection::vec(any::<u8>(), 1..300),
        framed in any::<bool>(),
        kind in 0u8..80,
    ) {
        let rig = Rig::with_job(1, 100);
        let mut stream = tensor(&rig);
        let mut bytes = Vec::new();
        if framed {
            bytes.extend_from_slice(b"SL");
            bytes.extend_from_slice(&[kind, 0]);
            bytes.extend_from_slice(&(noise.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&0u64.to_le_bytes());
        }
        bytes.extend_from_slice(&noise);
        if framed {
            seal_frame(&mut bytes);
        }
        let _ = stream.write_all(&bytes);
        let _ = stream.socket().raw().shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
        still_works(&rig);
        prop_assert_eq!(rig.state(0).pushes, 0);
    }
}
