//! Processes of a shard that come, go and come back, one table or sequence each.

mod letting_go;
mod overtaken;
mod reach;
mod roles;
mod silence;
mod vacancy;

use super::*;

const EPOCH: EngineEpoch = EngineEpoch(2);

/// The processes of one shard, and a clock that only tests move.
struct Shard {
    slots: ShardSlots<()>,
    now: Instant,
}

impl Shard {
    fn new() -> Self {
        let now = Instant::now();
        Self { slots: ShardSlots::new(EPOCH, RoleNotes::default(), 2, now), now }
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
            Decision::Overtaken => "overtaken",
            Decision::TakeBack => "takes back",
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
