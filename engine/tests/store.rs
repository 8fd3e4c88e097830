//! The promises of the store, against a real server.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::{path::Path, time::Duration};

use syncline_engine::{
    kit::{self, RedisOptions, RedisServer},
    store::{Committed, RedisStore, StoreError, keys::JobKeys},
};
use syncline_scheduler::{
    core::Commit,
    ids::{EngineEpoch, JobId},
};

fn server(dir: &Path) -> RedisServer {
    let program = kit::redis_server(&|line| eprintln!("{line}")).unwrap();
    RedisServer::start(&program.path, RedisOptions::new(dir)).unwrap()
}

fn commit(central: &str) -> Commit {
    Commit {
        spec: Some("{}".into()),
        central: Some(central.into()),
        summary: vec![("state", "running".into())],
        tasks: vec![("it/w1/1".into(), Some("{}".into())), ("it/w1/0".into(), None)],
        events: vec![vec![("what", "test".into())]],
        ..Commit::default()
    }
}

const FIRST: EngineEpoch = EngineEpoch(1);
const SECOND: EngineEpoch = EngineEpoch(2);

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_is_applied_once_in_order_and_by_one_engine() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let job: JobId = "fenced".parse().unwrap();
    let fenced = |r: Result<Committed, StoreError>| matches!(r, Err(StoreError::Fenced { .. }));

    assert_eq!(store.commit(&job, FIRST, 1, &commit("a")).await.unwrap(), Committed::Now);
    assert_eq!(store.commit(&job, FIRST, 1, &commit("a")).await.unwrap(), Committed::Before);
    assert!(fenced(store.commit(&job, FIRST, 3, &commit("c")).await), "a gap is refused");
    assert_eq!(store.commit(&job, FIRST, 2, &commit("b")).await.unwrap(), Committed::Now);

    let (stored, seq) = store.claim(&job, SECOND).await.unwrap().unwrap();
    assert_eq!((stored.central.as_str(), seq), ("b", 2));
    assert_eq!(stored.tasks.len(), 1);
    assert!(fenced(store.commit(&job, FIRST, 3, &commit("c")).await), "the old engine is fenced");
    assert!(store.claim(&job, FIRST).await.is_err());
    assert_eq!(store.commit(&job, SECOND, 3, &commit("c")).await.unwrap(), Committed::Now);
    // Repeated commits wrote one event each time they were applied, and none otherwise.
    let events: u64 = store.query("count", &["XLEN", &JobKeys::new(&job).events]).await.unwrap();
    assert_eq!(events, 3);
    assert_eq!(store.claim(&"nobody".parse().unwrap(), FIRST).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_another_type_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let job: JobId = "typed".parse().unwrap();
    let keys = JobKeys::new(&job);
    let _: String = store.query("spoil", &["SET", &keys.tasks, "something else"]).await.unwrap();
    let refused = store.commit(&job, FIRST, 1, &commit("a")).await.unwrap_err();
    assert!(
        matches!(&refused, StoreError::WrongType { key, found } if *key == keys.tasks && found == "string")
    );
    for key in [&keys.state, &keys.job, &keys.events] {
        assert_eq!(store.query::<u64>("look", &["EXISTS", key]).await.unwrap(), 0, "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_engine_leads_and_its_own_restart_takes_over_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let lease = Duration::from_secs(60);
    let lead = |instance: &'static str, held| {
        let store = store.clone();
        async move { store.lead(instance, lease, held, "127.0.0.1:1").await.unwrap() }
    };
    assert_eq!(lead("a", None).await, Some(FIRST));
    assert_eq!(lead("b", None).await, None, "the lease is held");
    assert_eq!(lead("a", Some(FIRST)).await, Some(FIRST), "renewed");
    assert_eq!(lead("a", None).await, Some(SECOND), "the same instance after a crash");
    assert_eq!(lead("a", Some(FIRST)).await, None, "its former life is over");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_job_expires_and_a_dead_server_is_a_passing_error() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let job: JobId = "over".parse().unwrap();
    let last = Commit { over: true, ..commit("z") };
    store.commit(&job, FIRST, 1, &last).await.unwrap();
    for key in [&JobKeys::new(&job).state, &JobKeys::new(&job).tasks] {
        assert!(store.query::<i64>("ttl", &["TTL", key]).await.unwrap() > 600_000, "{key}");
    }
    let url = redis.url();
    tokio::task::block_in_place(|| drop(redis));
    assert!(store.commit(&job, FIRST, 2, &commit("y")).await.unwrap_err().is_passing());
    assert!(RedisStore::connect(&url).await.is_err());
}
