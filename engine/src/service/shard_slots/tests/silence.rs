//! Who is silent, or answers no order, makes way.

use syncline_rpc::DiskState;

use super::*;

#[test]
fn a_primary_that_is_silent_makes_way_where_the_standby_has_all_jobs() {
    for (jobs, due) in [(1, vec![ShardIndex(0)]), (2, Vec::new())] {
        let mut shard = pair(1);
        shard.role(&with_jobs(jobs, fresh(1)));
        let silence = Duration::from_secs(30);
        shard.wait(FAILOVER_SILENCE);
        shard.role(&following(with_jobs(1, fresh(2))));
        assert_eq!(shard.slots.failovers_due(shard.now, silence), []);
        shard.wait(Duration::from_millis(1));
        assert_eq!(shard.slots.failovers_due(shard.now, silence), due, "{jobs} jobs");
        shard.wait(silence);
        assert_eq!(shard.slots.failovers_due(shard.now, silence), [], "the standby is silent as well");
        shard.role(&following(with_jobs(1, fresh(2))));
        assert_eq!(shard.slots.failovers_due(shard.now, silence), [ShardIndex(0)]);
    }
}

#[test]
fn a_standby_without_jobs_serves_in_no_upgrade_while_the_process_that_has_them_is_refused() {
    for (jobs, waits) in [(0, true), (1, false)] {
        let mut shard = pair(1);
        shard.role(&with_jobs(1, fresh(1)));
        let (silence, second) = (Duration::from_secs(30), Duration::from_secs(1));
        let mut due = |waited: Duration, calls: bool| {
            for _ in 0..waited.as_secs() {
                shard.wait(second);
                if calls {
                    shard.slots.note_foreign(shard.now);
                }
                shard.role(&following(with_jobs(jobs, fresh(2))));
            }
            !shard.slots.failovers_due(shard.now, silence).is_empty()
        };
        assert_eq!(due(silence, true), !waits, "{jobs} jobs");
        assert_eq!(due(FOREIGN_PAUSE, false), !waits);
        assert!(due(second, false), "it calls no more");
        assert_eq!(due(FOREIGN_PATIENCE, true), !waits);
        assert!(due(2 * second, true), "somebody calls forever");
    }
}

#[test]
fn a_shard_that_nobody_serves_from_the_begin_on_is_named_once_after_the_silence() {
    let silence = Duration::from_secs(30);
    let mut two = Shard::new();
    // One has a process, which does not serve yet.
    assert_eq!(two.role(&fresh(1)), "undecided");
    two.wait(silence);
    assert_eq!(two.slots.take_never_served(two.now, silence), [].into());
    assert_eq!(two.slots.awaited_for(ShardIndex(1), two.now), Some(silence));
    two.wait(Duration::from_millis(1));
    assert_eq!(two.role(&fresh(1)), "primary");
    assert_eq!(two.slots.take_never_served(two.now, silence), [ShardIndex(1)].into());
    assert_eq!(two.slots.take_never_served(two.now, silence), [].into(), "again");
    assert_eq!([0, 1].map(|index| two.slots.awaited_for(ShardIndex(index), two.now)), [None, None]);
}

#[test]
fn time_in_which_the_engine_was_not_awake_is_no_silence_of_a_shard_that_was_never_there() {
    let (silence, mut two) = (Duration::from_secs(30), Shard::new());
    two.wait(2 * silence);
    two.slots.extend_deadlines(2 * silence, two.now);
    assert_eq!(two.slots.take_never_served(two.now, silence), [].into());
}

#[test]
fn of_an_order_that_is_repeated_the_last_outcome_is_known_unless_another_was_answered_meanwhile() {
    let begun = Instant::now();
    let shown = |orders: &UnansweredOrders| orders.note().map(|order| (order.since, order.cause.clone()));
    let refused = Unanswered {
        cause: "refused".into(),
        kind: NoAnswer::Refusal,
        ..lost(begun + Duration::from_secs(1))
    };
    let mut orders = UnansweredOrders::default();
    let order = orders.failed(lost(begun));
    orders.failed_again(order, refused.clone());
    assert_eq!(shown(&orders), Some((begun, "refused".into())));
    orders.answered();
    orders.failed_again(order, refused);
    assert_eq!(shown(&orders), None);
}

#[test]
fn an_order_that_is_given_up_says_nothing_and_takes_nothing_from_what_the_others_say() {
    let (begun, later) = (Instant::now(), Instant::now() + Duration::from_secs(1));
    let since = |orders: &UnansweredOrders| orders.note().map(|order| order.since);
    let mut orders = UnansweredOrders::default();
    let (first, second) = (orders.failed(lost(begun)), orders.failed(lost(later)));
    orders.given_up(first);
    orders.failed_again(second, lost(later));
    assert_eq!(since(&orders), Some(begun), "it has answered nobody since");
    orders.answered();
    let third = orders.failed(lost(later));
    orders.given_up(second);
    assert_eq!(since(&orders), Some(later), "what failed before the answer does not count");
    orders.given_up(third);
    assert_eq!(since(&orders), None, "nobody waits");
}

