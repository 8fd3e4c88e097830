//! One engine leads; its lead ends with it.

use std::{net::Ipv4Addr, time::Duration};

use syncline_engine::{
    service::{EngineHandle, EngineOptions, Limits},
    store::{RedisStore, keys},
};
use syncline_kit::{RedisOptions, RedisServer};
use syncline_rpc::Token;
use tokio::time::timeout;

/// Twice the length of the lease, and room for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

async fn engine(redis: &RedisServer, instance: &str) -> EngineHandle {
    syncline_engine::service::start(EngineOptions {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        token: Token::generate(),
        redis: redis.url().into(),
        instance: instance.into(),
        shards: 1,
        limits: Limits::default(),
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_engine_stops_renewing_its_lead_and_a_standby_takes_over() {
    let dir = tempfile::tempdir().unwrap();
    let program = syncline_kit::redis_server(&|line| eprintln!("{line}")).unwrap();
    let redis = RedisServer::start(&program.path, RedisOptions::new(dir.path())).unwrap();
    let mut first = engine(&redis, "first").await;
    timeout(PATIENCE, first.active()).await.unwrap();
    let mut second = engine(&redis, "second").await;
    let early = timeout(Duration::from_millis(500), second.active()).await;
    assert!(early.is_err(), "two engines are active");
    drop(first);
    timeout(PATIENCE, second.active()).await.unwrap();
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    assert_eq!(store.hash("look", keys::ENGINE).await.unwrap()["instance"], "second");
}
