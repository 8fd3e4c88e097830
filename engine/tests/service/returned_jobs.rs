//! Jobs that were deleted, and that a Redis server has again that was set back while the engine ran.

use syncline_engine::store::{
    RedisStore,
    keys::{self, JobKeys},
};
use syncline_rpc::{ClientServiceClient, EngineFault, JobFields, within};
use syncline_scheduler::{
    core::IfTaken,
    ids::JobId,
    sim::{training, training_job},
    spec::JobSpec,
};

use super::{
    rig::{Rig, TEST_TIMEOUT},
    scripted_worker::{call, graph, submit},
};

/// Copies all that Redis has of a job, to where it is kept or back to its place.
async fn copy(store: &RedisStore, job: &JobId, back: bool) {
    for key in JobKeys::new(job).all() {
        let kept = format!("kept:{key}");
        let (from, to) = if back { (&*kept, key) } else { (key, &*kept) };
        store.query::<u64>("copy", &["COPY", from, to, "REPLACE"]).await.unwrap();
    }
}

/// Sets Redis back to the time when it had these jobs.
async fn set_back(store: &RedisStore, jobs: &[JobId]) {
    for job in jobs {
        copy(store, job, true).await;
        store.query::<u64>("list", &["ZADD", keys::JOBS, "1", job.as_str()]).await.unwrap();
    }
}

async fn shown(client: &ClientServiceClient) -> Vec<JobFields> {
    client.jobs(within(TEST_TIMEOUT), None).await.unwrap().unwrap().jobs
}

fn is_told<T: std::fmt::Debug>(answer: Result<T, EngineFault>) {
    let Err(fault @ EngineFault::Unreadable { .. }) = answer else { panic!("{answer:?}") };
    assert!(fault.to_string().contains("[E670] this engine does not know it"), "{fault}");
    assert!(fault.hint().unwrap().contains("`syncline delete JOB` removes it"), "{fault}");
}

