//! Pulls that wait until the slowest worker has come far enough.

use syncline_ps::{client::ShardSet, shard::ReadCondition};

use super::rig::{Rig, UNIT};

const ELEMENTS: u64 = 100;

fn clock(min_clock: u64) -> ReadCondition {
    ReadCondition::Version { closed: 0, min_clock }
}

/// Pushes number `seq`, asks at once for `want`, and leaves the answer for [`served_after`].
fn push_and_wait(worker: &mut ShardSet, seq: u64, want: ReadCondition) {
    worker.push_and_request(seq, UNIT, &[&[1.0; ELEMENTS as usize]], Some(want)).unwrap();
}

fn push(worker: &mut ShardSet, seq: u64) {
    worker.push(seq, UNIT, &[&[1.0; ELEMENTS as usize]]).unwrap();
}

/// Pushes of all workers that were in when the pull was let through: one let through too early shows fewer.
fn served_after(worker: &mut ShardSet, want: ReadCondition) -> u64 {
    worker.pull(want, &mut [0.0; ELEMENTS as usize]).unwrap().pushes
}

#[test]
fn a_pull_is_let_through_by_the_push_that_brings_the_slowest_to_its_clock() {
    let rig = Rig::with_job(2, ELEMENTS);
    let [mut fast, mut middle, mut slow] = [1, 2, 3].map(|w| rig.worker(w, ELEMENTS));
    rig.clocks(0, &[(1, 0), (2, 0), (3, 0)]);
    push(&mut fast, 1);
    push_and_wait(&mut fast, 2, clock(2));
    push(&mut middle, 1);
    push(&mut middle, 2);
    push(&mut slow, 1);
    push_and_wait(&mut middle, 3, clock(1));
    assert_eq!(served_after(&mut middle, clock(1)), 6, "clock 1 is reached already");
    push(&mut slow, 2);
    assert_eq!(served_after(&mut fast, clock(2)), 7);
}

#[test]
fn a_pull_may_wait_for_a_barrier_and_a_clock_together() {
    let rig = Rig::with_job(2, ELEMENTS);
    let [mut a, mut b] = [1, 2].map(|w| rig.worker(w, ELEMENTS));
    let both = ReadCondition::Version { closed: 1, min_clock: 2 };
    rig.clocks(0, &[(1, 0), (2, 0)]);
    push(&mut a, 1);
    push_and_wait(&mut a, 2, both);
    push(&mut b, 1);
    push(&mut b, 2);
    push(&mut b, 3);
    rig.barrier(0, 0, &[(1, 2), (2, 3)], false);
    assert_eq!(served_after(&mut a, both), 5);
}

#[test]
fn nothing_is_served_before_a_roster_and_an_empty_one_holds_nobody_back() {
    let rig = Rig::with_job(2, ELEMENTS);
    let [mut a, mut b] = [1, 2].map(|w| rig.worker(w, ELEMENTS));
    push_and_wait(&mut a, 1, clock(1));
    for seq in 1..=3 {
        push(&mut b, seq);
    }
    assert_eq!(served_after(&mut b, ReadCondition::version(0)), 4, "who asks for no clock needs no roster");
    rig.clocks(0, &[]);
    assert_eq!(served_after(&mut a, clock(1)), 4);
    push_and_wait(&mut a, 2, clock(u64::MAX));
    assert_eq!(served_after(&mut a, clock(u64::MAX)), 5);
}

#[test]
fn a_seal_of_the_slowest_lets_the_others_through() {
    let rig = Rig::with_job(2, ELEMENTS);
    let [mut a, mut b, mut slow] = [1, 2, 3].map(|w| rig.worker(w, ELEMENTS));
    rig.clocks(0, &[(1, 0), (2, 0), (3, 0)]);
    push(&mut slow, 1);
    push(&mut a, 1);
    push_and_wait(&mut a, 2, clock(2));
    push(&mut b, 1);
    push(&mut b, 2);
    rig.seal(0, 3);
    rig.seal(1, 3);
    assert_eq!(served_after(&mut a, clock(2)), 5);
    // It stays out, whatever roster still names it.
    rig.clocks(1, &[(1, 0), (2, 0), (3, 0)]);
    push_and_wait(&mut b, 3, clock(2));
    assert_eq!(served_after(&mut b, clock(2)), 6);
}

#[test]
fn a_joiner_counts_from_its_base() {
    let rig = Rig::with_job(2, ELEMENTS);
    let [mut a, mut late] = [1, 9].map(|w| rig.worker(w, ELEMENTS));
    rig.clocks(0, &[(1, 0)]);
    for seq in 1..=3 {
        push(&mut a, seq);
    }
    rig.clocks(1, &[(1, 0), (9, 2)]);
    push_and_wait(&mut a, 4, clock(2));
    assert_eq!(served_after(&mut a, clock(2)), 4);
    push_and_wait(&mut a, 5, clock(3));
    push(&mut late, 1);
    assert_eq!(served_after(&mut a, clock(3)), 6);
}

#[test]
fn a_higher_revision_replaces_the_roster_and_a_late_one_does_not() {
    let rig = Rig::with_job(2, ELEMENTS);
    let mut a = rig.worker(1, ELEMENTS);
    rig.clocks(1, &[(1, 0), (2, 0)]);
    push_and_wait(&mut a, 1, clock(1));
    rig.clocks(2, &[(1, 0)]);
    assert_eq!(served_after(&mut a, clock(1)), 1);
    rig.clocks(1, &[(1, 0), (2, 0)]);
    push_and_wait(&mut a, 2, clock(2));
    assert_eq!(served_after(&mut a, clock(2)), 2);
}
