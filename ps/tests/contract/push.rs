//! Every push counts exactly once, whatever happens to the connection that carries it.

use super::rig::{Cut, Cutter, ROUND, Rig, UNIT, look};
use proptest::prelude::*;
use syncline_ps::{
    PsError,
    shard::{PushHeader, ReadCondition},
};
use syncline_scheduler::ids::Incarnation;

/// Three chunks and a bit on one shard.
const ELEMENTS: u64 = 3 * 65_536 + 1000;

#[test]
fn a_push_reaches_every_shard_and_every_element_once() {
    let rig = Rig::with_job(3, ELEMENTS);
    let mut worker = rig.exact_worker(1, ELEMENTS);
    let gradient: Vec<f32> = (0..ELEMENTS).map(|i| i as f32).collect();
    let (a, rest) = gradient.split_at(70_000);
    let (b, c) = rest.split_at(0);
    assert_eq!(worker.push(1, UNIT, &[a, b, c]).unwrap().pushes, 1);
    let header = PushHeader { learning_rate: 0.5, scale: 0.5, ..UNIT };
    assert_eq!(worker.push(2, header, &[&gradient]).unwrap().pushes, 2);
    let mut values = vec![0.0; ELEMENTS as usize];
    let pulled = worker.pull(ReadCondition::version(0), &mut values).unwrap();
    assert_eq!((pulled.version, pulled.pushes), (0, 2));
    assert!((0..).zip(&values).all(|(i, x)| *x == -1.25 * i as f32));
}

#[test]
fn a_duplicate_push_is_acknowledged_and_applied_once() {
    let rig = Rig::with_job(2, ELEMENTS);
    let ones = vec![1.0; ELEMENTS as usize];
    let mut worker = rig.worker(1, ELEMENTS);
    worker.push(1, UNIT, &[&ones]).unwrap();
    assert_eq!(worker.push(1, UNIT, &[&ones]).unwrap().pushes, 1);
    // The same incarnation on new connections, too.
    assert_eq!(rig.worker(1, ELEMENTS).push(1, UNIT, &[&ones]).unwrap().pushes, 1);
    assert!(look(&rig, ELEMENTS).iter().all(|x| *x == -1.0));
}

#[test]
fn a_pull_asked_for_with_a_push_contains_it_and_may_be_given_up() {
    let rig = Rig::with_job(2, ELEMENTS);
    let ones = vec![1.0; ELEMENTS as usize];
    let mut worker = rig.worker(1, ELEMENTS);
    let mut values = vec![0.0; ELEMENTS as usize];
    let now = ReadCondition::version(0);
    // Read at once; given up; another version wanted instead; a push in between.
    worker.push_and_request(1, UNIT, &[&ones], Some(now)).unwrap();
    assert_eq!(worker.pull(now, &mut values).unwrap().pushes, 1);
    assert!(values.iter().all(|x| *x == -1.0));
    worker.push_and_request(2, UNIT, &[&ones], Some(now)).unwrap();
    worker.drop_requested();
    assert_eq!(worker.pull(now, &mut values).unwrap().pushes, 2);
    worker.push_and_request(3, UNIT, &[&ones], Some(ReadCondition::version(7))).unwrap();
    assert_eq!(worker.pull(now, &mut values).unwrap().pushes, 3);
    worker.push_and_request(4, UNIT, &[&ones], Some(now)).unwrap();
    worker.push(5, UNIT, &[&ones]).unwrap();
    assert_eq!(worker.pull(now, &mut values).unwrap().pushes, 5);
    assert!(values.iter().all(|x| *x == -5.0));
}

#[test]
fn a_gap_in_the_numbers_is_refused_and_the_connection_goes_on() {
    let rig = Rig::with_job(1, 100);
    let mut worker = rig.worker(1, 100);
    let error = worker.push(2, UNIT, &[&[1.0; 100]]).unwrap_err();
    assert_eq!(error.code(), "E405", "{error}");
    worker.push(1, UNIT, &[&[1.0; 100]]).unwrap();
}

#[test]
fn a_skipped_push_counts_and_changes_nothing() {
    for kind in [UNIT, ROUND] {
        let rig = Rig::with_job(2, 1000);
        rig.barrier(0, 0, &[(1, 2)], false);
        let mut worker = rig.worker(1, 1000);
        worker.push(1, PushHeader { skip: true, ..kind }, &[]).unwrap();
        worker.push(2, PushHeader { weight: 0.0, ..kind }, &[&[f32::NAN; 1000]]).unwrap();
        assert_eq!(rig.state(1).progress.watermarks[&Incarnation(1)], 2);
        assert_eq!(rig.state(1).progress.closed, 1);
        assert!(look(&rig, 1000).iter().all(|x| *x == 0.0));
    }
}

