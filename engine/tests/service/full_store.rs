//! A Redis server whose memory is nearly full: nothing new is taken in, so that what is there can come to its
//! end and be deleted.

use std::time::Duration;

use syncline_engine::store::RedisStore;
use syncline_rpc::{ClientServiceClient, EngineFault, within};
use syncline_scheduler::{
    core::IfTaken,
    ids::JobId,
    sim::{training, training_job},
    spec::JobSpec,
};
use tokio::time::sleep;

use super::{
    rig::{Rig, TEST_TIMEOUT, until},
    scripted_worker::{call, graph},
};

/// Numbers beside which what the server needs for connections counts little, in bytes.
const BALLAST_BYTES: &str = "20000000";

async fn train(client: &ClientServiceClient, name: &str) -> Result<u32, EngineFault> {
    let id: JobId = name.parse().unwrap();
    let spec = JobSpec { id, ..training_job(training("bsp".parse().unwrap(), 64, 32)) };
    client.submit(within(TEST_TIMEOUT), spec, 1, IfTaken::Refuse).await.unwrap()
}

async fn begin(client: &ClientServiceClient, name: &str) -> Result<(), EngineFault> {
    let graph = graph(name, vec![call(b"1")]);
    client.submit_graph(within(TEST_TIMEOUT), graph, 1, IfTaken::Refuse).await.unwrap().map(drop)
}

async fn cancel_and_delete(client: &ClientServiceClient, name: &str) {
    let id: JobId = name.parse().unwrap();
    client.cancel(within(TEST_TIMEOUT), id.clone().into(), String::new(), 0).await.unwrap().unwrap();
    client.delete(within(TEST_TIMEOUT), id).await.unwrap().unwrap();
}

/// Submits a graph until that is refused, or until it is not. The engine learns of the memory a moment later.
async fn until_refused(client: &ClientServiceClient, is_refused: bool) -> Option<EngineFault> {
    until(async || {
        let refused = begin(client, "another").await.err();
        if refused.is_none() {
            cancel_and_delete(client, "another").await;
        }
        if refused.is_some() == is_refused {
            return Some(refused);
        }
        sleep(Duration::from_millis(20)).await;
        None
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_new_job_is_taken_in_while_redis_is_nearly_full_and_all_others_go_on() {
    let rig = Rig::start(1).await;
    let shard = rig.start_shard().await;
    rig.announce(shard.clone()).await.unwrap();
    let (client, store) = (rig.client().await, RedisStore::connect(&rig.redis.url()).await.unwrap());
    let nonce = train(&client, "old").await.unwrap();
    begin(&client, "graph").await.unwrap();
    // A short command, of which nothing that counts stays in buffers.
    let _: u64 = store.query("fill", &["SETRANGE", "ballast", BALLAST_BYTES, "x"]).await.unwrap();
    let used = store.memory().await.unwrap().unwrap().used_bytes;
    let limit_bytes = used * 100 / 95;
    store.query::<()>("set", &["CONFIG", "SET", "maxmemory", &limit_bytes.to_string()]).await.unwrap();

    let refused = until_refused(&client, true).await.unwrap();
    assert!(
        matches!(refused, EngineFault::StoreNearlyFull { limit_bytes: told, .. } if told == limit_bytes),
        "{refused}"
    );
    assert!(
        refused.to_string().starts_with("[E603]") && refused.hint().unwrap().contains("syncline delete JOB")
    );
    // It is silent in between.
    rig.announce(shard).await.unwrap();
    assert!(matches!(train(&client, "other").await, Err(EngineFault::StoreNearlyFull { .. })));

    assert_eq!(train(&client, "old").await, Ok(nonce), "its first answer may have been lost");
    let paused = client.pause(within(TEST_TIMEOUT), "graph".parse().unwrap(), true).await;
    assert_eq!(paused.unwrap(), Ok(()));
    cancel_and_delete(&client, "old").await;
    cancel_and_delete(&client, "graph").await;
    // As if these jobs had held it.
    store.query::<u64>("free", &["DEL", "ballast"]).await.unwrap();
    until_refused(&client, false).await;
}

/// Sets the memory limit of the server, in bytes.
async fn limit(store: &RedisStore, bytes: u64) {
    store.query::<()>("set", &["CONFIG", "SET", "maxmemory", &bytes.to_string()]).await.unwrap();
}

/// Repeats a call while a Redis that is slow to answer keeps it from being done.
async fn patiently<T>(mut call: impl AsyncFnMut() -> Result<T, EngineFault>) -> T {
    until(async || match call().await {
        Err(EngineFault::Store { cause }) if !cause.contains("[E640]") => None,
        done => Some(done),
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_memory_limit_jobs_wait_and_go_on_once_an_old_one_was_deleted() {
    let rig = Rig::start(1).await;
    rig.announce(rig.start_shard().await).await.unwrap();
    let (client, store) = (rig.client().await, RedisStore::connect(&rig.redis.url()).await.unwrap());
    let (id, old) = ("graph".parse::<JobId>().unwrap(), "old".parse::<JobId>().unwrap());
    let large = graph("old", vec![call(&[7; 60_000]); 100]);
    patiently(async || {
        client.submit_graph(within(TEST_TIMEOUT), large.clone(), 1, IfTaken::Refuse).await.unwrap()
    })
    .await;
    patiently(async || begin(&client, "graph").await).await;
    patiently(async || {
        client.cancel(within(TEST_TIMEOUT), old.clone().into(), String::new(), 0).await.unwrap()
    })
    .await;
    let fill = async || {
        let used = store.memory().await.unwrap().unwrap().used_bytes;
        limit(&store, used - 3_000_000).await;
    };
    let write = |paused: bool| {
        let (client, of) = (client.clone(), id.clone());
        tokio::spawn(async move { client.pause(within(TEST_TIMEOUT), of, paused).await })
    };
    fill().await;

    // The first one waits to be written, unless something else does; others are refused meanwhile. Where it is
    // written after all, the server has let go of what it held of the large one that came.
    let (mut paused, mut writing) = (true, write(true));
    until(async || {
        if writing.is_finished() {
            fill().await;
            paused = !paused;
            writing = write(paused);
        }
        let notes = client.job(within(TEST_TIMEOUT), id.clone().into()).await.unwrap().ok()?.notes;
        notes.iter().any(|note| note.contains("[E640]") && note.contains("syncline delete JOB")).then_some(())
    })
    .await;
    patiently(async || client.delete(within(TEST_TIMEOUT), old.clone()).await.unwrap()).await;
    until(async || client.pause(within(TEST_TIMEOUT), id.clone(), false).await.unwrap().ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_canceled_and_deleted_at_the_memory_limit() {
    let rig = Rig::start(1).await;
    rig.announce(rig.start_shard().await).await.unwrap();
    let (client, store) = (rig.client().await, RedisStore::connect(&rig.redis.url()).await.unwrap());
    patiently(async || begin(&client, "before").await).await;
    patiently(async || begin(&client, "after").await).await;
    limit(&store, 1).await;
    let end = async |client: &ClientServiceClient, name: &str| {
        let id: JobId = name.parse().unwrap();
        patiently(async || {
            client.cancel(within(TEST_TIMEOUT), id.clone().into(), String::new(), 0).await.unwrap()
        })
        .await;
        patiently(async || client.delete(within(TEST_TIMEOUT), id.clone()).await.unwrap()).await;
    };
    end(&client, "before").await;
    end(&client, "after").await;
    let listed = patiently(async || client.jobs(within(TEST_TIMEOUT), None).await.unwrap()).await;
    assert!(listed.jobs.is_empty(), "{listed:?}");
}
