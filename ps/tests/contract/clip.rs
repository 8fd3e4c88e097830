//! The mean of a round is clipped by its norm over all shards, as if one machine had computed it.

use std::io::Write;

use super::rig::{EPOCH, FIRST, ROUND, Rig, SGD, UNIT, barrier, look, run};
use syncline_ps::{
    codec::Codec,
    shard::{PushHeader, ReadCondition},
    wire::{Reply, Request, SessionKey},
};
use syncline_rpc::{BarrierOrder, OpenJob};
use syncline_scheduler::{
    ids::Incarnation,
    spec::{ElementRange, Layout, Parameter},
    sync::RoundRule,
};

/// Thirty-two parameters and a buffer on each of two shards, so to speak: the buffers lie behind all
/// parameters.
const ELEMENTS: u64 = 64;

/// Two shards that clip to 1.
fn rig(elements: u64, layout: Option<Layout>) -> Rig {
    let rig = Rig::start(2);
    let initial = rig.blob(&vec![0.0; elements as usize]);
    for shard in 0..2 {
        let order = rig.order(shard, elements, &initial);
        let layout = layout.clone().unwrap_or_else(|| order.layout.clone());
        rig.open_one(EPOCH, OpenJob { clip_norm: Some(1.0), optimizer: SGD, layout, ..order }).unwrap();
    }
    rig
}

/// All zero but at some places.
fn at(elements: u64, places: &[(u64, f32)]) -> Vec<f32> {
    let mut values = vec![0.0; elements as usize];
    places.iter().for_each(|&(place, value)| values[place as usize] = value);
    values
}

/// The parameters of a version, as soon as it is there.
fn version(rig: &Rig, closed: u64, elements: u64) -> Vec<f32> {
    let mut values = vec![0.0; elements as usize];
    rig.worker(99, elements).pull(ReadCondition::version(closed), &mut values).unwrap();
    values
}

fn close(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6)
}

#[test]
fn two_workers_on_two_shards_clip_what_one_machine_would() {
    let rig = rig(ELEMENTS, None);
    let last = ELEMENTS - 1;
    for round in 0..2 {
        rig.barrier(round, 0, &[(1, round + 1), (2, round + 1)], false);
    }
    // Weights 1 and 3. The mean is 3 in the first place (shard 0) and 4 in the last (shard 1): its norm is 5,
    // and clipped to 1 it is 0.6 and 0.8. Clipped one by one, the workers would have brought 0.25 and
    // 0.75.
    let one = PushHeader { weight: 1.0, ..ROUND };
    let three = PushHeader { weight: 3.0, ..ROUND };
    rig.exact_worker(1, ELEMENTS).push(1, one, &[&at(ELEMENTS, &[(0, 12.0)])]).unwrap();
    rig.exact_worker(2, ELEMENTS).push(1, three, &[&at(ELEMENTS, &[(last, 16.0 / 3.0)])]).unwrap();
    let want = at(ELEMENTS, &[(0, -0.6), (last, -0.8)]);
    assert!(close(&version(&rig, 1, ELEMENTS), &want), "{:?}", look(&rig, ELEMENTS));
    // The mean is 0.3 and 0.4: short enough, although each worker's own gradient is longer than 1.
    rig.exact_worker(1, ELEMENTS).push(2, one, &[&at(ELEMENTS, &[(0, 7.2), (last, 6.4)])]).unwrap();
    rig.exact_worker(2, ELEMENTS).push(2, three, &[&at(ELEMENTS, &[(0, -2.0), (last, -1.6)])]).unwrap();
    let want = at(ELEMENTS, &[(0, -0.9), (last, -1.2)]);
    assert!(close(&version(&rig, 2, ELEMENTS), &want), "{:?}", look(&rig, ELEMENTS));
}

#[test]
fn buffers_changes_and_single_steps_are_not_clipped_here() {
    let layout = Layout(vec![
        Parameter::trained("w", vec![40]),
        Parameter {
            kind: syncline_scheduler::spec::ParameterKind::Buffer,
            ..Parameter::trained("b", vec![24])
        },
    ]);
    let rig = rig(ELEMENTS, Some(layout));
    rig.barrier(0, 0, &[(1, 1)], false);
    // Buffers lie in the last places, and do not count: the norm is that of (3, 4).
    let pushed = at(ELEMENTS, &[(0, 3.0), (39, 4.0), (63, 100.0)]);
    rig.exact_worker(1, ELEMENTS).push(1, ROUND, &[&pushed]).unwrap();
    let want = at(ELEMENTS, &[(0, -0.6), (39, -0.8), (63, 100.0)]);
    assert!(close(&version(&rig, 1, ELEMENTS), &want), "{:?}", look(&rig, ELEMENTS));
    // A round of changes: its mean is where the parameters are to be.
    for shard in 0..2 {
        let order = BarrierOrder { rule: RoundRule::Average, ..barrier(1, 0, &[(1, 2)]) };
        rig.give(shard, EPOCH, order).unwrap();
    }
    rig.exact_worker(1, ELEMENTS).push(2, ROUND, &[&at(ELEMENTS, &[(0, 3.0), (39, 4.0)])]).unwrap();
    let averaged = at(ELEMENTS, &[(0, -3.6), (39, -4.8)]);
    assert!(close(&version(&rig, 2, ELEMENTS), &averaged), "{:?}", look(&rig, ELEMENTS));
    // A step of its own carries its scale with it.
    rig.barrier(2, 0, &[(1, 3)], false);
    let step = PushHeader { scale: 0.5, ..UNIT };
    rig.exact_worker(1, ELEMENTS).push(3, step, &[&at(ELEMENTS, &[(0, 6.0), (39, 8.0)])]).unwrap();
    let stepped = at(ELEMENTS, &[(0, -6.6), (39, -8.8)]);
    assert!(close(&version(&rig, 3, ELEMENTS), &stepped), "{:?}", look(&rig, ELEMENTS));
}

