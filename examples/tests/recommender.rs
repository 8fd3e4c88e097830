//! The recommender as a user runs it: ratings that were left out are predicted, and only rows travel.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use syncline::{JobPhase, Metric};
use syncline_examples::{Run, recommender};
use syncline_scheduler::spec::ParameterKind;
use syncline_workers::{
    local::{LocalCluster, LocalOptions},
    submit,
};

#[tokio::test(flavor = "multi_thread")]
async fn what_two_workers_learn_of_some_ratings_predicts_the_others() {
    let options = LocalOptions::workers(2);
    let cluster = LocalCluster::start_with(options, |line| eprintln!("{line}")).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let data = recommender::data(&dir.path().join("ratings.safetensors")).unwrap();
    let policy = "asp".parse().unwrap();
    let run = Run { id: "recommender", policy, epochs: recommender::EPOCHS, seed: 1, workers: 2 };
    let prepared = submit::prepare(cluster.runtime(), &recommender::job(&run, data)).unwrap();
    let (_, train) = prepared.spec.train().unwrap();
    let by_rows = |kind: ParameterKind| matches!(kind, ParameterKind::Rows { .. });
    assert!(train.model.layout.0.iter().all(|parameter| by_rows(parameter.kind)), "{:?}", train.model.layout);
    cluster.client().submit_prepared(prepared).await.unwrap();
    let view = cluster.client().wait(&"recommender".parse().unwrap(), |_| {}).await.unwrap();
    assert_eq!(view.job.state, JobPhase::Done, "{:?}", view.job);
    // Who predicts the mean is off by 1, squared.
    let loss = view.job.test[Metric::Loss].unwrap();
    assert!(loss < 0.3, "{loss}");
    cluster.stop().await.unwrap();
}
