//! Who serves, who follows, and who is refused.

use super::*;

#[test]
fn of_two_new_processes_the_first_serves_and_a_third_is_refused_after_a_moment() {
    let mut shard = pair(0);
    assert_eq!(shard.role(&fresh(3)), "undecided");
    shard.wait(FAILOVER_SILENCE + Duration::from_millis(1));
    assert_eq!((shard.role(&fresh(2)), shard.role(&fresh(3))), ("standby", "taken"));
}

#[test]
fn a_process_whose_shard_has_but_one_is_refused_beside_it() {
    let alone = |n| ShardHello { replicas: 1, ..fresh(n) };
    let mut shard = Shard::new();
    assert_eq!(
        (shard.role(&alone(1)), shard.role(&alone(2)), shard.role(&fresh(3))),
        ("primary", "taken", "taken")
    );
}

#[test]
fn the_successor_of_a_standby_that_has_died_follows_as_soon_as_that_one_is_silent() {
    let mut shard = pair(1);
    assert_eq!(shard.role(&fresh(3)), "undecided");
    shard.wait(FAILOVER_SILENCE + Duration::from_millis(1));
    assert_eq!(shard.role(&fresh(3)), "standby");
}

#[test]
fn whoever_comes_after_the_primary_has_died_makes_the_standby_serve() {
    // At the same address as the dead one, and elsewhere.
    for (address, answers) in [("here:1", true), ("here:9", false)] {
        let mut shard = pair(1);
        let again = ShardHello { address: address.into(), ..fresh(9) };
        assert_eq!(shard.announce(&again, answers), Decision::PromoteStandby);
        let (standby, term) = shard.slots.candidate(ShardIndex(0)).unwrap();
        shard.slots.promoted(standby, term);
        assert_eq!(shard.role(&as_primary(term, fresh(2))), "primary");
        assert_eq!(shard.role(&again), "standby");
    }
}

#[test]
fn it_is_known_where_the_other_process_was_that_is_gone() {
    let mut shard = pair(1);
    shard.wait(STANDBY_GONE_AFTER + Duration::from_millis(1));
    assert_eq!(shard.role(&with_jobs(1, fresh(1))), "primary");
    let index = ShardIndex(0);
    assert!(shard.slots.standby(index).is_none());
    assert_eq!(shard.slots.second_was(index), Some("here:2"));

    let mut shard = pair(1);
    let (standby, term) = shard.slots.candidate(index).unwrap();
    shard.slots.promoted(standby, term);
    assert_eq!(shard.slots.second_was(index), Some("here:1"), "that served");
}

#[test]
fn one_that_wakes_after_another_took_its_place_follows_that_one() {
    let mut shard = pair(1);
    let (standby, term) = shard.slots.candidate(ShardIndex(0)).unwrap();
    shard.slots.promoted(standby, term);
    assert_eq!(shard.role(&as_primary(1, fresh(1))), "standby");
    // A new engine hears of the stale one first.
    let mut shard = Shard::new();
    assert_eq!(shard.role(&as_primary(1, fresh(1))), "primary");
    assert_eq!(shard.role(&as_primary(term, fresh(2))), "primary");
    assert_eq!(shard.role(&as_primary(1, fresh(1))), "standby");
}

#[test]
fn a_new_engine_changes_nothing_about_a_pair_of_which_the_standby_comes_first() {
    let primary = ShardHello { follower: Some(8), ..with_jobs(1, as_primary(7, fresh(1))) };
    let standby = with_jobs(1, as_standby(8, fresh(2)));
    let mut shard = Shard::new();
    for hello in [&standby, &primary] {
        shard.announce(hello, true);
    }
    let peer = |address: &str, term| Some(ShardPeer { address: address.into(), term });
    let role = |role, peer| Decision::Role { role, peer, new: false };
    let told = [shard.announce(&primary, true), shard.announce(&standby, true)];
    let (one, two) = (ReplicaRole::Primary { term: 7 }, ReplicaRole::Standby { term: 8 });
    assert_eq!(told, [role(one, peer("here:2", 8)), role(two, peer("here:1", 7))]);
}