#[test]
fn a_push_stands_for_all_the_iterations_it_covers() {
    let rig = Rig::with_job(2, ELEMENTS);
    let ones = vec![1.0; ELEMENTS as usize];
    let mut worker = rig.worker(1, ELEMENTS);
    let four = PushHeader { covers: 4, ..UNIT };
    rig.barrier(0, 0, &[(1, 8)], false);
    worker.push(4, four, &[&ones]).unwrap();
    assert_eq!(rig.state(0).progress.watermarks[&Incarnation(1)], 4);
    // Itself again, over a new connection too, and one that lies within it.
    assert_eq!(worker.push(4, four, &[&ones]).unwrap().pushes, 1);
    assert_eq!(rig.worker(1, ELEMENTS).push(4, four, &[&ones]).unwrap().pushes, 1);
    assert_eq!(worker.push(2, UNIT, &[&ones]).unwrap().pushes, 1);
    for (seq, covers) in [(9, 4), (6, 4), (8, 0), (8, 9), (8, u32::MAX)] {
        let error = worker.push(seq, PushHeader { covers, ..UNIT }, &[&ones]).unwrap_err();
        assert_eq!(error.code(), "E405", "{seq} for {covers}: {error}");
    }
    assert_eq!(rig.state(1).progress.closed, 0);
    worker.push(8, PushHeader { skip: true, ..four }, &[]).unwrap();
    assert_eq!((rig.state(1).progress.closed, rig.state(1).pushes), (1, 2));
    worker.push(9, UNIT, &[&ones]).unwrap();
    assert!(look(&rig, ELEMENTS).iter().all(|x| *x == -2.0));
}

#[test]
fn a_gradient_of_the_wrong_length_is_refused_before_anything_is_sent() {
    let rig = Rig::with_job(1, 100);
    let mut worker = rig.worker(1, 100);
    assert!(matches!(
        worker.push(1, UNIT, &[&[1.0; 99]]),
        Err(PsError::Length { got: 99, expected: 100, .. })
    ));
    assert!(matches!(worker.pull(ReadCondition::version(0), &mut [0.0; 101]), Err(PsError::Length { .. })));
    let mut wrong = rig.worker(1, 96);
    assert_eq!(wrong.push(1, UNIT, &[&[1.0; 96]]).unwrap_err().code(), "E405");
    assert_eq!(rig.state(0).pushes, 0);
}

#[test]
fn more_shards_than_cache_lines_leave_some_shards_empty() {
    let rig = Rig::with_job(3, 10);
    let mut worker = rig.worker(1, 10);
    worker.push(1, UNIT, &[&[2.0; 10]]).unwrap();
    assert!((0..3).all(|shard| rig.state(shard).pushes == 1));
    assert_eq!(look(&rig, 10), [-2.0; 10]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Bytes of greeting and header are within reach of the cuts as well as the last acknowledgement.
    #[test]
    fn a_push_cut_anywhere_resumes_and_is_applied_once(
        cuts in prop::collection::vec(
            prop_oneof![(0u64..4 * ELEMENTS + 400).prop_map(Cut::Up), (0u64..120).prop_map(Cut::Down)],
            1..4,
        ),
        shards in 1u32..3,
        asked in any::<bool>(),
        covers in 1u32..4,
    ) {
        let rig = Rig::with_job(shards, ELEMENTS);
        let cutter = Cutter::start(rig.shards[0].address(), &rig.token, cuts);
        let mut addresses = rig.addresses();
        addresses[0] = cutter.address.clone();
        let mut worker = rig.worker_at(&addresses, 1, ELEMENTS);
        let ones = vec![1.0; ELEMENTS as usize];
        let mut values = vec![0.0; ELEMENTS as usize];
        let header = PushHeader { covers, ..UNIT };
        for count in 1..=3 {
            let (seq, next) = (count * u64::from(covers), asked.then_some(ReadCondition::version(0)));
            let pushed = worker.push_and_request(seq, header, &[&ones], next).unwrap();
            prop_assert_eq!(pushed.pushes, count);
            let pulled = worker.pull(ReadCondition::version(0), &mut values).unwrap();
            prop_assert_eq!(pulled.pushes, count);
            prop_assert!(values.iter().all(|x| *x == -(count as f32)));
        }
    }
}
