//! Nobody serves, and who comes may have more or less than others.

use super::*;

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
    // The one that served was killed, and the one that followed was stopped cleanly before it could serve.
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
        shard.slots.follows_nobody(&standby, shard.now);
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

/// It may sleep, or take over for longer than an engine waits for that.
#[test]
fn who_comes_back_with_nothing_waits_for_a_silent_standby_that_has_the_jobs() {
    let killed = |address: &str| ShardHello { boot: 11, address: address.into(), ..fresh(1) };
    for address in ["here:1", "here:11"] {
        let (mut shard, back) = (pair(1), killed(address));
        assert_eq!(shard.announce(&back, false), Decision::PromoteStandby);
        shard.wait(FAILOVER_SILENCE + Duration::from_millis(1));
        let undecided = |shard: &mut Shard| match shard.announce(&back, false) {
            Decision::Role { role, .. } => role == ReplicaRole::Undecided,
            _ => false,
        };
        assert!(undecided(&mut shard));
        shard.wait(STANDBY_PATIENCE - FAILOVER_SILENCE - Duration::from_millis(1));
        assert!(undecided(&mut shard));
        // It wakes.
        shard.role(&following(with_jobs(1, fresh(2))));
        assert_eq!(shard.announce(&back, false), Decision::PromoteStandby);
        shard.wait(STANDBY_PATIENCE + Duration::from_millis(1));
        let served = shard.announce(&back, false);
        assert!(
            matches!(served, Decision::Role { role: ReplicaRole::Primary { .. }, .. }),
            "that one does not come: {served:?}"
        );
    }
    // It was killed as well, and is back with nothing.
    let mut shard = pair(1);
    shard.wait(FAILOVER_SILENCE + Duration::from_millis(1));
    assert_eq!(shard.role(&killed("here:1")), "undecided");
    shard.announce(&ShardHello { boot: 12, address: "here:12".into(), ..fresh(2) }, false);
    shard.wait(FAILOVER_SILENCE + Duration::from_millis(1));
    assert_eq!(shard.role(&killed("here:1")), "primary");
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

/// Both had nothing, as before their disks were mounted, and have ended.
#[test]
fn in_the_place_of_two_that_are_gone_the_one_that_served_before_them_serves_whoever_comes_first() {
    let had = |n, hello| with_jobs(1, ShardHello { boot: n, ..hello });
    let served = had(11, ShardHello { served_term: 7, ..fresh(11) });
    let followed = had(12, ShardHello { followed_before: true, ..fresh(12) });
    for order in [[&served, &followed], [&followed, &served]] {
        let mut shard = pair(0);
        let role = |shard: &mut Shard, hello: &ShardHello| match shard.announce(hello, false) {
            Decision::Role { role: ReplicaRole::Primary { .. }, .. } => "primary",
            Decision::Role { role: ReplicaRole::Undecided, .. } => "undecided",
            other => panic!("{other:?}"),
        };
        assert_eq!(order.map(|hello| role(&mut shard, hello)), ["undecided"; 2], "those may come back");
        shard.wait(STANDBY_PATIENCE);
        shard.slots.forget(ShardIndex(0), shard.now);
        let roles: Vec<_> = order.iter().map(|hello| (hello.boot, role(&mut shard, hello))).collect();
        let first_to_serve = roles.iter().find(|(_, role)| *role == "primary");
        assert_eq!(first_to_serve, Some(&(served.boot, "primary")), "{roles:?}");
    }
}
