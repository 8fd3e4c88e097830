//! One engine leads; its lead ends with it, and goes to one of its own cluster only.

use std::{net::Ipv4Addr, time::Duration};

use syncline_engine::{
    service::{EngineHandle, EngineOptions, Limits},
    store::{CommitMode, RedisStore, keys},
};
use syncline_kit::RedisServer;
use syncline_rpc::{
    ClientServiceClient, ClientServiceRequest, ClientServiceResponse, Token, connect, hello::Role, within,
};
use syncline_scheduler::{
    core::Commit,
    ids::{EngineEpoch, JobId},
};
use tarpc::client::Config;
use tokio::time::timeout;

use super::store::{fence, server};

/// Twice the length of the lease, and room for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// After which nobody holds the lease of an engine that is gone, and others have asked for it again and
/// again.
const TWO_LEASES: Duration = Duration::from_secs(6);

async fn engine(redis: &RedisServer, instance: &str, token: &Token) -> EngineHandle {
    syncline_engine::service::start(EngineOptions {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        token: token.clone(),
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
    let (dir, token) = (tempfile::tempdir().unwrap(), Token::generate());
    let redis = server(dir.path());
    let mut first = engine(&redis, "first", &token).await;
    timeout(PATIENCE, first.active()).await.unwrap();
    let mut second = engine(&redis, "second", &token).await;
    let early = timeout(Duration::from_millis(500), second.active()).await;
    assert!(early.is_err(), "two engines are active");
    drop(first);
    timeout(PATIENCE, second.active()).await.unwrap();
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    assert_eq!(store.hash("look", keys::ENGINE).await.unwrap()["instance"], "second");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_of_another_cluster_says_so_and_never_takes_over() {
    let (dir, theirs, ours) = (tempfile::tempdir().unwrap(), Token::generate(), Token::generate());
    let redis = server(dir.path());
    let mut first = engine(&redis, "theirs", &theirs).await;
    timeout(PATIENCE, first.active()).await.unwrap();
    let mut second = engine(&redis, "ours", &ours).await;
    let address = second.address().to_string();
    let open = connect::<ClientServiceRequest, ClientServiceResponse>(&address, Role::Client, &ours);
    let client = ClientServiceClient::new(Config::default(), open.await.unwrap()).spawn();
    let told = async {
        loop {
            let about = client.describe_engine(within(PATIENCE)).await.unwrap().unwrap();
            if about.get("store_problem").is_some_and(|problem| problem.contains("[E587]")) {
                return about;
            }
        }
    };
    let told = timeout(PATIENCE, told).await.unwrap();
    assert!(told["store_problem"].contains(&format!("theirs at {}", first.address())), "{told:?}");

    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let led: u64 = store.query("look", &["HGET", keys::ENGINE, "epoch"]).await.unwrap();
    drop(first);
    let (job, epoch): (JobId, _) = ("theirs".parse().unwrap(), EngineEpoch(led));
    store.list_job(&job, epoch, 1).await.unwrap();
    store.commit(&job, fence(epoch, 1, CommitMode::New), &Commit::default()).await.unwrap();
    let writer = store.last_writer(&job).await.unwrap();
    let late = timeout(TWO_LEASES, second.active()).await;
    assert!(late.is_err(), "it leads a cluster that is not its own");
    assert_eq!(store.last_writer(&job).await.unwrap(), writer);
    assert_eq!(store.hash("look", keys::ENGINE).await.unwrap()["instance"], "theirs");
}
