//! Workers do not reach a process that the engine hears.

use std::sync::Arc;

use syncline_rpc::{Activity, UnreachedShard};
use syncline_scheduler::{
    core::WorkerInfo,
    ids::{Incarnation, JobId},
};

use super::*;
use crate::service::{shard_slots::ReachNote, worker_status::WorkerStatus};

const SILENCE: Duration = Duration::from_secs(30);
const INDEX: ShardIndex = ShardIndex(0);

/// A worker that has nothing in hand.
fn idle(n: u64) -> WorkerStatus {
    WorkerStatus {
        worker: Incarnation(n),
        about: WorkerInfo { name: format!("n{n}"), host: "host".into(), ..WorkerInfo::default() },
        silent_for: Duration::ZERO,
        activity: Arc::new(Activity::default()),
        is_busy: false,
    }
}

fn at_work(n: u64) -> WorkerStatus {
    WorkerStatus { is_busy: true, ..idle(n) }
}

/// One that has lost the shard at an address so long ago, and tries it.
fn lost_at(n: u64, address: &str, lost_s: u64) -> WorkerStatus {
    let lost = UnreachedShard {
        shard: INDEX,
        address: address.into(),
        job: job(),
        lost_ms: lost_s * 1_000,
        tried_ms: 0,
    };
    with(at_work(n), |activity| activity.unreached = vec![lost])
}

fn lost(n: u64, lost_s: u64) -> WorkerStatus {
    lost_at(n, "here:1", lost_s)
}

fn with(worker: WorkerStatus, change: impl FnOnce(&mut Activity)) -> WorkerStatus {
    let mut activity = (*worker.activity).clone();
    change(&mut activity);
    WorkerStatus { activity: Arc::new(activity), ..worker }
}

fn job() -> JobId {
    "digits".parse().unwrap()
}

impl Shard {
    /// So much later; both processes are heard, each in its role.
    fn heard_after(&mut self, time: Duration) {
        self.wait(time);
        let hellos =
            [self.slots.primary(INDEX), self.slots.standby(INDEX)].map(|of| of.unwrap().hello.clone());
        for hello in hellos {
            self.slots.note_alive(&hello, self.now);
        }
    }

    fn due(&self, workers: &[WorkerStatus]) -> bool {
        self.slots.unreached_failovers_due(workers, self.now, SILENCE) == [INDEX]
    }

    /// Lets the standby serve, as the engine does when that is due; the other one follows it, and has
    /// everything.
    fn move_to_standby(&mut self) {
        let before = self.slots.primary(INDEX).unwrap().hello.clone();
        self.slots.note_unreached(INDEX);
        let (standby, term) = self.slots.candidate(INDEX).unwrap();
        self.slots.promoted(standby, term);
        self.role(&as_primary(1, before.clone()));
        let follows = self.slots.standby(INDEX).unwrap().term;
        self.role(&as_standby(follows, before));
    }
}

/// A pair whose workers have done nothing for longer than the silence.
fn stuck_pair() -> Shard {
    let mut shard = pair(1);
    shard.heard_after(SILENCE + Duration::from_millis(1));
    shard
}

#[test]
fn a_standby_serves_where_no_worker_reaches_the_other_process_and_not_for_the_bad_link_of_one() {
    let paused = |worker: WorkerStatus| WorkerStatus { silent_for: Duration::from_secs(4), ..worker };
    let tried_before = |worker: WorkerStatus, tried_s: u64| {
        with(worker, |activity| activity.unreached[0].tried_ms = tried_s * 1_000)
    };
    let of_another = |worker: WorkerStatus| with(worker, |a| a.unreached[0].shard = ShardIndex(1));
    let idle_now = |worker: WorkerStatus| WorkerStatus { is_busy: false, ..worker };
    #[rustfmt::skip]
    let cases = [
        ("nobody tells anything",                    vec![],                                         false),
        ("one, of which there is but one",           vec![lost(1, 30)],                              true),
        ("a moment too early",                       vec![lost(1, 29)],                              false),
        ("all",                                      vec![lost(1, 31), lost(2, 40)],                 true),
        ("the second has just noticed it",           vec![lost(1, 31), lost(2, 0)],                  true),
        ("another is at work, and may reach it",     vec![lost(1, 90), at_work(2)],                  false),
        ("another has nothing to do",                vec![lost(1, 31), idle(2)],                     true),
        ("another waits for another shard",          vec![lost(1, 31), of_another(lost(2, 31))],     true),
        ("it is another shard",                      vec![of_another(lost(1, 31))],                  false),
        ("it waits to be offered the job again",     vec![idle_now(lost(1, 31))],                    true),
        ("it has not tried for long",                vec![tried_before(idle_now(lost(1, 90)), 61)],  false),
        ("it sleeps, and what it told is old",       vec![paused(lost(1, 31))],                      false),
        ("it sleeps, and another tells the same",    vec![paused(lost(1, 31)), lost(2, 31)],         true),
        ("a sleeping one was at work",               vec![paused(at_work(1)), lost(2, 31)],          false),
        ("they looked for it where it was before",   vec![lost_at(1, "here:0", 90)],                 false),
    ];
    for (name, workers, due) in cases {
        assert_eq!(stuck_pair().due(&workers), due, "{name}");
    }
}

#[test]
fn what_a_worker_has_done_a_moment_ago_says_that_the_shard_is_reached() {
    let mut shard = stuck_pair();
    shard.slots.note_reached(shard.now);
    // Between two iterations it has nothing in hand.
    let workers = [lost(1, 600), idle(2)];
    shard.heard_after(SILENCE);
    assert!(!shard.due(&workers));
    shard.heard_after(Duration::from_millis(1));
    assert!(shard.due(&workers));
    // The engine slept, and nobody could tell it of what was done.
    shard.slots.note_reached(shard.now);
    shard.heard_after(2 * SILENCE);
    shard.slots.extend_deadlines(2 * SILENCE, shard.now);
    assert!(!shard.due(&workers));
}

