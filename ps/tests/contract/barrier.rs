//! Barriers close exactly when their roster is met, and a version is the same for everybody.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::rig::{EPOCH, FIRST, ROUND, Rig, SGD, UNIT, barrier, look};
use syncline_ps::{
    PsError,
    shard::{PushHeader, ReadCondition},
};
use syncline_rpc::{BarrierOrder, ShardFault};
use syncline_scheduler::{
    ids::{EngineEpoch, Generation},
    spec::Optimizer,
    sync::RoundRule,
};

const ELEMENTS: u64 = 2 * 65_536 + 48;

#[test]
fn a_barrier_closes_when_its_roster_is_met_and_not_before() {
    let rig = Rig::with_job(2, ELEMENTS);
    let ones = vec![1.0; ELEMENTS as usize];
    let (mut a, mut b) = (rig.worker(1, ELEMENTS), rig.worker(2, ELEMENTS));
    // Orders come out of order, and one after its roster is met already.
    rig.barrier(1, 0, &[(1, 3), (2, 2)], false);
    a.push(1, UNIT, &[&ones]).unwrap();
    a.push(2, UNIT, &[&ones]).unwrap();
    b.push(1, UNIT, &[&ones]).unwrap();
    assert_eq!(rig.state(0).progress.closed, 0);
    rig.barrier(0, 0, &[(1, 2), (2, 1)], false);
    assert_eq!(rig.state(0).progress.closed, 1);
    b.push(2, UNIT, &[&ones]).unwrap();
    assert_eq!(rig.state(1).progress.closed, 1);
    a.push(3, UNIT, &[&ones]).unwrap();
    for shard in 0..2 {
        let closed = rig.closed(shard, 0, 0).unwrap();
        let facts: Vec<_> = closed.iter().map(|c| (c.superstep.0, c.pushes)).collect();
        assert_eq!(facts, [(0, 3), (1, 5)]);
        assert_eq!(rig.closed(shard, 1, 0).unwrap().len(), 1);
        assert_eq!(rig.closed(shard, 2, 1).unwrap(), []);
    }
}

#[test]
fn news_of_a_barrier_waits_for_that_of_others_while_orders_for_more_are_there() {
    let rig = Rig::with_job(1, 100);
    let mut worker = rig.worker(1, 100);
    rig.barrier(0, 0, &[(1, 1)], false);
    rig.barrier(1, 0, &[(1, 2)], false);
    worker.push(1, ROUND, &[&[1.0; 100]]).unwrap();
    let asked = Instant::now();
    assert_eq!(rig.closed(0, 0, 5_000).unwrap().len(), 1);
    assert!(asked.elapsed() >= Duration::from_millis(50), "{:?}", asked.elapsed());
    assert_eq!(rig.closed(0, 0, 0).unwrap().len(), 1, "who would not wait is answered");
}

#[test]
fn an_amended_roster_closes_the_barrier_that_waited_for_a_dead_worker() {
    let rig = Rig::with_job(2, 100);
    rig.barrier(0, 0, &[(1, 1), (2, 1)], false);
    rig.worker(1, 100).push(1, ROUND, &[&[4.0; 100]]).unwrap();
    assert_eq!(rig.state(0).progress.closed, 0);
    let answer = rig.seal(0, 2);
    assert_eq!((answer.watermark, answer.partial), (0, false));
    rig.barrier(0, 1, &[(1, 1)], false);
    assert_eq!((rig.state(0).progress.closed, rig.state(1).progress.closed), (1, 1));
    assert_eq!(look(&rig, 100), [-4.0; 100]);
    // What comes late changes nothing.
    rig.barrier(0, 2, &[(9, 9)], false);
    assert_eq!(rig.state(0).progress.closed, 1);
}