fn lost(since: Instant) -> Unanswered {
    Unanswered { since, cause: "lost".into(), kind: NoAnswer::Silence }
}

#[test]
fn a_primary_that_announces_itself_and_answers_no_order_makes_way_after_half_of_the_silence() {
    let (index, silence) = (ShardIndex(0), Duration::from_secs(30));
    for (answers_later, due) in [(false, vec![index]), (true, Vec::new())] {
        let mut shard = pair(1);
        let a_second_later = |shard: &mut Shard| {
            shard.wait(Duration::from_secs(1));
            shard.role(&with_jobs(1, fresh(1)));
            shard.role(&following(with_jobs(1, fresh(2))));
            // What another process answered counts for nothing; of orders that are not answered the first one
            // counts.
            assert!(shard.slots.unanswered_mut(index, 77).is_none());
            let orders = shard.slots.unanswered_mut(index, 1).unwrap();
            let _ = orders.failed(lost(shard.now));
            if answers_later {
                orders.answered();
            }
        };
        let _ = shard.slots.unanswered_mut(index, 1).unwrap().failed(lost(shard.now));
        for _ in 0..15 {
            a_second_later(&mut shard);
            assert_eq!(shard.slots.failovers_due(shard.now, silence), [], "both are heard");
        }
        a_second_later(&mut shard);
        assert_eq!(shard.slots.failovers_due(shard.now, silence), due, "answers later: {answers_later}");
    }
}

#[test]
fn a_standby_that_has_some_of_the_jobs_serves_before_the_shard_counts_as_lost() {
    let (mut shard, silence) = (pair(1), Duration::from_secs(30));
    shard.role(&with_jobs(2, fresh(1)));
    // The primary may only sleep, and the other job would be lost.
    shard.wait(silence - silence / LAST_MOMENT);
    shard.role(&following(with_jobs(1, fresh(2))));
    assert_eq!(shard.slots.failovers_due(shard.now, silence), []);
    shard.wait(Duration::from_millis(1));
    assert_eq!(shard.slots.failovers_due(shard.now, silence), [ShardIndex(0)]);
}

#[test]
fn a_standby_that_says_that_it_follows_nobody_is_forgotten_at_once() {
    let mut shard = pair(1);
    let (standby, _) = shard.slots.candidate(ShardIndex(0)).unwrap();
    shard.slots.follows_nobody(&standby, shard.now);
    assert!(shard.slots.standby(ShardIndex(0)).is_none());
}

/// It may still wait for an answer of the engine that led before.
#[test]
fn a_new_engine_waits_longer_for_a_primary_that_it_has_never_heard() {
    let (mut shard, silence) = (Shard::new(), Duration::from_secs(30));
    let standby = with_jobs(1, as_standby(8, fresh(2)));
    shard.role(&standby);
    for due in [vec![], vec![ShardIndex(0)]] {
        shard.wait(UNHEARD_SILENCE / 2 + Duration::from_millis(1));
        shard.role(&standby);
        assert_eq!(shard.slots.failovers_due(shard.now, silence), due);
    }
}

#[test]
fn a_process_that_only_lives_keeps_its_place_and_nothing_but_its_disk_changes() {
    let (mut shard, silence) = (pair(1), Duration::from_secs(30));
    let term = shard.slots.standby(ShardIndex(0)).unwrap().term;
    shard.wait(FAILOVER_SILENCE + Duration::from_millis(1));
    let full = DiskState { problem: Some("read-only".to_owned()), ..DiskState::default() };
    let hello = ShardHello { lost: Some(term), disk: full.clone(), ..fresh(1) };
    shard.slots.note_alive(&hello, shard.now);
    assert_eq!(
        shard.slots.primary(ShardIndex(0)).unwrap().hello.disk,
        full,
        "what it says of its disk is so"
    );
    shard.slots.note_alive(&fresh(2), shard.now);
    assert_eq!(shard.slots.failovers_due(shard.now, silence), []);
    assert_eq!(shard.slots.standby(ShardIndex(0)).unwrap().term, term);
    shard.slots.note_alive(&fresh(3), shard.now);
    assert!(!shard.slots.knows(&fresh(3)));
}

#[test]
fn a_standby_that_does_not_take_over_delays_no_other_shard() {
    let (mut shard, second) = (pair(1), |hello| ShardHello { index: ShardIndex(1), ..hello });
    for n in [1, 2, 1, 2] {
        shard.role(&second(with_jobs(u64::from(n == 1), fresh(n))));
    }
    let term = shard.slots.standby(ShardIndex(1)).unwrap().term;
    shard.wait(FAILOVER_SILENCE + Duration::from_millis(1));
    shard.role(&following(with_jobs(1, fresh(2))));
    shard.role(&second(as_standby(term, with_jobs(1, fresh(2)))));
    let due = shard.slots.failovers_due(shard.now, Duration::from_secs(30));
    assert_eq!(due, [ShardIndex(0), ShardIndex(1)]);
}
