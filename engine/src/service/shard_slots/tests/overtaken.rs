//! A process that served before another took over, or may have: the engine that let it do so is gone, or has
//! no answer.

use super::*;

/// A new engine that reads this note.
fn after(taken_over: u64) -> Shard {
    let mut shard = Shard::new();
    let notes = RoleNotes { taken_over: [(ShardIndex(0), taken_over)].into(), ..RoleNotes::default() };
    shard.slots = ShardSlots::new(EPOCH, notes, 1, shard.now);
    shard
}

/// Process 1 served under term 7; the one that followed it under 8 was let serve under 9.
fn served_before() -> ShardHello {
    ShardHello { follower: Some(8), ..with_jobs(1, as_primary(7, fresh(1))) }
}

#[test]
fn who_served_before_another_took_over_waits_for_that_one_and_follows_it() {
    let mut shard = after(9);
    assert_eq!(shard.role(&served_before()), "overtaken");
    let later = with_jobs(1, as_primary(9, fresh(2)));
    assert_eq!(shard.role(&later), "primary");
    assert_eq!(shard.role(&served_before()), "standby");
}

#[test]
fn who_served_before_goes_on_with_the_one_that_was_to_take_over_and_has_not() {
    let mut shard = after(9);
    assert_eq!(shard.role(&with_jobs(1, as_standby(8, fresh(2)))), "standby");
    assert_eq!(shard.role(&served_before()), "primary", "nothing has happened that it does not know of");
    shard.wait(STANDBY_GONE_AFTER + Duration::from_millis(1));
    assert_eq!(shard.role(&served_before()), "overtaken", "that one may have been told to serve meanwhile");
}

#[test]
fn who_served_before_serves_again_once_the_other_one_was_awaited_in_vain_and_that_one_follows_then() {
    let mut shard = after(9);
    assert_eq!(shard.role(&served_before()), "overtaken");
    shard.wait(OVERTAKER_PATIENCE - Duration::from_millis(1));
    assert_eq!(shard.role(&served_before()), "overtaken");
    shard.wait(Duration::from_millis(1));
    assert_eq!(shard.role(&served_before()), "takes back");
    let term = shard.slots.next_term();
    shard.slots.noted(ShardIndex(0), RoleNote::TakenOver(term));
    shard.slots.taken_back(&served_before(), term);
    assert_eq!(shard.announce(&served_before(), true), Decision::LetGo(8), "what that one has is old");
    shard.slots.noted(ShardIndex(0), RoleNote::LetGo(8));
    match shard.announce(&served_before(), true) {
        Decision::Role { role: ReplicaRole::Primary { term: told }, .. } => assert_eq!(told, term),
        other => panic!("{other:?}"),
    }
    assert_eq!(shard.role(&served_before()), "primary", "it has not heard of its term yet");
    assert_eq!(shard.role(&with_jobs(1, as_primary(9, fresh(2)))), "standby");
    assert_eq!(shard.slots.notes().taken_over, [(ShardIndex(0), term)].into());
}

#[test]
fn a_standby_that_says_that_it_follows_nobody_keeps_no_primary_waiting() {
    let mut shard = pair(1);
    let (standby, term) = shard.slots.candidate(ShardIndex(0)).unwrap();
    shard.slots.noted(ShardIndex(0), RoleNote::TakenOver(term));
    let follower = Some(standby.term);
    let primary = ShardHello { follower, lost: follower, ..with_jobs(1, as_primary(1, fresh(1))) };
    assert_eq!(shard.role(&primary), "overtaken", "no answer has come yet");
    shard.slots.follows_nobody(&standby, shard.now);
    assert_eq!(shard.role(&primary), "takes back");
}

#[test]
fn who_serves_under_the_noted_term_or_a_later_one_waits_for_nobody() {
    for term in [9, 10] {
        assert_eq!(after(9).role(&with_jobs(1, as_primary(term, fresh(1)))), "primary", "{term}");
    }
}
