//! An engine that finds jobs of a later release leads no longer than it takes to see that.

use std::{collections::BTreeMap, time::Duration};

use syncline_engine::store::{
    Beyond, RedisStore,
    keys::{JobKeys, SCHEMA},
};
use syncline_rpc::{EngineFault, within};

use super::{
    rig::{Rig, TEST_TIMEOUT, until},
    scripted_worker::{call, graph, submit},
};
use crate::store::at;

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_meets_a_job_of_a_later_release_changes_nothing_and_lets_another_lead() {
    let mut rig = Rig::start(1).await;
    let job = submit(&rig.client().await, graph("later", vec![call(b"1")])).await;
    let store = RedisStore::connect(&rig.redis.url()).await.unwrap();
    let state = JobKeys::new(&job).state;
    let later = (SCHEMA.parse::<u32>().unwrap() + 1).to_string();
    let _: u64 = store.query("raise", &["HSET", &state, "schema", &later]).await.unwrap();
    // Redis gives fields in an order of its own, which changes by itself.
    let read =
        async || -> BTreeMap<String, Vec<u8>> { store.query("look", &["HGETALL", &state]).await.unwrap() };
    let before = read().await;
    rig.crash_for_long().await;
    let client = rig.client().await;
    let why = until(async || match client.jobs(within(TEST_TIMEOUT), None).await.unwrap() {
        Err(fault @ EngineFault::NotActive { .. }) => {
            let why = fault.to_string();
            why.contains("E207").then_some(why)
        }
        _ => None,
    })
    .await;
    assert!(why.contains("later") && why.contains(&format!("schema {later}")), "{why}");
    // Its lease would last for three seconds, and it would take it again and again.
    let lease = Duration::from_secs(60);
    let other = async || {
        store.take_lead("of-a-later-release", lease, at("there:1"), Beyond::default()).await.unwrap()
    };
    until(other).await;
    assert_eq!(read().await, before);
}