fn is_taken<T: std::fmt::Debug>(answer: Result<T, EngineFault>, why: &str) {
    let Err(EngineFault::DuplicateJob { differs, .. }) = answer else { panic!("{answer:?}") };
    assert_eq!(differs, why);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_job_that_redis_has_again_is_shown_as_such_and_deleted_again_or_taken_in_by_the_next_engine()
 {
    let mut rig = Rig::start(1).await;
    rig.announce(rig.start_shard().await).await.unwrap();
    let (client, store) = (rig.client().await, RedisStore::connect(&rig.redis.url()).await.unwrap());
    let spec = training_job(training("bsp".parse().unwrap(), 64, 32));
    let spec = JobSpec { id: "trains".parse().unwrap(), ..spec };
    client.submit(within(TEST_TIMEOUT), spec.clone(), 1, IfTaken::Refuse).await.unwrap().unwrap();
    let jobs = ["trains".parse().unwrap(), submit(&client, graph("calls", vec![call(b"1")])).await];
    for job in &jobs {
        copy(&store, job, false).await;
        client.cancel(within(TEST_TIMEOUT), job.clone().into(), String::new(), 0).await.unwrap().unwrap();
        client.delete(within(TEST_TIMEOUT), job.clone()).await.unwrap().unwrap();
    }
    assert_eq!(shown(&client).await, Vec::<JobFields>::new());

    set_back(&store, &jobs).await;
    let listed = shown(&client).await;
    assert_eq!(listed.len(), 2, "{listed:?}");
    for job in &jobs {
        let status = client.job(within(TEST_TIMEOUT), job.clone().into()).await.unwrap().unwrap().job;
        for fields in listed.iter().filter(|fields| fields["id"] == job.as_str()).chain([&status]) {
            assert_eq!((&*fields["state"], &*fields["code"]), ("damaged", "E670"), "{fields:?}");
            assert!(fields["reason"].contains("`syncline delete` removes it"), "{fields:?}");
        }
        is_told(client.cancel(within(TEST_TIMEOUT), job.clone().into(), String::new(), 0).await.unwrap());
        is_told(client.pause(within(TEST_TIMEOUT), job.clone(), true).await.unwrap());
    }
    let there = client.submit(within(TEST_TIMEOUT), spec.clone(), 2, IfTaken::Refuse).await.unwrap();
    is_taken(there, ", and Redis has it again");
    let there =
        client.submit_graph(within(TEST_TIMEOUT), graph("calls", vec![call(b"1")]), 2, IfTaken::Refuse);
    is_taken(there.await.unwrap(), ", and Redis has it again");
    is_told(client.explain_kept(within(TEST_TIMEOUT), jobs[0].clone()).await.unwrap());
    is_told(client.ended_tasks(within(TEST_TIMEOUT), jobs[1].clone().into(), Vec::new()).await.unwrap());

    for job in &jobs {
        client.delete(within(TEST_TIMEOUT), job.clone()).await.unwrap().unwrap();
        let again = client.delete(within(TEST_TIMEOUT), job.clone()).await.unwrap();
        assert!(matches!(again, Err(EngineFault::UnknownJob { .. })), "{again:?}");
    }
    assert_eq!((shown(&client).await.len(), store.jobs().await.unwrap().len()), (0, 0));

    set_back(&store, &jobs).await;
    rig.crash().await;
    let states = shown(&rig.client().await).await.into_iter().map(|mut job| job.remove("state").unwrap());
    assert!(
        states.clone().count() == 2 && states.clone().all(|state| state != "damaged"),
        "{:?}",
        states.collect::<Vec<_>>()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_replaces_a_deleted_job_that_redis_has_again_takes_its_name_over() {
    let rig = Rig::start(1).await;
    let (client, store) = (rig.client().await, RedisStore::connect(&rig.redis.url()).await.unwrap());
    let job = submit(&client, graph("calls", vec![call(b"1")])).await;
    copy(&store, &job, false).await;
    client.cancel(within(TEST_TIMEOUT), job.clone().into(), String::new(), 0).await.unwrap().unwrap();
    client.delete(within(TEST_TIMEOUT), job.clone()).await.unwrap().unwrap();
    set_back(&store, std::slice::from_ref(&job)).await;
    let invalid = client.submit_graph(within(TEST_TIMEOUT), graph("calls", Vec::new()), 2, IfTaken::Replace);
    let invalid = invalid.await.unwrap();
    assert!(matches!(invalid, Err(EngineFault::InvalidJob { .. })), "{invalid:?}");
    assert_eq!(shown(&client).await[0]["code"], "E670", "what is refused removes nothing");
    let two = graph("calls", vec![call(b"1"), call(b"2")]);
    client.submit_graph(within(TEST_TIMEOUT), two, 2, IfTaken::Replace).await.unwrap().unwrap();
    let listed = shown(&client).await;
    assert_eq!((listed.len(), &*listed[0]["tasks_total"]), (1, "2"), "{listed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_job_that_was_canceled_before_the_engine_changed_is_over_and_nothing_else() {
    let mut rig = Rig::start(1).await;
    let (client, store) = (rig.client().await, RedisStore::connect(&rig.redis.url()).await.unwrap());
    let job = submit(&client, graph("calls", vec![call(b"1")])).await;
    store.query::<u64>("spoil", &["HSET", &JobKeys::new(&job).states, "0", "r?"]).await.unwrap();
    rig.crash().await;
    let client = rig.client().await;
    client.cancel(within(TEST_TIMEOUT), job.clone().into(), String::new(), 0).await.unwrap().unwrap();
    rig.crash().await;

    let client = rig.client().await;
    let status = client.job(within(TEST_TIMEOUT), job.clone().into()).await.unwrap().unwrap().job;
    assert_eq!(status["state"], "canceled");
    let is_over = |answer: Result<(), EngineFault>| {
        assert_eq!(answer, Err(EngineFault::Over { job: job.clone(), state: "canceled".into() }));
    };
    is_over(client.cancel(within(TEST_TIMEOUT), job.clone().into(), String::new(), 0).await.unwrap());
    is_over(client.pause(within(TEST_TIMEOUT), job.clone(), true).await.unwrap());
    is_over(client.request_checkpoint(within(TEST_TIMEOUT), job.clone()).await.unwrap().map(drop));
    let taken =
        client.submit_graph(within(TEST_TIMEOUT), graph("calls", vec![call(b"1")]), 2, IfTaken::Refuse);
    is_taken(taken.await.unwrap(), ", and is canceled");
    client.delete(within(TEST_TIMEOUT), job.clone()).await.unwrap().unwrap();
    submit(&client, graph("calls", vec![call(b"1")])).await;
}
