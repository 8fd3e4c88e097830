//! Processes of a shard that come, go and come back, one table or sequence each.

use super::*;

const EPOCH: EngineEpoch = EngineEpoch(2);

/// The processes of one shard, and a clock that only tests move.
struct Shard {
    slots: ShardSlots<()>,
    now: Instant,
}

impl Shard {
    fn new() -> Self {
        Self { slots: ShardSlots::new(EPOCH, BTreeMap::new()), now: Instant::now() }
    }

    /// Announces a process, of which the primary says so if it is asked.
    fn announce(&mut self, hello: &ShardHello, primary_answers: bool) -> Decision {
        let decision = self.slots.announce(hello, None, self.now, || ());
        match decision {
            Decision::AskPrimary => self.slots.announce(hello, Some(primary_answers), self.now, || ()),
            other => other,
        }
    }

    fn role(&mut self, hello: &ShardHello) -> &'static str {
        match self.announce(hello, true) {
            Decision::Role { role: ReplicaRole::Primary { .. }, .. } => "primary",
            Decision::Role { role: ReplicaRole::Standby { .. }, .. } => "standby",
            Decision::Role { role: ReplicaRole::Undecided, .. } => "undecided",
            Decision::PromoteStandby => "promotes",
            Decision::Taken(_) => "taken",
            Decision::AskPrimary => unreachable!("it was asked"),
            Decision::LetGo(_) => "lets go",
        }
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
    }
}

/// Process `n`, as it comes after its start.
fn fresh(n: u64) -> ShardHello {
    ShardHello { replicas: 2, ..ShardHello::alone(ShardIndex(0), 1, format!("here:{n}"), n) }
}

fn with_jobs(jobs: u64, hello: ShardHello) -> ShardHello {
    ShardHello { jobs, ..hello }
}

fn as_primary(term: u64, hello: ShardHello) -> ShardHello {
    ShardHello { role: Some(ReplicaRole::Primary { term }), ..hello }
}

fn as_standby(term: u64, hello: ShardHello) -> ShardHello {
    ShardHello { role: Some(ReplicaRole::Standby { term }), ..hello }
}

/// What the standby of a [`pair`] says once it follows.
fn following(hello: ShardHello) -> ShardHello {
    as_standby(EPOCH.0 * TERMS_PER_EPOCH + 2, hello)
}

/// A primary 1 and its standby 2, which follows so many jobs.
fn pair(jobs: u64) -> Shard {
    let mut shard = Shard::new();
    for (n, role) in [(1, "undecided"), (2, "undecided"), (1, "primary"), (2, "standby")] {
        assert_eq!(shard.role(&fresh(n)), role, "{n}");
    }
    assert_eq!(shard.role(&with_jobs(jobs, fresh(1))), "primary");
    assert_eq!(shard.role(&following(with_jobs(jobs, fresh(2)))), "standby");
    shard
}

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
fn of_an_order_that_is_repeated_the_last_outcome_is_known_unless_another_was_answered_meanwhile() {
    let (index, mut shard) = (ShardIndex(0), pair(1));
    let shown = |shard: &Shard| {
        let order = shard.slots.primary(index).unwrap().unanswered.clone();
        order.map(|order| (order.since, order.cause))
    };
    let (begun, later) = (shard.now, shard.now + Duration::from_secs(1));
    let refused = Unanswered { cause: "refused".into(), is_refusal: true, ..lost(later) };
    shard.slots.note_order(index, 1, Some(lost(begun)));
    shard.slots.note_repeated_order(index, 1, refused.clone());
    assert_eq!(shown(&shard), Some((begun, "refused".into())));
    shard.slots.note_order(index, 1, None);
    shard.slots.note_repeated_order(index, 1, refused);
    assert_eq!(shown(&shard), None);
}

