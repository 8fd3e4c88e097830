//! Gradients that travel in fewer bytes: what the shards get is the same whatever becomes of the connection,
//! and what one push loses comes with the next.

use std::io::Write;

use proptest::prelude::*;
use syncline_ps::{
    client::ShardSet,
    codec::Codec,
    shard::{PushHeader, ReadCondition},
    wire::{Reply, Request},
};
use syncline_scheduler::{
    ids::Incarnation,
    samples::splitmix64,
    spec::{Layout, Parameter, ParameterKind},
};

use super::rig::{Cut, Cutter, EPOCH, ROUND, Rig, UNIT, client_options, look, session};

/// Three chunks and a bit on one shard.
const ELEMENTS: u64 = 3 * 65_536 + 1000;
/// Elements that the optimizer moves where there are buffers: of two shards, the first holds no buffer.
const TRAINED: u64 = ELEMENTS / 2 + 5_000;
const CODECS: [Codec; 4] = [Codec::Bf16, Codec::Fp16, Codec::Int8, Codec::TopK { of_full_chunk: 6_554 }];

/// No two pushes are alike, and no codec can say all of one.
fn gradient(push: u64) -> Vec<f32> {
    let mut seed = push;
    (0..ELEMENTS).map(|_| (splitmix64(&mut seed) >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
}

fn compressed(rig: &Rig, addresses: &[String], codec: Codec) -> ShardSet {
    let mut worker = rig.worker_at(addresses, 1, ELEMENTS);
    worker.compress_pushes(codec, ELEMENTS);
    worker
}

/// A job that begins with these parameters, of which the first [`TRAINED`] are trained and the others are
/// buffers.
fn with_buffers(shards: u32, initial: &[f32]) -> Rig {
    let rig = Rig::start(shards);
    let initial = rig.blob(initial);
    for shard in 0..shards {
        let mut order = rig.order(shard, ELEMENTS, &initial);
        order.layout = Layout(vec![
            Parameter::trained("w", vec![TRAINED]),
            Parameter { kind: ParameterKind::Buffer, ..Parameter::trained("b", vec![ELEMENTS - TRAINED]) },
        ]);
        rig.open_one(EPOCH, order).unwrap();
    }
    rig
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// The parameters after so many pushes over connections that hold.
fn undisturbed(codec: Codec, shards: u32, pushes: u64) -> Vec<f32> {
    let rig = Rig::with_job(shards, ELEMENTS);
    let mut worker = compressed(&rig, &rig.addresses(), codec);
    for seq in 1..=pushes {
        worker.push(seq, UNIT, &[&gradient(seq)]).unwrap();
    }
    look(&rig, ELEMENTS)
}

#[test]
fn what_a_push_loses_comes_with_the_next() {
    for codec in CODECS {
        let rig = Rig::with_job(2, ELEMENTS);
        let mut worker = compressed(&rig, &rig.addresses(), codec);
        let gradient = gradient(1);
        worker.push(1, UNIT, &[&gradient]).unwrap();
        let off = |rig: &Rig, factor: f32| {
            let values = look(rig, ELEMENTS);
            let off = values.iter().zip(&gradient).map(|(value, g)| f64::from(value + factor * g).abs());
            off.sum::<f64>() / ELEMENTS as f64
        };
        let first = off(&rig, 1.0);
        assert!(first > 0.0, "{codec:?}");
        // Nothing new comes, so that what was kept back runs out.
        for seq in 2..=30 {
            worker.push(seq, UNIT, &[&vec![0.0; ELEMENTS as usize]]).unwrap();
        }
        let last = off(&rig, 1.0);
        assert!(last < 1e-6, "{codec:?}: {first} became {last}");
    }
}

#[test]
fn a_factor_on_the_gradient_is_none_on_what_was_kept_back() {
    for codec in CODECS {
        let rig = Rig::with_job(1, ELEMENTS);
        let mut worker = compressed(&rig, &rig.addresses(), codec);
        let gradient = gradient(1);
        worker.push(1, UNIT, &[&gradient]).unwrap();
        for seq in 2..=30 {
            let header = PushHeader { scale: 0.001, ..UNIT };
            worker.push(seq, header, &[&vec![0.0; ELEMENTS as usize]]).unwrap();
        }
        let values = look(&rig, ELEMENTS);
        assert!(values.iter().zip(&gradient).all(|(value, g)| (value + g).abs() < 1e-5), "{codec:?}");
    }
}

/// The parameters of a job with two shards, whose workers subtract what they push.
fn is_minus(rig: &Rig, sum: impl Fn(usize) -> f32, what: &str) {
    let values = look(rig, ELEMENTS);
    let off = values.iter().enumerate().map(|(at, value)| (value + sum(at)).abs()).fold(0.0, f32::max);
    assert!(off < 1e-4, "{what}: off by up to {off}");
}

#[test]
fn what_was_kept_back_comes_with_the_first_plain_push_and_then_nothing_is() {
    for codec in CODECS {
        let rig = Rig::with_job(2, ELEMENTS);
        let mut worker = compressed(&rig, &rig.addresses(), codec);
        let gradients: Vec<Vec<f32>> = (1..=3).map(gradient).collect();
        worker.push(1, UNIT, &[&gradients[0]]).unwrap();
        worker.compress_pushes(Codec::Plain, ELEMENTS);
        worker.push(2, UNIT, &[&gradients[1]]).unwrap();
        is_minus(&rig, |at| gradients[0][at] + gradients[1][at], &format!("{codec:?}, flushed"));
        worker.push(3, UNIT, &[&gradients[2]]).unwrap();
        is_minus(&rig, |at| gradients.iter().map(|g| g[at]).sum(), &format!("{codec:?}, plain"));
    }
}

#[test]
fn whether_to_compress_is_found_out_without_losing_anything() {
    const PUSHES: u64 = 24;
    let rig = Rig::with_job(2, ELEMENTS);
    let mut worker = rig.worker_at(&rig.addresses(), 1, ELEMENTS);
    worker.compress_if_faster(ELEMENTS);
    let gradient = gradient(1);
    for seq in 1..=PUSHES {
        worker.push(seq, UNIT, &[&gradient]).unwrap();
    }
    // Whatever it has found.
    worker.compress_pushes(Codec::Plain, ELEMENTS);
    worker.push(PUSHES + 1, UNIT, &[&gradient]).unwrap();
    is_minus(&rig, |at| gradient[at] * (PUSHES + 1) as f32, "after the trial");
}

#[test]
fn parameters_that_are_pulled_in_16_bits_are_off_by_their_rounding_and_pinned_ones_by_nothing() {
    let exact = gradient(1);
    for (codec, digits, shards) in [(Codec::Bf16, 8, 1), (Codec::Bf16, 8, 2), (Codec::Fp16, 11, 2)] {
        let rig = with_buffers(shards, &exact);
        let mut worker = rig.exact_worker(1, ELEMENTS);
        worker.compress_pulls(codec, TRAINED);
        let check = |values: &[f32], how: &str| {
            let (trained, buffers) = values.split_at(TRAINED as usize);
            let most = 0.5f32.powi(digits);
            let off = |(value, exact): (&f32, &f32)| (value - exact).abs() > most * exact.abs() + 1e-7;
            assert_eq!(trained.iter().zip(&exact).filter(|pair| off(*pair)).count(), 0, "{codec:?}, {how}");
            // What is lent does not travel.
            let rounded = trained != &exact[..TRAINED as usize];
            assert_eq!(rounded, !client_options().in_place, "{codec:?}, {how}");
            assert!(bits(buffers) == bits(&exact[TRAINED as usize..]), "{codec:?}, {how}: buffers");
        };
        let mut values = vec![0.0; ELEMENTS as usize];
        worker.pull(ReadCondition::version(0), &mut values).unwrap();
        check(&values, "pulled");
        let skipped = PushHeader { skip: true, ..ROUND };
        worker.push_and_request(1, skipped, &[], Some(ReadCondition::version(0))).unwrap();
        worker.pull(ReadCondition::version(0), &mut values).unwrap();
        check(&values, "asked for behind a push");
        rig.barrier(0, 0, &[(1, 1)], true);
        worker.pull(ReadCondition::Pinned(1), &mut values).unwrap();
        assert!(bits(&values) == bits(&exact), "{codec:?}: what is pinned is exact");
    }
}

#[test]
fn parameters_that_are_no_numbers_are_pulled_as_such_also_in_16_bits() {
    let rig = Rig::with_job(1, 3);
    let mut worker = rig.exact_worker(1, 3);
    worker.push(1, UNIT, &[&[1.0, f32::NAN, 2.0]]).unwrap();
    let mut values = [0.0; 3];
    for codec in [Codec::Plain, Codec::Bf16, Codec::Fp16] {
        worker.compress_pulls(codec, 3);
        worker.pull(ReadCondition::version(0), &mut values).unwrap();
        assert!(values[1].is_nan() && values[2] == -2.0, "{codec:?}: {values:?}");
    }
}

#[test]
fn what_was_kept_back_waits_for_a_push_that_counts() {
    for (codec, kind) in CODECS.into_iter().flat_map(|codec| [(codec, UNIT), (codec, ROUND)]) {
        let rig = Rig::with_job(2, ELEMENTS);
        let mut worker = compressed(&rig, &rig.addresses(), codec);
        worker.push(1, kind, &[&gradient(1)]).unwrap();
        // One that is skipped, one without weight, and two that are refused.
        worker.push(2, PushHeader { skip: true, ..kind }, &[]).unwrap();
        worker.push(3, PushHeader { weight: 0.0, ..kind }, &[&gradient(3)]).unwrap();
        assert_eq!(worker.push(9, kind, &[&gradient(9)]).unwrap_err().code(), "E405");
        let mut bad = gradient(4);
        bad[0] = f32::NAN;
        assert_eq!(worker.push(4, kind, &[&bad]).unwrap_err().code(), "E405");
        worker.push(4, PushHeader { skip: true, ..kind }, &[]).unwrap();
        worker.push(5, kind, &[&gradient(2)]).unwrap();
        // Again: it must not be encoded with what it has left itself.
        worker.push(5, kind, &[&gradient(2)]).unwrap();
        worker.push(6, kind, &[&gradient(3)]).unwrap();
        rig.barrier(0, 0, &[(1, 6)], false);
        let plain = Rig::with_job(2, ELEMENTS);
        let mut other = compressed(&plain, &plain.addresses(), codec);
        for seq in 1..=3 {
            other.push(seq, kind, &[&gradient(seq)]).unwrap();
        }
        plain.barrier(0, 0, &[(1, 3)], false);
        // The barrier has closed when its version can be read.
        let (mut values, mut wanted) = (vec![0.0; ELEMENTS as usize], vec![0.0; ELEMENTS as usize]);
        worker.pull(ReadCondition::version(1), &mut values).unwrap();
        other.pull(ReadCondition::version(1), &mut wanted).unwrap();
        assert!(bits(&values) == bits(&wanted), "{codec:?}");
    }
}

#[test]
fn buffers_are_sent_as_they_are() {
    for codec in CODECS {
        let rig = with_buffers(2, &vec![0.0; ELEMENTS as usize]);
        let mut worker = rig.worker(1, ELEMENTS);
        worker.compress_pushes(codec, TRAINED);
        for seq in 1..=2 {
            worker.push(seq, PushHeader { scale: 0.5, ..UNIT }, &[&gradient(seq)]).unwrap();
        }
        // Alone, a worker's statistics are those of the job.
        assert_eq!(
            bits(&look(&rig, ELEMENTS)[TRAINED as usize..]),
            bits(&gradient(2)[TRAINED as usize..]),
            "{codec:?}"
        );
    }
}

#[test]
fn a_chunk_that_cannot_be_meant_is_refused_and_the_connection_goes_on() {
    let rig = Rig::with_job(1, 1000);
    let mut stream = rig.channel(0);
    let mut send = |codec: Codec, body: &[u8]| {
        let mut out = Vec::new();
        let push = Request::Push { session: session(1), seq: 1, first_chunk: 0, header: UNIT, codec };
        push.encode(body.len() as u64, &mut out);
        stream.write_all(&out).unwrap();
        stream.write_all(body).unwrap();
        Reply::read(&mut stream, &mut out).unwrap().0
    };
    let top = Codec::TopK { of_full_chunk: 656 };
    let descending = [&[0; 44][..], &[9, 0, 8, 0], &[0; 18]].concat();
    for (codec, body) in [
        (Codec::Bf16, vec![0xFF; 2000]),
        (Codec::Fp16, vec![0x7C; 2000]),
        (Codec::Int8, vec![0xFF; 1016]),
        (top, vec![0xFF; 66]),
        (top, descending),
    ] {
        let reply = send(codec, &body);
        assert!(matches!(&reply, Reply::Fault(fault) if fault.to_string().contains("chunk 0")), "{reply:?}");
    }
    assert_eq!(rig.state(0).pushes, 0);
    assert_eq!(rig.state(0).progress.watermarks.get(&Incarnation(1)), None);
    assert!(matches!(send(Codec::Int8, &[0; 1016]), Reply::Pushed(_)), "what can be meant comes in");
    assert!(look(&rig, 1000).iter().all(|x| *x == 0.0));
}

#[test]
fn an_encoded_push_that_announces_the_wrong_size_is_refused_and_hung_up_on() {
    let rig = Rig::with_job(1, 1000);
    for codec in CODECS {
        for bytes in [0, 1, 4000, u64::MAX >> 30] {
            let (mut stream, mut out) = (rig.channel(0), Vec::new());
            let push = Request::Push { session: session(1), seq: 1, first_chunk: 0, header: UNIT, codec };
            push.encode(bytes, &mut out);
            stream.write_all(&out).unwrap();
            let reply = Reply::read(&mut stream, &mut out).unwrap().0;
            assert!(matches!(reply, Reply::Fault(_)), "{codec:?}, {bytes} bytes: {reply:?}");
        }
    }
    assert_eq!(rig.state(0).pushes, 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Bit for bit what comes of connections that hold.
    #[test]
    fn pushes_cut_anywhere_are_the_same_bytes_again(
        cuts in prop::collection::vec(
            prop_oneof![(0u64..2 * ELEMENTS + 400).prop_map(Cut::Up), (0u64..120).prop_map(Cut::Down)],
            1..4,
        ),
        shards in 1u32..3,
        codec in prop::sample::select(CODECS.to_vec()),
    ) {
        let rig = Rig::with_job(shards, ELEMENTS);
        let cutter = Cutter::start(rig.shards[0].address(), &rig.token, cuts);
        let mut addresses = rig.addresses();
        addresses[0] = cutter.address.clone();
        let mut worker = compressed(&rig, &addresses, codec);
        for seq in 1..=3 {
            prop_assert_eq!(worker.push(seq, UNIT, &[&gradient(seq)]).unwrap().pushes, seq);
        }
        prop_assert!(bits(&look(&rig, ELEMENTS)) == bits(&undisturbed(codec, shards, 3)));
    }
}
