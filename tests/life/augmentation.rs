//! Images that change while they train, whatever happens meanwhile: an iteration that is repeated, and a
//! training that goes on, see what they would have seen.

use syncline_workers::submit;

use crate::{
    cluster::{Cluster, number, runtime},
    jobs::submit,
    summing::{self, ALL, expected, weights},
};

const SAMPLES: usize = 1_024;
const EPOCHS: u32 = 4;
const WORKER: &str = "--step-ms 3 --slowdown 1";

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_and_a_pause_change_nothing_of_what_is_trained_on() {
    let mut cluster = Cluster::start(1, 2, WORKER).await;
    let data = summing::data(cluster.dir.path(), SAMPLES, ALL);
    let graph = summing::job("augmented", data.clone(), "elastic-bsp:15", EPOCHS);
    let total = SAMPLES as u64 * u64::from(EPOCHS);
    let job = submit(&cluster, submit::prepare(&runtime(), &graph).unwrap()).await;
    for share in [5, 3] {
        cluster.until(&job, |summary| number(summary, "samples_applied") > total / share).await;
        cluster.workers[0].kill();
        cluster.workers[0] = cluster.spawn_worker(WORKER);
    }
    cluster.until(&job, |summary| number(summary, "samples_applied") > total * 2 / 5).await;
    cluster.client().pause(&job).await.unwrap();
    cluster.until(&job, |summary| number(summary, "workers") == 0).await;
    let plain = data.clone().with(|d| d.augment = Default::default());
    let other = summing::job("plain", plain.clone(), "asp", 1);
    let other = submit(&cluster, submit::prepare(&runtime(), &other).unwrap()).await;
    let summary = cluster.until_over(&other).await;
    assert_eq!(weights(&summary["snapshot"]), expected(&plain, 1), "{summary:?}");
    cluster.client().resume(&job).await.unwrap();
    let summary = cluster.until_over(&job).await;
    assert_eq!(number(&summary, "samples_applied"), total, "{summary:?}");
    assert_eq!(weights(&summary["snapshot"]), expected(&data, EPOCHS), "{summary:?}");
}
