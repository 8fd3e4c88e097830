//! An engine that takes over what the one before has left.

use futures::future::join_all;
use syncline_engine::store::{CommitMode, Fence, RedisStore};
use syncline_rpc::{status::EngineStatus, within};
use syncline_scheduler::{
    core::{Cancellation, Core, IfTaken, Input, Submission},
    ids::{EngineEpoch, JobId},
    sim::{training, training_job},
    spec::JobSpec,
};

use super::rig::{Rig, TEST_TIMEOUT, until};

/// Writes jobs that are over, as an engine of `epoch` would.
async fn leave_ended_jobs(store: &RedisStore, epoch: EngineEpoch, count: u64) {
    let mut core = Core::new(1);
    for n in 0..count {
        let id: JobId = format!("ended-{n}").parse().unwrap();
        let spec = training_job(training("bsp".parse().unwrap(), 64, 32));
        let spec = Box::new(JobSpec { id: id.clone(), ..spec });
        core.handle(n, Input::Submit(Submission { spec, nonce: 1, if_taken: IfTaken::Refuse })).unwrap();
        let cancellation = Cancellation { job: id.into(), reason: String::new(), grace_ms: 0 };
        core.handle(n, Input::Cancel(cancellation)).unwrap();
    }
    let commits: Vec<_> = core.take_commits(count).into_iter().collect();
    for some in commits.chunks(50) {
        let written = some.iter().map(async |(job, commit)| {
            store.list_job(job, epoch, 1).await.unwrap();
            store.commit(job, Fence { epoch, seq: 1, mode: CommitMode::New }, commit).await.unwrap();
        });
        join_all(written).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_takes_thousands_of_ended_jobs_over_in_their_order_and_claims_each() {
    let mut rig = Rig::start(1).await;
    let store = RedisStore::connect(&rig.redis.url()).await.unwrap();
    let led: u64 = store.query("look", &["HGET", "syncline:engine", "epoch"]).await.unwrap();
    leave_ended_jobs(&store, EngineEpoch(led), 2_000).await;
    let listed = store.jobs().await.unwrap();
    assert_eq!(listed.len(), 2_000);
    rig.crash().await;
    let jobs = rig.client().await.jobs(within(TEST_TIMEOUT), None).await.unwrap().unwrap().jobs;
    assert!(
        jobs.iter().map(|job| &job["id"]).eq(listed
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .iter())
    );
    assert!(jobs.iter().all(|job| job["state"] == "canceled"));
    let epoch: u64 = store.query("look", &["HGET", "syncline:engine", "epoch"]).await.unwrap();
    assert!(epoch > led);
    let fence = Fence { epoch: EngineEpoch(led), seq: 2, mode: CommitMode::Next };
    let late = store.commit(&listed[1_999], fence, &Default::default()).await;
    assert!(late.is_err(), "{late:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_reads_its_jobs_says_how_far_it_is() {
    let mut rig = Rig::start(1).await;
    let store = RedisStore::connect(&rig.redis.url()).await.unwrap();
    let led: u64 = store.query("look", &["HGET", "syncline:engine", "epoch"]).await.unwrap();
    leave_ended_jobs(&store, EngineEpoch(led), 2_000).await;
    rig.crash_for_long().await;
    let client = rig.client().await;
    let (mut steps, mut said) = (Vec::new(), Vec::new());
    loop {
        let about = client.describe_engine(within(TEST_TIMEOUT)).await.unwrap().unwrap();
        let about = EngineStatus::read(&about).unwrap();
        let Some(idle) = about.idle else { break };
        steps.extend(about.load_steps);
        said.push(idle);
    }
    assert!(steps.is_sorted() && steps.last().is_some_and(|last| (1..=4_000).contains(last)), "{steps:?}");
    let reads = |idle: &String| idle.starts_with("it reads its jobs: ") && idle.ends_with(" of 2000");
    assert!(said.iter().any(reads), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_connected_to_an_engine_that_is_dropped_is_answered_no_more() {
    let mut rig = Rig::start(1).await;
    let client = rig.client().await;
    client.jobs(within(TEST_TIMEOUT), None).await.unwrap().unwrap();
    rig.crash().await;
    until(async || client.jobs(within(TEST_TIMEOUT), None).await.is_err().then_some(())).await;
}