#[test]
fn the_weighted_mean_of_a_round_is_the_mean_over_the_union_of_its_batches() {
    let rig = Rig::with_job(2, 64);
    // Per-sample gradients 1..=12, split 3 + 9 over two workers; each pushes its batch's mean.
    let mean = |range: std::ops::RangeInclusive<u32>| {
        let n = range.clone().count() as f32;
        range.map(|x| x as f32).sum::<f32>() / n
    };
    rig.barrier(0, 0, &[(1, 1), (2, 1)], false);
    let batches = [(1, 3.0, mean(1..=3)), (2, 9.0, mean(4..=12))];
    for (worker, weight, gradient) in batches {
        let header = PushHeader { weight, learning_rate: f32::MAX, ..ROUND };
        rig.worker(worker, 64).push(1, header, &[&[gradient; 64]]).unwrap();
    }
    let want = -mean(1..=12);
    assert!(look(&rig, 64).iter().all(|x| (x - want).abs() < 1e-5));
}

#[test]
fn each_push_says_whether_it_is_a_step_or_joins_the_round() {
    let rig = Rig::with_job(2, ELEMENTS);
    let ones = vec![1.0; ELEMENTS as usize];
    let (mut a, mut b) = (rig.worker(1, ELEMENTS), rig.worker(2, ELEMENTS));
    let all = |value: f32| assert!(look(&rig, ELEMENTS).iter().all(|x| *x == value));
    for superstep in 0..4 {
        rig.barrier(superstep, 0, &[(1, superstep + 1), (2, superstep + 1)], false);
    }
    a.push(1, UNIT, &[&ones]).unwrap();
    b.push(1, UNIT, &[&ones]).unwrap();
    all(-2.0);
    a.push(2, ROUND, &[&ones]).unwrap();
    all(-2.0);
    b.push(2, ROUND, &[&ones]).unwrap();
    all(-3.0);
    // A superstep without a round between two with one: nothing of the old round is applied again.
    a.push(3, UNIT, &[&ones]).unwrap();
    b.push(3, UNIT, &[&ones]).unwrap();
    all(-5.0);
    a.push(4, UNIT, &[&ones]).unwrap();
    b.push(4, PushHeader { scale: 3.0, ..ROUND }, &[&ones]).unwrap();
    all(-9.0);
    assert_eq!((rig.state(0).progress.closed, rig.state(1).progress.closed), (4, 4));
}

#[test]
fn averaging_gives_every_parameter_its_mean_over_the_workers() {
    let rig = Rig::start(2);
    let base: Vec<f32> = (0..ELEMENTS).map(|i| (i % 64) as f32).collect();
    // An optimizer that must not be asked, and a rate that must not count.
    let adam =
        Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.1, decoupled: true };
    for result in rig.open(FIRST, ELEMENTS, adam, &rig.blob(&base)) {
        result.unwrap();
    }
    let order =
        BarrierOrder { rule: RoundRule::Average, learning_rate: 0.0, ..barrier(0, 0, &[(1, 4), (2, 4)]) };
    for shard in 0..2 {
        rig.give(shard, EPOCH, order.clone()).unwrap();
    }
    let ends = |i: u64| [(i % 7) as f32, -((i % 5) as f32)];
    for (worker, weight) in [(1, 1.0), (2, 3.0)] {
        let at = worker as usize - 1;
        let change: Vec<f32> = (0..).zip(&base).map(|(i, x)| x - ends(i)[at]).collect();
        let header = PushHeader { weight, covers: 4, ..ROUND };
        rig.worker(worker, ELEMENTS).push(4, header, &[&change]).unwrap();
    }
    let mean = |i: u64| (ends(i)[0] + 3.0 * ends(i)[1]) / 4.0;
    assert!((0..).zip(look(&rig, ELEMENTS)).all(|(i, x)| x == mean(i)));
}

