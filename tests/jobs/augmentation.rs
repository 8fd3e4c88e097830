//! Images that change while they train: the same ones whoever computes them, under every policy.

use syncline::JobPhase;
use syncline_workers::{
    local::{LocalCluster, LocalOptions},
    submit::JobGraph,
    worker::Throttle,
};

use crate::summing::{self, ALL, expected, weights};

const SAMPLES: usize = 64;
const EPOCHS: u32 = 3;

async fn trained(cluster: &LocalCluster, job: &JobGraph) -> Vec<f32> {
    let id = cluster.client().submit(job).await.unwrap().id;
    let view = cluster.client().wait(&id, |_| {}).await.unwrap();
    assert_eq!(view.job.state, JobPhase::Done, "{:?}", view.job);
    weights(view.job.snapshot.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_policy_and_any_number_of_workers_train_on_the_same_images() {
    let dir = tempfile::tempdir().unwrap();
    let data = summing::data(dir.path(), SAMPLES, ALL);
    let want = expected(&data, EPOCHS);
    let plain = data.clone().with(|d| d.augment = Default::default());
    assert_ne!(want, expected(&plain, EPOCHS));
    for (workers, threads) in [(1, 1), (3, 1), (1, 2)] {
        let options = LocalOptions {
            workers: vec![Throttle::default(); workers],
            // Where there are two, each computes a part of the batch.
            threads: Some(threads),
            ..LocalOptions::default()
        };
        let cluster = LocalCluster::start_with(options, |line| eprintln!("{line}")).await.unwrap();
        for policy in ["asp", "elastic-bsp:15", "ssp:3"] {
            let id = policy.split(':').next().unwrap();
            let mut job = summing::job(id, data.clone(), policy, EPOCHS);
            job.trainings_mut().for_each(|training| training.settings.min_workers = workers as u32);
            assert_eq!(trained(&cluster, &job).await, want, "{policy}, {workers} workers, {threads} threads");
        }
        if workers == 1 {
            // One of them is every round, and a local round is the steps of the one that takes them.
            for policy in ["bsp", "local-sgd:4"] {
                let id = policy.split(':').next().unwrap();
                let job = summing::job(id, data.clone(), policy, EPOCHS);
                assert_eq!(trained(&cluster, &job).await, want, "{policy}, {threads} threads");
            }
        }
        let job = summing::job("plain", plain.clone(), "asp", EPOCHS);
        assert_eq!(trained(&cluster, &job).await, expected(&plain, EPOCHS), "a job beside it is left alone");
        cluster.stop().await.unwrap();
    }
}
