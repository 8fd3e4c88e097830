//! A primary goes on without its standby, which then begins again.

use super::*;

#[test]
fn a_standby_that_was_forgotten_keeps_what_it_has_unless_the_primary_went_on_without_it() {
    for goes_on in [false, true] {
        let mut shard = pair(1);
        let (standby, _) = shard.slots.candidate(ShardIndex(0)).unwrap();
        shard.slots.follows_nobody(&standby, shard.now);
        if goes_on {
            shard.role(&with_jobs(1, fresh(1)));
        }
        shard.slots.forget(ShardIndex(0), shard.now);
        match shard.announce(&following(with_jobs(1, fresh(2))), true) {
            Decision::Role { role, .. } => assert_eq!(role.term() > standby.term, goes_on, "{role:?}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_standby_that_its_primary_has_lost_begins_again_under_another_term() {
    let mut shard = pair(1);
    let term = shard.slots.standby(ShardIndex(0)).unwrap().term;
    let lost = ShardHello { lost: Some(term), ..with_jobs(1, fresh(1)) };
    assert_eq!(shard.announce(&lost, true), Decision::LetGo(term));
    shard.slots.noted(ShardIndex(0), RoleNote::LetGo(term));
    assert!(matches!(shard.announce(&lost, true), Decision::Role { peer: None, .. }));
    match shard.announce(&as_standby(term, fresh(2)), true) {
        Decision::Role { role: ReplicaRole::Standby { term: again }, .. } => assert!(again > term),
        other => panic!("{other:?}"),
    }
}

/// The engine cannot know that it still leads before Redis says so.
#[test]
fn a_primary_goes_on_without_its_standby_only_once_redis_knows() {
    let mut shard = pair(1);
    let term = shard.slots.standby(ShardIndex(0)).unwrap().term;
    let has = ShardHello { follower: Some(term), ..with_jobs(1, fresh(1)) };
    assert_eq!(shard.role(&has), "primary", "with its standby");
    let lost = ShardHello { lost: Some(term), ..has };
    for _ in 0..2 {
        assert_eq!(shard.announce(&lost, true), Decision::LetGo(term));
        assert!(shard.slots.standby(ShardIndex(0)).is_some_and(|standby| standby.term == term));
    }
    shard.slots.noted(ShardIndex(0), RoleNote::LetGo(term));
    assert!(matches!(shard.announce(&lost, true), Decision::Role { peer: None, .. }));
    assert_eq!(shard.announce(&lost, true), shard.announce(&lost, true), "it is not asked for again");
}

/// With no job in step the primary itself does not find out.
#[test]
fn a_standby_that_hangs_is_let_go_and_begins_again_when_it_wakes() {
    let mut shard = pair(1);
    let term = shard.slots.standby(ShardIndex(0)).unwrap().term;
    let primary = ShardHello { follower: Some(term), ..with_jobs(1, fresh(1)) };
    shard.wait(STANDBY_GONE_AFTER);
    assert_eq!(shard.role(&primary), "primary", "with its standby");
    shard.wait(Duration::from_millis(1));
    assert_eq!(shard.announce(&primary, true), Decision::LetGo(term));
    assert!(shard.slots.standby(ShardIndex(0)).is_some(), "Redis does not know yet");
    shard.slots.noted(ShardIndex(0), RoleNote::LetGo(term));
    assert!(matches!(shard.announce(&primary, true), Decision::Role { peer: None, .. }));
    match shard.announce(&following(with_jobs(1, fresh(2))), true) {
        Decision::Role { role: ReplicaRole::Standby { term: again }, .. } => assert!(again > term),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_standby_that_wakes_while_redis_is_told_that_it_was_let_go_begins_again_all_the_same() {
    let mut shard = pair(1);
    let term = shard.slots.standby(ShardIndex(0)).unwrap().term;
    let primary = ShardHello { follower: Some(term), ..with_jobs(1, fresh(1)) };
    shard.wait(STANDBY_GONE_AFTER + Duration::from_millis(1));
    assert_eq!(shard.announce(&primary, true), Decision::LetGo(term));
    let awake = following(with_jobs(1, fresh(2)));
    assert_eq!(shard.role(&awake), "standby");
    assert_eq!(shard.announce(&primary, true), Decision::LetGo(term), "until Redis knows");
    shard.slots.noted(ShardIndex(0), RoleNote::LetGo(term));
    assert!(matches!(shard.announce(&primary, true), Decision::Role { peer: None, .. }));
    match shard.announce(&awake, true) {
        Decision::Role { role: ReplicaRole::Standby { term: again }, .. } => assert!(again > term),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_new_engine_lets_the_standby_of_a_primary_go_no_sooner_than_redis_knows() {
    let primary = ShardHello { follower: Some(8), ..with_jobs(1, as_primary(7, fresh(1))) };
    let mut shard = Shard::new();
    assert_eq!(shard.announce(&primary, true), Decision::LetGo(8));
    assert!(shard.slots.primary(ShardIndex(0)).is_none());
    shard.slots.noted(ShardIndex(0), RoleNote::LetGo(8));
    assert_eq!(shard.role(&primary), "primary");
}

#[test]
fn a_standby_that_was_let_go_before_a_new_engine_began_does_not_serve_with_what_it_had() {
    let standby = with_jobs(1, as_standby(8, fresh(2)));
    for (let_go, keeps) in [(7, true), (8, false), (9, false)] {
        let mut shard = Shard::new();
        let notes = RoleNotes { let_go: [(ShardIndex(0), let_go)].into(), ..RoleNotes::default() };
        shard.slots = ShardSlots::new(EPOCH, notes, 1, shard.now);
        shard.announce(&standby, true);
        let known = shard.slots.standby(ShardIndex(0)).unwrap();
        assert_eq!((known.term == 8, known.is_ready()), (keeps, keeps), "{let_go}");
    }
}