#[test]
fn every_puller_of_a_version_gets_the_same_bytes() {
    const ROUNDS: u64 = 12;
    let rig = Rig::with_job(2, ELEMENTS);
    let seen = thread::scope(|scope| {
        let workers: Vec<_> = (1..=3u64)
            .map(|me| {
                let mut worker = rig.worker(me, ELEMENTS);
                scope.spawn(move || {
                    let mut values = vec![0.0; ELEMENTS as usize];
                    let mut seen = Vec::new();
                    for round in 0..ROUNDS {
                        let pulled = worker.pull(ReadCondition::version(round), &mut values).unwrap();
                        assert_eq!(pulled.version, round);
                        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
                        seen.push(blake3::hash(&bytes));
                        let gradient: Vec<f32> = values
                            .iter()
                            .zip(0..)
                            .map(|(x, i)| x * 0.5 + (me * 1000 + i % 97) as f32 / 7.0)
                            .collect();
                        worker.push(round + 1, ROUND, &[&gradient]).unwrap();
                    }
                    seen
                })
            })
            .collect();
        for round in 0..ROUNDS {
            let roster: Vec<_> = (1..=3).map(|w| (w, round + 1)).collect();
            rig.barrier(round, 0, &roster, false);
        }
        workers.into_iter().map(|w| w.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(seen.windows(2).all(|w| w[0] == w[1]));
    let distinct: std::collections::HashSet<_> = seen[0].iter().collect();
    assert_eq!(distinct.len(), ROUNDS as usize);
}

#[test]
fn a_pull_waits_for_its_version() {
    let rig = Rig::with_job(2, 100);
    let mut worker = rig.worker(1, 100);
    thread::scope(|scope| {
        let blocked = scope.spawn(move || worker.pull(ReadCondition::version(1), &mut [0.0; 100]));
        let mut other = rig.worker(2, 100);
        other.push(1, UNIT, &[&[1.0; 100]]).unwrap();
        rig.barrier(0, 0, &[(2, 1)], false);
        let pulled = blocked.join().unwrap().unwrap();
        assert_eq!((pulled.version, pulled.pushes), (1, 1));
    });
}

#[test]
fn a_pinned_version_stays_as_it_was_at_the_close() {
    let rig = Rig::with_job(2, ELEMENTS);
    let ones = vec![1.0; ELEMENTS as usize];
    let mut worker = rig.worker(1, ELEMENTS);
    rig.barrier(0, 0, &[(1, 1)], true);
    rig.barrier(1, 0, &[(1, 2)], false);
    worker.push(1, UNIT, &[&ones]).unwrap();
    worker.push(2, UNIT, &[&ones]).unwrap();
    let mut values = vec![0.0; ELEMENTS as usize];
    let pulled = worker.pull(ReadCondition::Pinned(1), &mut values).unwrap();
    assert_eq!(pulled.version, 1);
    assert!(values.iter().all(|x| *x == -1.0));
    for newest in [ReadCondition::Pinned(2), ReadCondition::version(2)] {
        values.fill(0.0);
        assert_eq!(worker.pull(newest, &mut values).unwrap().version, 2);
        assert!(values.iter().all(|x| *x == -2.0), "{newest:?}");
    }
    // One that is neither kept nor the newest.
    assert_eq!(worker.pull(ReadCondition::Pinned(0), &mut values).unwrap_err().code(), "E407");
}

#[test]
fn a_cancel_wakes_a_blocked_pull() {
    let rig = Rig::with_job(2, 100);
    let mut worker = rig.worker(1, 100);
    thread::scope(|scope| {
        let blocked = scope.spawn(move || worker.pull(ReadCondition::version(1), &mut [0.0; 100]));
        rig.close();
        assert!(matches!(
            blocked.join().unwrap(),
            Err(PsError::Refused { fault: ShardFault::Closed { .. } })
        ));
    });
    assert!(matches!(
        rig.worker(1, 100).push(1, UNIT, &[&[1.0; 100]]),
        Err(PsError::Refused { fault: ShardFault::Closed { .. } })
    ));
    assert!(matches!(rig.attach(0, EPOCH), Err(ShardFault::Closed { .. })));
}

#[test]
fn the_callers_own_cancel_ends_a_blocked_pull_and_everything_after() {
    let rig = Rig::with_job(2, 100);
    let mut worker = rig.worker(1, 100);
    let cancel_token = worker.cancel_token();
    thread::scope(|scope| {
        let blocked = scope.spawn(move || {
            let first = worker.pull(ReadCondition::version(1), &mut [0.0; 100]);
            (first, worker.push(1, UNIT, &[&[1.0; 100]]))
        });
        cancel_token.cancel();
        let (pull, push) = blocked.join().unwrap();
        assert!(matches!(pull, Err(PsError::Canceled)));
        assert!(matches!(push, Err(PsError::Canceled)));
    });
}

#[test]
fn a_newer_generation_wakes_blocked_pulls_and_refuses_the_old_one() {
    let rig = Rig::with_job(2, 100);
    let mut worker = rig.worker(1, 100);
    worker.push(1, UNIT, &[&[1.0; 100]]).unwrap();
    let initial = rig.blob(&[7.0; 100]);
    thread::scope(|scope| {
        let blocked = scope.spawn(move || (worker.pull(ReadCondition::version(1), &mut [0.0; 100]), worker));
        for state in rig.open(Generation(2), 100, SGD, &initial) {
            let state = state.unwrap();
            assert_eq!(
                (state.generation, state.pushes, state.progress.watermarks.len()),
                (Generation(2), 0, 0)
            );
        }
        let (woken, mut worker) = blocked.join().unwrap();
        let over = |e: &PsError| {
            matches!(
                e,
                PsError::Refused {
                    fault: ShardFault::WrongGeneration { given: FIRST, current: Generation(2), .. }
                }
            )
        };
        assert!(over(&woken.unwrap_err()));
        assert!(over(&worker.push(2, UNIT, &[&[1.0; 100]]).unwrap_err()));
    });
    let late = rig.open(FIRST, 100, SGD, &initial);
    assert!(matches!(late[0], Err(ShardFault::WrongGeneration { .. })));
}

#[test]
fn opening_again_in_the_same_generation_changes_nothing() {
    let rig = Rig::with_job(2, 100);
    rig.worker(1, 100).push(1, UNIT, &[&[1.0; 100]]).unwrap();
    let other = rig.blob(&[7.0; 100]);
    for state in rig.open(FIRST, 100, SGD, &other) {
        assert_eq!(state.unwrap().pushes, 1);
    }
    assert_eq!(look(&rig, 100), [-1.0; 100]);
}

#[test]
fn orders_of_a_past_engine_are_refused() {
    let rig = Rig::with_job(1, 100);
    assert!(rig.attach(0, EngineEpoch(5)).unwrap().is_some());
    let fenced = ShardFault::Fenced { given: EPOCH, highest: EngineEpoch(5) };
    assert_eq!(rig.give(0, EPOCH, barrier(0, 0, &[])), Err(fenced.clone()));
    assert_eq!(rig.attach(0, EPOCH), Err(fenced.clone()));
    assert_eq!(rig.clocks_on(0, 0, &[]), Err(fenced.clone()));
    assert_eq!(rig.closed(0, 0, 0), Err(fenced.clone()));
    assert_eq!(rig.snapshot(0, 1, "x"), Err(fenced));
    assert_eq!(rig.give(0, EngineEpoch(5), barrier(0, 0, &[])), Ok(()));
}

#[test]
fn a_seal_wakes_the_worker_that_waits_and_spares_the_others() {
    let rig = Rig::with_job(2, 100);
    let (mut a, mut b) = (rig.worker(1, 100), rig.worker(2, 100));
    thread::scope(|scope| {
        let sealed = scope.spawn(move || a.pull(ReadCondition::version(1), &mut [0.0; 100]));
        let other = scope.spawn(move || b.pull(ReadCondition::version(1), &mut [0.0; 100]));
        rig.seal(0, 1);
        rig.seal(1, 1);
        assert!(matches!(sealed.join().unwrap(), Err(PsError::Refused { fault: ShardFault::Sealed { .. } })));
        rig.barrier(0, 0, &[], false);
        assert_eq!(other.join().unwrap().unwrap().version, 1);
    });
}