#[test]
fn a_new_engine_listens_for_the_silence_before_it_believes_that_nobody_reaches_a_shard() {
    let mut shard = pair(1);
    let workers = [lost(1, 600)];
    shard.heard_after(SILENCE);
    assert!(!shard.due(&workers));
    shard.heard_after(Duration::from_millis(1));
    assert!(shard.due(&workers));
}

#[test]
fn a_standby_serves_for_workers_only_where_it_is_heard_and_has_everything() {
    let workers = [lost(1, 31)];
    let mut shard = stuck_pair();
    shard.role(&with_jobs(2, fresh(1)));
    assert!(!shard.due(&workers), "it lacks a job");
    let mut shard = stuck_pair();
    shard.wait(STANDBY_SILENCE + Duration::from_millis(1));
    assert!(!shard.due(&workers), "it is silent");
    let mut shard = Shard::new();
    let alone = ShardHello { replicas: 1, ..fresh(1) };
    shard.role(&alone);
    shard.wait(SILENCE + Duration::from_millis(1));
    assert!(!shard.due(&workers), "there is none");
}

#[test]
fn nobody_goes_back_to_a_process_that_no_worker_reached_before_one_has_reached_the_other() {
    let mut shard = stuck_pair();
    assert!(shard.due(&[lost(1, 31)]));
    shard.move_to_standby();
    assert_eq!(shard.slots.primary(INDEX).unwrap().hello.address, "here:2");
    assert!(!shard.due(&[lost(1, 31)]), "it has not heard yet where the shard is");
    for _ in 0..20 {
        shard.heard_after(SILENCE);
        assert!(!shard.due(&[lost_at(1, "here:2", 600)]));
    }
    shard.slots.note_reached(shard.now);
    shard.heard_after(SILENCE + Duration::from_millis(1));
    assert!(shard.due(&[lost_at(1, "here:2", 31)]), "it was reached, and the other one may be by now");
}

#[test]
fn people_are_told_who_does_not_reach_a_shard_since_when_and_what_becomes_of_it() {
    let notes =
        |shard: &Shard, workers: &[WorkerStatus]| shard.slots.reach_notes(workers, shard.now, SILENCE);
    let of_all = |text: &str| vec![ReachNote::OfAll(text.to_owned())];
    let mut shard = pair(1);
    assert_eq!(notes(&shard, &[]), []);
    assert_eq!(notes(&shard, &[lost(1, 2)]), [], "a connection that broke");
    assert_eq!(
        notes(&shard, &[lost(1, 12), lost(2, 9)]),
        of_all(
            "no worker reaches parameter shard s0 at here:1, which the engine hears (n1 (w1) on host for 12 s, n2 (w2) on host for 9 s); \
             its standby at here:2 takes over once that has been so for 30 s"
        )
    );
    let many: Vec<WorkerStatus> = (1..7).map(|n| lost(n, 12)).collect();
    assert!(
        matches!(&notes(&shard, &many)[..], [ReachNote::OfAll(text)] if text.contains("n4 (w4) on host for 12 s, 2 more)"))
    );
    let alone = "worker n1 (w1) on host for ";
    let of_one = |notes: &[ReachNote]| match notes {
        [ReachNote::OfSome(of_jobs)] => of_jobs[&job()].join("; ").starts_with(alone),
        _ => false,
    };
    assert!(of_one(&notes(&shard, &[lost(1, 12), at_work(2)])));
    // Another one has done something since, and before.
    shard.slots.note_reached(shard.now);
    shard.heard_after(Duration::from_secs(9));
    assert!(of_one(&notes(&shard, &[lost(1, 12), idle(2)])));
    // Or at the same time, and told of it a moment later.
    shard.heard_after(Duration::from_secs(2));
    assert!(!of_one(&notes(&shard, &[lost(1, 12), idle(2)])));

    let tried_before = with(lost(1, 90), |activity| activity.unreached[0].tried_ms = 61_000);
    assert!(of_one(&notes(&pair(1), &[tried_before])), "it is idle, and nobody knows of the others");
    let mut silent = pair(1);
    silent.wait(FAILOVER_SILENCE + Duration::from_millis(1));
    assert_eq!(notes(&silent, &[lost(1, 12)]), [], "the engine does not hear it, either");

    shard.heard_after(SILENCE);
    shard.role(&with_jobs(2, fresh(1)));
    let outlook = |shard: &Shard, worker: WorkerStatus| match &notes(shard, &[worker])[..] {
        [ReachNote::OfAll(text)] => text.rsplit_once("); ").unwrap().1.to_owned(),
        other => panic!("{other:?}"),
    };
    let lacks = "its standby at here:2 takes over once it has all jobs and that has been so for 30 s";
    assert_eq!(outlook(&shard, lost(1, 31)), lacks);
    let mut shard = stuck_pair();
    shard.move_to_standby();
    let not_back = "its standby at here:1 does not take over, as no worker reached the shard there before: see to the network between them, and \
                    the trainings go on by themselves";
    assert_eq!(outlook(&shard, lost_at(1, "here:2", 31)), not_back);
    shard.wait(STANDBY_GONE_AFTER + Duration::from_millis(1));
    let serves = shard.slots.primary(INDEX).unwrap().hello.clone();
    shard.role(&serves);
    let alone = "it has no standby to take over: see to the network between them, and the trainings go on by themselves";
    assert_eq!(outlook(&shard, lost_at(1, "here:2", 31)), alone);
}