#[test]
fn a_standby_of_which_a_new_engine_hears_after_the_primary_has_nothing_until_it_follows_anew() {
    let (primary, standby) = (with_jobs(1, as_primary(7, fresh(1))), with_jobs(1, as_standby(8, fresh(2))));
    let mut shard = Shard::new();
    // It goes on alone from here on.
    assert!(matches!(shard.announce(&primary, true), Decision::Role { peer: None, .. }));
    let again = match shard.announce(&standby, true) {
        Decision::Role { role: ReplicaRole::Standby { term }, .. } => term,
        other => panic!("{other:?}"),
    };
    assert!(again > 8);
    let mut is_ready = |hello: &ShardHello| {
        shard.announce(hello, true);
        shard.slots.standby(ShardIndex(0)).unwrap().is_ready()
    };
    assert!(!is_ready(&standby), "it says what it had under its earlier term");
    assert!(is_ready(&as_standby(again, standby)));
}

#[test]
fn a_standby_drops_what_it_has_where_a_process_serves_that_never_had_it() {
    let mut shard = pair(1);
    let old = shard.slots.standby(ShardIndex(0)).unwrap().term;
    // It was restarted with more jobs than the standby has.
    let again = with_jobs(2, ShardHello { boot: 11, ..fresh(1) });
    assert_eq!(shard.role(&again), "primary");
    assert!(!shard.slots.standby(ShardIndex(0)).unwrap().is_ready());
    match shard.announce(&as_standby(old, with_jobs(1, fresh(2))), true) {
        Decision::Role { role: ReplicaRole::Standby { term }, .. } => assert!(term > old),
        other => panic!("{other:?}"),
    }
    assert!(!shard.slots.standby(ShardIndex(0)).unwrap().is_ready());
}

#[test]
fn a_promotion_whose_answer_was_lost_is_found_out() {
    let mut shard = pair(1);
    let (_, term) = shard.slots.candidate(ShardIndex(0)).unwrap();
    shard.slots.noted(ShardIndex(0), RoleNote::TakenOver(term));
    // It is asked again before it can say so.
    assert_eq!(shard.slots.candidate(ShardIndex(0)).unwrap().1, term);
    assert_eq!(shard.role(&as_primary(term, fresh(2))), "primary");
    assert_eq!(shard.role(&as_primary(1, fresh(1))), "standby");
}

#[test]
fn what_a_process_said_before_it_was_told_to_follow_changes_nothing_when_it_comes_late() {
    let mut shard = pair(1);
    let (standby, term) = shard.slots.candidate(ShardIndex(0)).unwrap();
    shard.slots.promoted(standby, term);
    let served = as_primary(EPOCH.0 * TERMS_PER_EPOCH + 1, with_jobs(1, fresh(1)));
    assert_eq!(shard.role(&served), "standby", "another took its place");
    let follows = shard.slots.standby(ShardIndex(0)).unwrap().term;
    assert_eq!(shard.role(&as_standby(follows, with_jobs(1, fresh(1)))), "standby");
    // TCP delivers what it had kept while the network was cut.
    assert_eq!(shard.role(&served), "standby");
    let standby = shard.slots.standby(ShardIndex(0)).unwrap();
    assert_eq!((standby.term, standby.hello.jobs), (follows, 1), "it has what it had");
    shard.wait(FAILOVER_SILENCE + Duration::from_millis(1));
    shard.slots.note_alive(&fresh(1), shard.now);
    assert_eq!(shard.slots.failovers_due(shard.now, Duration::from_secs(30)), [ShardIndex(0)]);
}

/// Both were stopped cleanly, one soon after the other: the second one had no time to get anything of the
/// first.
#[test]
fn what_a_process_kept_before_it_was_told_to_follow_does_not_count_as_the_primarys() {
    let mut shard = Shard::new();
    assert_eq!(shard.role(&as_primary(5, with_jobs(1, fresh(1)))), "primary");
    assert_eq!(shard.role(&with_jobs(1, fresh(2))), "standby");
    let back = ShardHello { identity: 1, ..with_jobs(1, fresh(3)) };
    let decision = shard.announce(&back, false);
    assert!(
        matches!(decision, Decision::Role { role: ReplicaRole::Primary { .. }, .. }),
        "it alone has the job: {decision:?}"
    );
}
