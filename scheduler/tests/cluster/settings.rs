//! What a run of the cluster depends on, and its job.

use syncline_scheduler::{
    sim,
    spec::{JobSpec, Node, NodeKind, TrainSpec},
};

#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub seed: u64,
    pub policy: &'static str,
    pub workers: u32,
    pub shards: u32,
    pub samples: u64,
    pub epochs: u32,
    pub batch: u32,
    pub drop_last: bool,
    pub deaths: u32,
    pub joins: u32,
    pub restarts: u32,
    pub ahead: Option<u32>,
}

impl Settings {
    pub fn quiet(policy: &'static str) -> Self {
        Self {
            seed: 1,
            policy,
            workers: 4,
            shards: 2,
            samples: 100,
            epochs: 2,
            batch: 5,
            drop_last: false,
            deaths: 0,
            joins: 0,
            restarts: 0,
            ahead: None,
        }
    }
}

/// The job that these settings mean: training, then an evaluation and a snapshot.
pub fn spec(s: &Settings) -> JobSpec {
    let train = TrainSpec {
        epochs: s.epochs,
        drop_last: s.drop_last,
        min_workers: if s.deaths == 0 { s.workers } else { 1 },
        ahead: s.ahead,
        ..sim::training(s.policy.parse().unwrap(), s.samples, s.batch.min(s.samples as u32))
    };
    let name = |n: &str| n.parse().unwrap();
    let node = |n: &str, after: &[&str], kind| Node {
        name: name(n),
        after: after.iter().map(|a| name(a)).collect(),
        retries: 20,
        kind,
    };
    JobSpec {
        id: name("job"),
        nodes: vec![
            node("train", &[], NodeKind::Train(Box::new(train))),
            node("evaluate", &["train"], NodeKind::Evaluate),
            node("snapshot", &["train"], NodeKind::Snapshot),
        ],
    }
}
