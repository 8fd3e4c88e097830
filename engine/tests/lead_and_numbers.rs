//! Who leads, and which numbers workers get, whatever has become of the keys of that; and a Redis that falls
//! silent.

use std::{path::Path, time::Duration};

use syncline_engine::store::{Beyond, RedisStore, SeenLease, keys};
use syncline_kit::RedisServer;
use syncline_scheduler::ids::{EngineEpoch, Incarnation};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
};

use super::store::{at, server};

const LEASE: Duration = Duration::from_secs(60);

async fn store(dir: &Path) -> (RedisServer, RedisStore) {
    let server = server(dir);
    let store = RedisStore::connect(&server.url()).await.unwrap();
    (server, store)
}

async fn take(store: &RedisStore, instance: &str, above: u64) -> Option<EngineEpoch> {
    let beyond = Beyond { epoch: EngineEpoch(above), ..Beyond::default() };
    store.take_lead(instance, LEASE, at("127.0.0.1:1"), beyond).await.unwrap()
}

async fn query(store: &RedisStore, words: &[&str]) {
    store.query::<()>("prepare", words).await.unwrap();
}

#[tokio::test]
async fn what_is_no_record_of_a_lease_holds_nobody_back() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, store) = store(dir.path()).await;
    let first = take(&store, "a", 0).await.unwrap();
    let damages: [&[&str]; 6] = [
        &["HSET", keys::ENGINE, "epoch", "abc", "until_ms", "xyz"],
        &["HSET", keys::ENGINE, "epoch", "-1", "until_ms", "nan"],
        &["HSET", keys::ENGINE, "epoch", "1e300", "until_ms", "inf"],
        &["HDEL", keys::ENGINE, "epoch", "until_ms"],
        &["SET", keys::ENGINE, "text"],
        // Taken before the clock was set back by an hour.
        &["HSET", keys::ENGINE, "until_ms", "9000000000000000"],
    ];
    let mut before = first;
    for damage in damages {
        query(&store, damage).await;
        let next = take(&store, "b", 0).await.unwrap_or_else(|| panic!("{damage:?}"));
        assert!(next >= before, "{damage:?}: {next} after {before}");
        assert_eq!(take(&store, "a", 0).await, None, "{damage:?}: now it is held");
        before = next;
    }
}

#[tokio::test]
async fn a_store_that_has_gone_back_gives_no_lease_to_whom_has_seen_a_later_one() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, store) = store(dir.path()).await;
    let first = take(&store, "a", 0).await.unwrap();
    let read = async || SeenLease::of(&store.hash("look", keys::ENGINE).await.unwrap());
    let seen = read().await;
    let watch = async |seen| {
        let beyond = Beyond { seen, ..Beyond::default() };
        store.take_lead("b", LEASE, at("127.0.0.1:2"), beyond).await.unwrap()
    };
    let earlier_end = (seen.until_ms - 120_000).to_string();
    let losses: [&[&str]; 3] = [
        &["HSET", keys::ENGINE, "until_ms", &earlier_end],
        &["HSET", keys::ENGINE, "epoch", "7", "until_ms", &earlier_end],
        &["FLUSHALL"],
    ];
    for loss in losses {
        query(&store, loss).await;
        assert!(read().await.is_before(&seen), "{loss:?}");
        assert_eq!(watch(seen).await, None, "{loss:?}");
        // Whoever led says so as soon as it has reached Redis again.
        let renewed = store.renew_lead("a", LEASE, at("127.0.0.1:1"), first, Some(7_000)).await.unwrap();
        assert_eq!(renewed, Some(first), "{loss:?}");
        assert!(!read().await.is_before(&seen), "{loss:?}");
    }
    query(&store, &["FLUSHALL"]).await;
    // All of this may have taken less than a millisecond.
    assert!(watch(SeenLease::default()).await >= Some(first), "whoever does not wait for it any more leads");
}

#[tokio::test]
async fn a_lease_that_was_given_up_is_free_for_whom_has_seen_it() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, store) = store(dir.path()).await;
    let first = take(&store, "a", 0).await.unwrap();
    let seen = SeenLease::of(&store.hash("look", keys::ENGINE).await.unwrap());
    store.renew_lead("a", Duration::ZERO, at("127.0.0.1:1"), first, None).await.unwrap();
    let beyond = Beyond { seen, ..Beyond::default() };
    let next = store.take_lead("b", LEASE, at("127.0.0.1:2"), beyond).await.unwrap();
    assert!(next > Some(first), "{next:?}");
}

#[tokio::test]
async fn an_epoch_that_shards_know_and_redis_has_forgotten_is_exceeded() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, store) = store(dir.path()).await;
    let first = take(&store, "a", 0).await.unwrap();
    let known = first.0 + 7_200_000;
    assert_eq!(take(&store, "a", known).await, Some(EngineEpoch(known + 1)));
    assert_eq!(take(&store, "b", known + 9).await, None, "the lease is held all the same");
}

#[tokio::test]
async fn no_number_of_a_worker_comes_twice_whatever_becomes_of_the_counter() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, store) = store(dir.path()).await;
    store.skip_incarnations(Incarnation(7)).await.unwrap();
    let mut before = store.next_incarnation().await.unwrap();
    assert!(before.0 > 107, "those that another engine may have given away are left out");
    let damages: [&[&str]; 6] = [
        &["FLUSHALL"],
        &["SET", keys::INCARNATIONS, "3"],
        &["SET", keys::INCARNATIONS, "9223372036854775807"],
        &["SET", keys::INCARNATIONS, "-5"],
        &["SET", keys::INCARNATIONS, "text"],
        &["EVAL", "redis.call('DEL', KEYS[1]) redis.call('RPUSH', KEYS[1], 'x')", "1", keys::INCARNATIONS],
    ];
    for damage in damages {
        query(&store, damage).await;
        let next = store.clone().next_incarnation().await.unwrap();
        assert!(next > before && next.0 < before.0 + 200, "{damage:?}: {next} after {before}");
        before = next;
    }
    assert_eq!(
        store.next_incarnation().await.unwrap(),
        Incarnation(before.0 + 1),
        "no gap where nothing is wrong"
    );
}

#[tokio::test]
async fn a_connection_on_which_no_answers_come_is_left_for_another_one() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _) = store(dir.path()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (at, redis) = (listener.local_addr().unwrap(), server.url());
    let target = redis.rsplit(['@', '/']).find(|part| part.contains(':')).unwrap().to_owned();
    let proxied = redis.replacen(&target, &at.to_string(), 1);
    // The first connection is swallowed once its greeting is over; all others are passed on.
    let (swallow, swallowed) = tokio::sync::watch::channel(false);
    let proxy = tokio::spawn(async move {
        let mut first = true;
        loop {
            let (mut from, _) = listener.accept().await.unwrap();
            let (target, mut swallowed, is_first) =
                (target.clone(), swallowed.clone(), std::mem::take(&mut first));
            tokio::spawn(async move {
                let mut to = TcpStream::connect(target).await.unwrap();
                let cut = async { drop(swallowed.wait_for(|&on| on).await.map(drop)) };
                tokio::select! {
                    _ = copy_bidirectional(&mut from, &mut to) => {}
                    () = cut, if is_first => std::future::pending().await,
                }
            });
        }
    });
    let store = RedisStore::connect(&proxied).await.unwrap();
    assert!(take(&store, "a", 0).await.is_some());
    swallow.send_replace(true);
    let silent = store.jobs().await.unwrap_err();
    assert!(silent.is_passing(), "{silent}");
    assert_eq!(store.jobs().await.unwrap(), []);
    proxy.abort();
}