fn lost(since: Instant) -> Unanswered {
    Unanswered { since, cause: "lost".into(), is_refusal: false }
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
            // What another process answered counts for nothing; of orders that are not answered the first one counts.
            shard.slots.note_order(index, 77, None);
            shard.slots.note_order(index, 1, Some(lost(shard.now)));
            if answers_later {
                shard.slots.note_order(index, 1, None);
            }
        };
        shard.slots.note_order(index, 1, Some(lost(shard.now)));
        for _ in 0..15 {
            a_second_later(&mut shard);
            assert_eq!(shard.slots.failovers_due(shard.now, silence), [], "both are heard");
        }
        a_second_later(&mut shard);
        assert_eq!(shard.slots.failovers_due(shard.now, silence), due, "answers later: {answers_later}");
    }
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
fn a_standby_that_was_forgotten_keeps_what_it_has_unless_the_primary_went_on_without_it() {
    for goes_on in [false, true] {
        let mut shard = pair(1);
        let (standby, _) = shard.slots.candidate(ShardIndex(0)).unwrap();
        shard.slots.not_promoted(&standby, false, shard.now);
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
fn a_process_without_jobs_does_not_serve_before_a_new_engine_can_have_heard_of_others() {
    let mut shard = Shard::new();
    assert_eq!(shard.role(&fresh(9)), "undecided");
    assert_eq!(shard.role(&with_jobs(1, as_standby(8, fresh(2)))), "standby");
    assert_eq!(shard.role(&fresh(9)), "promotes");
    let mut alone = Shard::new();
    assert_eq!(alone.role(&fresh(9)), "undecided");
    alone.wait(PARTNER_SILENCE);
    assert_eq!(alone.role(&fresh(9)), "undecided", "its disk may be new, and the other one has all jobs");
    alone.wait(Duration::from_millis(1));
    assert_eq!(alone.role(&fresh(9)), "primary");
}

#[test]
fn in_the_morning_the_one_with_the_jobs_serves_whoever_comes_first() {
    let (had, followed) = (with_jobs(2, fresh(1)), ShardHello { followed_before: true, ..fresh(2) });
    let mut shard = Shard::new();
    assert_eq!(
        (shard.role(&followed), shard.role(&had), shard.role(&followed)),
        ("standby", "primary", "standby")
    );
    // The one that served was killed, and the one that followed was stopped in order before it could serve.
    let killed = ShardHello { served_term: 7, ..fresh(1) };
    let kept = with_jobs(2, ShardHello { followed_before: true, ..fresh(2) });
    for order in [[&killed, &kept, &killed, &kept], [&kept, &killed, &kept, &killed]] {
        let mut shard = Shard::new();
        let roles: Vec<_> = order.map(|hello| (hello.boot, shard.role(hello))).into();
        let last = |boot| roles.iter().rfind(|(known, _)| *known == boot).unwrap().1;
        assert_eq!((last(killed.boot), last(kept.boot)), ("standby", "primary"), "{roles:?}");
    }
    // The same where the engine knows them.
    for order in [[&killed, &kept, &killed, &kept], [&kept, &killed, &kept, &killed]] {
        let mut shard = pair(2);
        let again = order.map(|hello| ShardHello {
            boot: hello.boot + 10,
            address: format!("here:{}", hello.boot + 10),
            ..hello.clone()
        });
        let standby = shard.slots.standby(ShardIndex(0)).unwrap().clone();
        shard.slots.not_promoted(&standby, false, shard.now);
        let mut roles = Vec::new();
        for hello in &again {
            let answers = shard.slots.primary(ShardIndex(0)).unwrap().hello.boot > 10;
            let role = match shard.announce(hello, answers) {
                Decision::Role { role: ReplicaRole::Primary { .. }, .. } => "primary",
                Decision::Role { role: ReplicaRole::Standby { .. }, .. } => "standby",
                _ => "none",
            };
            roles.push((hello.jobs, role));
        }
        let last = |jobs| roles.iter().rfind(|(known, _)| *known == jobs).unwrap().1;
        assert_eq!((last(0), last(2)), ("standby", "primary"), "{roles:?}");
    }
    // Alone it waits for whoever may have gone on without it.
    let mut shard = Shard::new();
    shard.role(&kept);
    shard.wait(FAILOVER_SILENCE + Duration::from_millis(1));
    assert_eq!(shard.role(&kept), "undecided");
    shard.wait(PARTNER_SILENCE);
    assert_eq!(shard.role(&kept), "primary");
    // Without the note of what they were.
    let mut shard = Shard::new();
    let roles = [fresh(2), had.clone(), fresh(2), had].map(|hello| shard.role(&hello));
    assert_eq!(roles, ["undecided", "primary", "standby", "primary"]);
}

#[test]
fn a_standby_that_its_primary_has_lost_begins_again_under_another_term() {
    let mut shard = pair(1);
    let term = shard.slots.standby(ShardIndex(0)).unwrap().term;
    let lost = ShardHello { lost: Some(term), ..with_jobs(1, fresh(1)) };
    assert_eq!(shard.announce(&lost, true), Decision::LetGo(term));
    shard.slots.let_go(ShardIndex(0), term);
    assert!(matches!(shard.announce(&lost, true), Decision::Role { peer: None, .. }));
    match shard.announce(&as_standby(term, fresh(2)), true) {
        Decision::Role { role: ReplicaRole::Standby { term: again }, .. } => assert!(again > term),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_promotion_whose_answer_was_lost_is_found_out() {
    let mut shard = pair(1);
    let (standby, term) = shard.slots.candidate(ShardIndex(0)).unwrap();
    shard.slots.not_promoted(&standby, true, shard.now);
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

#[test]
fn a_standby_without_jobs_that_has_all_blobs_serves_before_whoever_is_new() {
    for address in ["here:1", "here:9"] {
        let mut shard = pair(0);
        shard.role(&following(ShardHello { mirrored: true, ..fresh(2) }));
        let empty = ShardHello { address: address.into(), ..fresh(9) };
        assert_eq!(shard.announce(&empty, false), Decision::PromoteStandby, "{address}");
    }
    // And by itself, as quickly as with jobs.
    let mut shard = pair(0);
    shard.wait(FAILOVER_SILENCE + Duration::from_millis(1));
    shard.role(&following(ShardHello { mirrored: true, ..fresh(2) }));
    assert_eq!(shard.slots.failovers_due(shard.now, Duration::from_secs(30)), [ShardIndex(0)]);
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
    shard.slots.not_promoted(&standby, true, shard.now);
    assert!(shard.slots.standby(ShardIndex(0)).is_some(), "it may have been slow");
    shard.slots.not_promoted(&standby, false, shard.now);
    assert!(shard.slots.standby(ShardIndex(0)).is_none());
}

#[test]
fn one_with_an_older_state_waits_for_the_one_that_served_last() {
    // 1 was stopped, 2 took over and was stopped as well: 1 comes back first, with what it saved.
    let mut shard = pair(1);
    let (standby, term) = shard.slots.candidate(ShardIndex(0)).unwrap();
    shard.slots.promoted(standby, term);
    let old = ShardHello { boot: 11, address: "here:11".into(), served_term: 1, ..with_jobs(1, fresh(1)) };
    let role = |shard: &mut Shard, hello: &ShardHello| match shard.announce(hello, false) {
        Decision::Role { role, .. } => role,
        other => panic!("{other:?}"),
    };
    assert_eq!(role(&mut shard, &old), ReplicaRole::Undecided);
    let last = ShardHello { boot: 12, address: "here:12".into(), ..with_jobs(1, fresh(2)) };
    assert!(matches!(role(&mut shard, &last), ReplicaRole::Primary { .. }));
    assert!(matches!(shard.announce(&old, true), Decision::Role { role: ReplicaRole::Standby { .. }, .. }));
    // A new engine does not know who served last; they do.
    let mut shard = Shard::new();
    let last = ShardHello { served_term: 2, ..last };
    let roles = [&old, &last, &old, &last].map(|hello| shard.role(hello));
    assert_eq!(roles, ["undecided", "primary", "standby", "primary"]);
    // Without the other it serves in the end: what it has is held against what the engine knows.
    let mut shard = Shard::new();
    shard.role(&old);
    shard.wait(FAILOVER_SILENCE + Duration::from_millis(1));
    assert_eq!(shard.role(&old), "undecided");
    shard.wait(PARTNER_SILENCE);
    assert_eq!(shard.role(&old), "primary");
}

/// Both were stopped in order, one soon after the other: the second one had no time to get anything of the first.
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
    shard.slots.let_go(ShardIndex(0), term);
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
    shard.slots.let_go(ShardIndex(0), term);
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
    shard.slots.let_go(ShardIndex(0), term);
    assert!(matches!(shard.announce(&primary, true), Decision::Role { peer: None, .. }));
    match shard.announce(&awake, true) {
        Decision::Role { role: ReplicaRole::Standby { term: again }, .. } => assert!(again > term),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_set_aside_is_worth_more_than_nothing_and_less_than_a_training() {
    let aside = |hello| ShardHello { set_aside: 2, ..hello };
    let has_all = |hello| ShardHello { mirrored: true, ..following(hello) };
    for (jobs, serves) in [(0, true), (1, false)] {
        let mut shard = Shard::new();
        shard.announce(&has_all(with_jobs(jobs, fresh(2))), true);
        let role = shard.announce(&aside(fresh(1)), true);
        assert_eq!(role != Decision::PromoteStandby, serves, "beside a standby of {jobs} jobs: {role:?}");
    }
    for (jobs, serves) in [(0, "primary"), (1, "undecided")] {
        let mut shard = Shard::new();
        assert_eq!(shard.role(&with_jobs(jobs, ShardHello { served_term: 9, ..fresh(2) })), "undecided");
        assert_eq!(shard.role(&aside(fresh(1))), serves, "beside one of {jobs} jobs that comes as well");
    }
}

#[test]
fn a_new_engine_lets_the_standby_of_a_primary_go_no_sooner_than_redis_knows() {
    let primary = ShardHello { follower: Some(8), ..with_jobs(1, as_primary(7, fresh(1))) };
    let mut shard = Shard::new();
    assert_eq!(shard.announce(&primary, true), Decision::LetGo(8));
    assert!(shard.slots.primary(ShardIndex(0)).is_none());
    shard.slots.let_go(ShardIndex(0), 8);
    assert_eq!(shard.role(&primary), "primary");
}

#[test]
fn a_standby_that_was_let_go_before_a_new_engine_began_does_not_serve_with_what_it_had() {
    let standby = with_jobs(1, as_standby(8, fresh(2)));
    for (let_go, keeps) in [(7, true), (8, false), (9, false)] {
        let mut shard = Shard::new();
        shard.slots = ShardSlots::new(EPOCH, [(ShardIndex(0), let_go)].into());
        shard.announce(&standby, true);
        let known = shard.slots.standby(ShardIndex(0)).unwrap();
        assert_eq!((known.term == 8, known.is_ready()), (keeps, keeps), "{let_go}");
    }
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
fn a_process_that_only_lives_keeps_its_place_and_nothing_else_changes() {
    let (mut shard, silence) = (pair(1), Duration::from_secs(30));
    let term = shard.slots.standby(ShardIndex(0)).unwrap().term;
    shard.wait(FAILOVER_SILENCE + Duration::from_millis(1));
    shard.slots.note_alive(&ShardHello { lost: Some(term), ..fresh(1) }, shard.now);
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