#[test]
fn a_round_whose_sum_overflows_on_one_shard_changes_nothing_on_both_and_the_next_one_does() {
    let rig = rig(ELEMENTS, None);
    let last = ELEMENTS - 1;
    for round in 0..2 {
        rig.barrier(round, 0, &[(1, round + 1), (2, round + 1)], false);
    }
    // Both are numbers, and what they sum up to in the first place, on shard 0, is none.
    let large = at(ELEMENTS, &[(0, 3e38), (1, 1.0), (last, 4.0)]);
    for worker in [1, 2] {
        rig.exact_worker(worker, ELEMENTS).push(1, ROUND, &[&large]).unwrap();
    }
    assert_eq!(version(&rig, 1, ELEMENTS), at(ELEMENTS, &[]));
    for worker in [1, 2] {
        rig.exact_worker(worker, ELEMENTS)
            .push(2, ROUND, &[&at(ELEMENTS, &[(0, 3.0), (last, 4.0)])])
            .unwrap();
    }
    let want = at(ELEMENTS, &[(0, -0.6), (last, -0.8)]);
    assert!(close(&version(&rig, 2, ELEMENTS), &want), "{:?}", look(&rig, ELEMENTS));
}

/// Pushes to shard 0 alone: the worker dies before the others have it.
fn push_to_one_shard(rig: &Rig, worker: u64, values: &[f32]) {
    let mut stream = rig.channel(0);
    let session = SessionKey { run: run(FIRST), incarnation: Incarnation(worker) };
    let part = &values[..ElementRange::of_shard(values.len() as u64, 0, 2).end as usize];
    let mut out = Vec::new();
    Request::Push { session, seq: 1, first_chunk: 0, header: ROUND, codec: Codec::Plain }
        .encode(size_of_val(part) as u64, &mut out);
    out.extend(part.iter().flat_map(|x| x.to_le_bytes()));
    stream.write_all(&out).unwrap();
    assert!(matches!(Reply::read(&mut stream, &mut out).unwrap().0, Reply::Pushed(_)));
}

#[test]
fn a_worker_that_dies_between_two_shards_and_a_stop_there_hold_nobody_up() {
    for stop in [false, true] {
        let mut rig = rig(ELEMENTS, None);
        let last = ELEMENTS - 1;
        rig.barrier(0, 0, &[(1, 1), (2, 1)], false);
        rig.exact_worker(1, ELEMENTS).push(1, ROUND, &[&at(ELEMENTS, &[(0, 6.0), (last, 4.0)])]).unwrap();
        push_to_one_shard(&rig, 2, &at(ELEMENTS, &[]));
        // Shard 0 has all it waits for from workers, shard 1 has not.
        assert_eq!((rig.state(0).progress.closed, rig.state(1).progress.closed), (0, 0));
        if stop {
            rig.restart();
        }
        for shard in 0..2 {
            rig.seal(shard, 2);
        }
        rig.barrier(0, 1, &[(1, 1)], false);
        // What is applied has the norm 1: 3 on shard 0, where two pushes are in, and 4 on shard 1.
        let want = at(ELEMENTS, &[(0, -0.6), (last, -0.8)]);
        assert!(close(&version(&rig, 1, ELEMENTS), &want), "{:?}", look(&rig, ELEMENTS));
        assert_eq!((rig.state(0).progress.closed, rig.state(1).progress.closed), (1, 1));
    }
}

#[test]
fn a_shard_whose_round_is_empty_does_not_wait_and_is_not_waited_for() {
    let rig = rig(ELEMENTS, None);
    for round in 0..50 {
        rig.barrier(round, 0, &[(1, round + 1)], false);
    }
    let mut worker = rig.worker(1, ELEMENTS);
    for seq in 1..=50 {
        let header = if seq % 10 == 0 { ROUND } else { PushHeader { skip: true, ..ROUND } };
        let gradient = at(ELEMENTS, &[(0, 30.0), (ELEMENTS - 1, 40.0)]);
        let gradients: &[&[f32]] = if header.skip { &[] } else { &[&gradient] };
        worker.push(seq, header, gradients).unwrap();
        worker.pull(ReadCondition::version(seq), &mut vec![0.0; ELEMENTS as usize]).unwrap();
    }
    let want = at(ELEMENTS, &[(0, -3.0), (ELEMENTS - 1, -4.0)]);
    assert!(close(&version(&rig, 50, ELEMENTS), &want), "{:?}", look(&rig, ELEMENTS));
}
