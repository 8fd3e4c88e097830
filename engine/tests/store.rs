//! The promises of the store, against a real server.

use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use syncline_engine::store::{
    Beyond, Claimed, CommitMode, Committed, Expiry, Fence, LeaderAt, RedisAddress, RedisStore, StoreError,
    keys::{self, JobKeys},
};
use syncline_kit::{RedisOptions, RedisServer};
use syncline_scheduler::{
    core::{Commit, Event, GraphChanges, Happening, SeriesChanges, StoredGraph},
    ids::{EngineEpoch, JobId},
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub fn server(dir: &Path) -> RedisServer {
    let program = syncline_kit::redis_server(&|line| eprintln!("{line}")).unwrap();
    RedisServer::start(&program.path, RedisOptions::new(dir)).unwrap()
}

/// An engine that listens there.
pub fn at(address: &str) -> LeaderAt<'_> {
    LeaderAt { address, cluster: "" }
}

/// Of such a commit.
pub fn fence(epoch: EngineEpoch, seq: u64, mode: CommitMode) -> Fence {
    Fence { epoch, seq, mode }
}

fn commit(job_state: &str) -> Commit {
    Commit {
        spec: Some("{}".into()),
        job_state: Some(job_state.into()),
        summary: vec![("state", "running".into())],
        tasks: vec![("it/w1/1".into(), Some("{}".into())), ("it/w1/0".into(), None)],
        events: vec![Event { at_us: 7, what: Happening::Resumed }],
        ..Commit::default()
    }
}

const FIRST: EngineEpoch = EngineEpoch(1);
const SECOND: EngineEpoch = EngineEpoch(2);

async fn erase(store: &RedisStore, job: &JobId) {
    let found = store.last_writer(job).await.unwrap();
    store.erase(job, &found, SECOND, 1).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_is_applied_once_in_order_and_by_one_engine() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let job: JobId = "fenced".parse().unwrap();
    let fenced = |r: Result<Committed, StoreError>| matches!(r, Err(StoreError::Fenced { .. }));

    let commit = async |epoch, seq, text| {
        let mode = if seq == 1 { CommitMode::New } else { CommitMode::Next };
        store.commit(&job, fence(epoch, seq, mode), &commit(text)).await
    };
    assert_eq!(commit(FIRST, 1, "a").await.unwrap(), Committed::Applied);
    assert_eq!(commit(FIRST, 1, "a").await.unwrap(), Committed::AlreadyApplied);
    assert_eq!(
        commit(FIRST, 3, "c").await.unwrap(),
        Committed::StoreBehind { seq: 1 },
        "the store lacks one"
    );
    assert_eq!(commit(FIRST, 2, "b").await.unwrap(), Committed::Applied);

    assert_eq!(store.claim(&job, SECOND).await.unwrap(), Claimed::Job { seq: 2 });
    let stored = store.read(&job).await.unwrap();
    assert_eq!(stored.job_state, "b");
    assert_eq!(stored.tasks.len(), 1);
    assert!(fenced(commit(FIRST, 3, "c").await), "the old engine is fenced");
    assert!(fenced(store.claim(&job, FIRST).await.map(|_| Committed::Applied)));
    assert_eq!(commit(SECOND, 3, "c").await.unwrap(), Committed::Applied);
    // Repeated commits wrote one event each time they were applied, and none otherwise.
    let events: u64 = store.query("count", &["XLEN", &JobKeys::new(&job).events]).await.unwrap();
    assert_eq!(events, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_comes_a_second_time_long_after_the_first_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let job: JobId = "twice".parse().unwrap();
    let dump = async || {
        let keys = JobKeys::new(&job);
        let [state, events]: [Vec<u8>; 2] = [
            store.query("look", &["DUMP", &keys.state]).await,
            store.query("look", &["DUMP", &keys.events]).await,
        ]
        .map(Result::unwrap);
        (state, events)
    };
    store.commit(&job, fence(FIRST, 1, CommitMode::New), &commit("a")).await.unwrap();
    store.commit(&job, fence(FIRST, 2, CommitMode::Next), &commit("b")).await.unwrap();
    let before = dump().await;
    let gone = Commit { gone: true, ..Commit::default() };
    for (mode, commit) in
        [(CommitMode::New, &commit("a")), (CommitMode::Whole, &commit("a")), (CommitMode::Next, &gone)]
    {
        let again = store.commit(&job, fence(FIRST, 1, mode), commit).await;
        assert!(matches!(again, Err(StoreError::Fenced { epoch: 1, seq: 2 })), "{mode:?}: {again:?}");
    }
    assert_eq!(dump().await, before);
    // The next job of that name counts on.
    assert_eq!(
        store.commit(&job, fence(FIRST, 3, CommitMode::New), &commit("c")).await.unwrap(),
        Committed::Applied
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fence_names_an_epoch_of_16_digits_as_it_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let job: JobId = "fenced".parse().unwrap();
    let far = ["HSET", &JobKeys::new(&job).state, "epoch", "9007199254740991", "seq", "3"];
    let _: u64 = store.query("spoil", &far).await.unwrap();
    let late = store.commit(&job, fence(FIRST, 1, CommitMode::Next), &commit("late")).await;
    assert!(matches!(late, Err(StoreError::Fenced { epoch: 9_007_199_254_740_991, seq: 3 })), "{late:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_before_a_job_was_deleted_brings_it_back_for_no_engine() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let job: JobId = "deleted".parse().unwrap();
    let keys = JobKeys::new(&job);
    let gone = Commit { gone: true, ..Commit::default() };
    let late = async |epoch, seq, mode| {
        let late = store.commit(&job, fence(epoch, seq, mode), &commit("late")).await;
        assert!(matches!(late, Err(StoreError::Fenced { .. })), "{mode:?}: {late:?}");
        assert_eq!(store.query::<u64>("look", &["EXISTS", &keys.job]).await.unwrap(), 0);
    };
    store.commit(&job, fence(SECOND, 7, CommitMode::New), &commit("a")).await.unwrap();
    for _ in 0..2 {
        store.commit(&job, fence(SECOND, 9, CommitMode::Next), &gone).await.unwrap();
    }
    for (epoch, seq) in [(SECOND, 7), (SECOND, 8), (FIRST, 30)] {
        late(epoch, seq, CommitMode::New).await;
        late(epoch, seq, CommitMode::Whole).await;
    }
    let left: Vec<String> = store.query("look", &["KEYS", "syncline:{deleted}:*"]).await.unwrap();
    assert_eq!(left, [keys.state.as_str()], "nothing but the fence is left");
    let ttl_s: i64 = store.query("look", &["TTL", &keys.state]).await.unwrap();
    assert!((1..=keys::FENCE_EXPIRY_S as i64).contains(&ttl_s), "{ttl_s}");
    assert!(store.read(&job).await.unwrap().spec.is_empty());
    // The next engine takes it for what it is, and its own numbers begin anew.
    let third = EngineEpoch(3);
    assert_eq!(store.claim(&job, third).await.unwrap(), Claimed::Absent);
    late(SECOND, 30, CommitMode::New).await;
    assert!(matches!(store.claim(&job, SECOND).await, Err(StoreError::Fenced { .. })));
    store.commit(&job, fence(third, 1, CommitMode::New), &commit("b")).await.unwrap();
    assert_eq!(store.query::<i64>("look", &["TTL", &keys.state]).await.unwrap(), -1);
    assert_eq!(store.claim(&job, third).await.unwrap(), Claimed::Job { seq: 1 });
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erasure_removes_what_was_looked_at_and_nothing_that_came_into_its_place() {
    const SPOIL: &str = "redis.call(unpack(ARGV)) return 'done'";
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let job: JobId = "spoiled".parse().unwrap();
    let keys = JobKeys::new(&job);
    // An epoch that no engine has had is damage that can be removed.
    let spoil: [&[&str]; 3] = [
        &["HSET", &keys.state, "epoch", "9007199254740991", "seq", "x"],
        &["SET", &keys.state, "text"],
        &["HSET", &keys.job, "state", "running"],
    ];
    for spoil in spoil {
        let _: String = store.query("spoil", &[&["EVAL", SPOIL, "0"], spoil].concat()).await.unwrap();
        let found = store.last_writer(&job).await.unwrap();
        assert!(store.erase(&job, &found, SECOND, 5).await.unwrap());
        assert_eq!(store.query::<u64>("look", &["EXISTS", &keys.job]).await.unwrap(), 0);
        for (epoch, seq) in [(FIRST, 30), (SECOND, 4)] {
            let late = store.commit(&job, fence(epoch, seq, CommitMode::New), &commit("late")).await;
            assert!(matches!(late, Err(StoreError::Fenced { .. })), "{late:?}");
        }
        // The next job of that name came before the same call comes a second time.
        store.commit(&job, fence(SECOND, 6, CommitMode::New), &commit("next")).await.unwrap();
        assert!(!store.erase(&job, &found, SECOND, 5).await.unwrap());
        assert_eq!(store.read(&job).await.unwrap().job_state, "next");
        // What was looked at belongs to another engine by now.
        let found = store.last_writer(&job).await.unwrap();
        store.claim(&job, EngineEpoch(3)).await.unwrap();
        assert!(!store.erase(&job, &found, SECOND, 7).await.unwrap());
        let _: u64 = store.query("clear", &[&["DEL"], &keys.all()[..]].concat()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graph_is_scanned_to_its_end_over_another_connection() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let job: JobId = "large".parse().unwrap();
    let many = |prefix: &str, count: u64| {
        (0..count).map(|n| (n.to_string(), format!("{prefix}{n}"))).collect::<Vec<_>>()
    };
    let graph = GraphChanges {
        classes: many("class", 3),
        chunks: many("chunk", 500),
        values: many("value", 2_000).into_iter().map(|(n, value)| (n, Some(value.into_bytes()))).collect(),
        ..GraphChanges::default()
    };
    store.commit(&job, fence(FIRST, 1, CommitMode::New), &Commit { graph, ..commit("a") }).await.unwrap();
    let apart = store.connect_apart().await.unwrap();
    let id = async |store: &RedisStore| store.query::<u64>("ask", &["CLIENT", "ID"]).await.unwrap();
    assert_ne!(id(&apart).await, id(&store).await);
    assert_eq!(apart.read_spec(&job).await.unwrap(), "{}");
    let mut seen = BTreeSet::new();
    apart.scan_graph(&job, |text| _ = seen.insert(String::from_utf8(text.to_vec()).unwrap())).await.unwrap();
    let expected = [many("class", 3), many("chunk", 500), many("value", 2_000)].concat();
    assert_eq!(seen, expected.into_iter().map(|(_, text)| text).collect());
    let none: JobId = "none".parse().unwrap();
    assert_eq!(apart.read_spec(&none).await.unwrap(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_older_engine_wrote_after_the_claim_was_lost_is_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let job: JobId = "unclaimed".parse().unwrap();
    store.commit(&job, fence(FIRST, 9, CommitMode::New), &commit("a")).await.unwrap();
    let ahead = Committed::StoreBehind { seq: 9 };
    assert_eq!(store.commit(&job, fence(SECOND, 6, CommitMode::Next), &commit("b")).await.unwrap(), ahead);
    let whole = store.commit(&job, fence(SECOND, 6, CommitMode::Whole), &commit("b")).await.unwrap();
    assert_eq!(whole, Committed::Applied);
    assert_eq!(store.read(&job).await.unwrap().job_state, "b");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_a_later_release_is_left_as_it_is_and_one_of_an_earlier_is_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let job: JobId = "later".parse().unwrap();
    let state = JobKeys::new(&job).state;
    store.commit(&job, fence(FIRST, 1, CommitMode::New), &commit("a")).await.unwrap();
    let later = (keys::SCHEMA.parse::<u32>().unwrap() + 1).to_string();
    let _: u64 = store.query("raise", &["HSET", &state, "schema", &later]).await.unwrap();
    let before: Vec<u8> = store.query("look", &["DUMP", &state]).await.unwrap();
    let refused = store.claim(&job, SECOND).await.unwrap_err();
    assert!(
        matches!(&refused, StoreError::Newer { job: named, schema } if *named == job && *schema == later),
        "{refused}"
    );
    assert_eq!(store.query::<Vec<u8>>("look", &["DUMP", &state]).await.unwrap(), before);
    // Before 10 there was no key for evaluations, and nothing else was different.
    let _: u64 = store.query("lower", &["HSET", &state, "schema", "9"]).await.unwrap();
    assert_eq!(store.claim(&job, SECOND).await.unwrap(), Claimed::Job { seq: 1 });
    assert_eq!(store.read(&job).await.unwrap().job_state, "a");
    assert_eq!(store.query::<String>("look", &["HGET", &state, "schema"]).await.unwrap(), keys::SCHEMA);
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_says_when_jobs_expire() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let jobs = ["live", "pending", "over", "none"].map(|name| name.parse::<JobId>().unwrap());
    store.commit(&jobs[0], fence(FIRST, 1, CommitMode::New), &commit("a")).await.unwrap();
    store
        .commit(&jobs[1], fence(FIRST, 1, CommitMode::New), &Commit { over: true, ..commit("z") })
        .await
        .unwrap();
    let over = Commit { over: true, expires: true, ..commit("z") };
    store.commit(&jobs[2], fence(FIRST, 1, CommitMode::New), &over).await.unwrap();
    let expiries = store.expiries(&jobs).await.unwrap();
    let [Expiry::Never, Expiry::Never, Expiry::InMs(left_ms), Expiry::Gone] = expiries[..] else {
        panic!("{expiries:?}")
    };
    assert!((600_000_000..=604_800_000).contains(&left_ms), "{left_ms}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deposed_engine_cannot_bring_in_a_new_job() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let lease = Duration::from_millis(1);
    let old = store.take_lead("a", lease, at("127.0.0.1:1"), Beyond::default()).await.unwrap().unwrap();
    let (early, late): (JobId, JobId) = ("early".parse().unwrap(), "late".parse().unwrap());
    store.list_job(&early, old, 1).await.unwrap();
    // Its lease is over before the next engine looks.
    let take_over = async {
        loop {
            let lease = Duration::from_secs(60);
            let taken = store.take_lead("b", lease, at("127.0.0.1:2"), Beyond::default()).await;
            if let Some(epoch) = taken.unwrap() {
                return epoch;
            }
        }
    };
    let new = tokio::time::timeout(Duration::from_secs(60), take_over).await.expect("a lease of 1 ms ends");
    assert!(new > old);
    assert!(matches!(store.claim(&early, new).await.unwrap(), Claimed::Absent));
    // What was listed before the change of engines is fenced by the claim, what comes after it by the list.
    let fenced = |r: Result<(), StoreError>| matches!(r, Err(StoreError::Fenced { .. }));
    assert!(fenced(store.commit(&early, fence(old, 1, CommitMode::New), &commit("a")).await.map(drop)));
    assert!(fenced(store.list_job(&late, old, 2).await));
    assert!(fenced(store.unlist_job(&early, old).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_has_gone_back_is_written_again_by_the_engine_that_knows_all() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let job: JobId = "back".parse().unwrap();
    let epoch = store
        .take_lead("a", Duration::from_secs(60), at("127.0.0.1:1"), Beyond::default())
        .await
        .unwrap()
        .unwrap();
    let number = store.next_incarnation().await.unwrap();
    store.commit(&job, fence(epoch, 1, CommitMode::New), &commit("a")).await.unwrap();
    let _: String = store.query("lose", &["FLUSHALL"]).await.unwrap();
    let lost = Committed::StoreBehind { seq: 0 };
    assert_eq!(store.commit(&job, fence(epoch, 2, CommitMode::Next), &commit("b")).await.unwrap(), lost);
    assert_eq!(
        store.commit(&job, fence(epoch, 2, CommitMode::Whole), &commit("b")).await.unwrap(),
        Committed::Applied
    );
    assert_eq!(
        store.commit(&job, fence(epoch, 3, CommitMode::Next), &commit("c")).await.unwrap(),
        Committed::Applied
    );
    // The lead is renewed, and neither its number nor a worker's comes a second time.
    let again = store.renew_lead("a", Duration::from_secs(60), at("127.0.0.1:1"), epoch, None).await.unwrap();
    assert_eq!(again, Some(epoch));
    assert!(
        store.take_lead("a", Duration::from_secs(60), at("127.0.0.1:1"), Beyond::default()).await.unwrap()
            > Some(epoch)
    );
    store.skip_incarnations(number).await.unwrap();
    assert!(store.next_incarnation().await.unwrap() > number);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_written_again_keeps_what_its_streams_tell() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let job: JobId = "told".parse().unwrap();
    let keys = JobKeys::new(&job);
    let entry = |what: &str| vec![vec![("what", what.to_owned())]];
    let series = |what: &str| SeriesChanges { points: entry(what), halve: false };
    let told = |what: &str| Commit {
        metrics: series(what),
        evaluations: series(what),
        barriers: entry(what),
        results: entry(what),
        ..commit(what)
    };
    store.commit(&job, fence(FIRST, 1, CommitMode::New), &told("before")).await.unwrap();
    store.commit(&job, fence(FIRST, 3, CommitMode::Whole), &told("after")).await.unwrap();
    for key in [&keys.events, &keys.metrics, &keys.evaluations, &keys.barriers, &keys.results] {
        assert_eq!(store.query::<u64>("count", &["XLEN", key]).await.unwrap(), 2, "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_written_again_keeps_nothing_of_the_one_before_it_and_no_time_of_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let job: JobId = "digits".parse().unwrap();
    let events = JobKeys::new(&job).events;
    let submitted = |nonce: &str, expires| Commit {
        summary: vec![("nonce", nonce.into()), ("events_dropped", "7".into())],
        expires,
        ..commit("a")
    };
    let dropped = ["HGET", &JobKeys::new(&job).job, "events_dropped"];
    let look = async || {
        (
            store.query::<u64>("count", &["XLEN", &events]).await.unwrap(),
            store.query::<i64>("look", &["TTL", &events]).await.unwrap(),
        )
    };
    store.commit(&job, fence(FIRST, 1, CommitMode::New), &submitted("1", true)).await.unwrap();
    // What this one wrote at first Redis has lost.
    let again = Commit { summary: vec![("nonce", "2".into())], ..commit("b") };
    store.commit(&job, fence(FIRST, 3, CommitMode::Whole), &again).await.unwrap();
    assert_eq!(look().await, (1, -1), "its own event alone, which does not expire");
    assert_eq!(store.query::<Option<u64>>("look", &dropped).await.unwrap(), None);

    store.commit(&job, fence(FIRST, 4, CommitMode::Next), &submitted("2", true)).await.unwrap();
    assert!(look().await.1 > 0);
    // Redis has an end of it that was undone.
    store.commit(&job, fence(FIRST, 6, CommitMode::Whole), &again).await.unwrap();
    assert_eq!(look().await, (3, -1));
    assert_eq!(store.query::<Option<u64>>("look", &dropped).await.unwrap(), Some(7));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_cannot_be_those_of_a_job_are_damage_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let job: JobId = "damaged".parse().unwrap();
    let state = JobKeys::new(&job).state;
    for (field, value) in [("seq", "abc"), ("epoch", "x"), ("seq", "-1")] {
        store.commit(&job, fence(FIRST, 1, CommitMode::New), &commit("a")).await.unwrap();
        let _: u64 = store.query("spoil", &["HSET", &state, field, value]).await.unwrap();
        assert!(
            matches!(store.claim(&job, SECOND).await.unwrap(), Claimed::Damaged { .. }),
            "{field}={value}"
        );
        let _: u64 = store.query("clear", &["DEL", &state]).await.unwrap();
    }
    let _: String = store.query("spoil", &["SET", &state, "text"]).await.unwrap();
    assert!(matches!(store.claim(&job, SECOND).await.unwrap(), Claimed::Damaged { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_lost_its_state_alone_is_damaged_and_fenced_and_one_without_keys_never_was() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let job: JobId = "stateless".parse().unwrap();
    let fenced = |r: Result<Committed, StoreError>| matches!(r, Err(StoreError::Fenced { .. }));
    store.commit(&job, fence(FIRST, 1, CommitMode::New), &commit("a")).await.unwrap();
    let _: u64 = store.query("spoil", &["DEL", &JobKeys::new(&job).state]).await.unwrap();
    // The next engine finds the fence of the one before, and no state either.
    for _ in 0..2 {
        assert!(matches!(store.claim(&job, SECOND).await.unwrap(), Claimed::Damaged { .. }));
        assert!(fenced(store.commit(&job, fence(FIRST, 2, CommitMode::Whole), &commit("b")).await));
    }
    erase(&store, &job).await;
    assert!(matches!(store.claim(&job, SECOND).await.unwrap(), Claimed::Absent));
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_listed_again_in_their_order_by_the_engine_that_leads_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let lead = store
        .take_lead("a", Duration::from_secs(60), at("127.0.0.1:1"), Beyond::default())
        .await
        .unwrap()
        .unwrap();
    let jobs = ["zebra", "ape", "mouse"].map(|name| name.parse::<JobId>().unwrap());
    for words in [&["LPUSH", keys::JOBS, "text"][..], &["DEL", keys::JOBS]] {
        let _: u64 = store.query("spoil", words).await.unwrap();
        store.relist_jobs(&jobs, lead, 1_000).await.unwrap();
        assert_eq!(store.jobs().await.unwrap(), jobs, "{words:?}");
    }
    let _: u64 = store.query("spoil", &["ZREM", keys::JOBS, "ape"]).await.unwrap();
    // One that nobody here knows.
    let _: u64 = store.query("spoil", &["ZADD", keys::JOBS, "1", "ghost"]).await.unwrap();
    let stale = store.relist_jobs(&jobs, FIRST, 1).await;
    assert!(matches!(stale, Err(StoreError::Fenced { .. })), "{stale:?}");
    store.relist_jobs(&jobs, lead, 2_000).await.unwrap();
    let names: Vec<String> = store.jobs().await.unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["ghost", "zebra", "mouse", "ape"], "those that are listed stay where they are");
}

#[tokio::test(flavor = "multi_thread")]
async fn evaluations_that_are_thinned_out_keep_their_first_and_their_last_point() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let job: JobId = "curve".parse().unwrap();
    let point = |n: u64| vec![("samples", n.to_string())];
    for seq in 1..=8 {
        let evaluations = SeriesChanges { points: vec![point(seq)], halve: seq % 4 == 0 };
        let more = Commit { evaluations, ..commit("a") };
        let mode = if seq == 1 { CommitMode::New } else { CommitMode::Next };
        store.commit(&job, fence(FIRST, seq, mode), &more).await.unwrap();
    }
    let entries: Vec<(String, Vec<String>)> =
        store.query("read", &["XRANGE", &JobKeys::new(&job).evaluations, "-", "+"]).await.unwrap();
    let samples: Vec<&str> = entries.iter().map(|(_, fields)| fields[1].as_str()).collect();
    assert_eq!(samples, ["1", "4", "6", "8"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn points_of_a_curve_that_become_one_lose_no_iteration_and_have_the_means_over_all() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let job: JobId = "curve".parse().unwrap();
    let point = |n: u64| {
        // All of the second one's iterations were skipped.
        let (loss, loss_samples) = if n == 2 { ("NaN".to_owned(), 0) } else { (n.to_string(), 8) };
        // The third one counts three times as much.
        let loss_weight = loss_samples as f64 * if n == 3 { 1.5 } else { 0.5 };
        vec![
            ("samples", (8 * n).to_string()),
            ("iterations", "1".to_owned()),
            ("loss", loss),
            ("loss_samples", loss_samples.to_string()),
            ("loss_weight", loss_weight.to_string()),
            ("step_us", (1000 * n).to_string()),
            ("staleness_mean", "0.50".to_owned()),
            ("staleness_max", n.to_string()),
        ]
    };
    for seq in 1..=8 {
        let metrics = SeriesChanges { points: vec![point(seq)], halve: seq % 4 == 0 };
        let more = Commit { metrics, ..commit("a") };
        let mode = if seq == 1 { CommitMode::New } else { CommitMode::Next };
        store.commit(&job, fence(FIRST, seq, mode), &more).await.unwrap();
    }
    let entries: Vec<(String, Vec<String>)> =
        store.query("read", &["XRANGE", &JobKeys::new(&job).metrics, "-", "+"]).await.unwrap();
    let values = |field: usize| -> Vec<&str> { entries.iter().map(|entry| &*entry.1[field]).collect() };
    assert_eq!(values(1), ["24", "40", "56", "64"], "samples");
    assert_eq!(values(3), ["3", "2", "2", "1"], "iterations");
    assert_eq!(values(5), ["2.5", "4.5", "6.5", "8"], "loss");
    assert_eq!(values(7), ["16", "16", "16", "8"], "loss_samples");
    assert_eq!(values(9), ["16", "8", "8", "4"], "loss_weight");
    assert_eq!(values(11), ["2000", "4500", "6500", "8000"], "step_us");
    assert_eq!(values(13), ["0.50", "0.50", "0.50", "0.50"], "staleness_mean");
    assert_eq!(values(15), ["3", "5", "7", "8"], "staleness_max");
}

#[tokio::test(flavor = "multi_thread")]
async fn points_of_a_curve_that_others_wrote_stop_no_commit() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let job: JobId = "odd".parse().unwrap();
    store.commit(&job, fence(FIRST, 1, CommitMode::New), &commit("a")).await.unwrap();
    let key = JobKeys::new(&job).metrics;
    for point in [["loss", "much"], ["iterations", "-1"], ["loss", "inf"]] {
        let _: String = store.query("add", &["XADD", &key, "*", point[0], point[1]]).await.unwrap();
    }
    let metrics = SeriesChanges { points: Vec::new(), halve: true };
    let next = Commit { metrics, ..commit("b") };
    assert_eq!(
        store.commit(&job, fence(FIRST, 2, CommitMode::Next), &next).await.unwrap(),
        Committed::Applied
    );
    assert_eq!(store.query::<u64>("count", &["XLEN", &key]).await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_another_type_counts_as_lost_before_anything_is_written_and_gives_way_to_all_of_the_job() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    for n in 0..4 {
        let job: JobId = format!("typed-{n}").parse().unwrap();
        let keys = JobKeys::new(&job);
        let taken = [&keys.state, &keys.job, &keys.tasks, &keys.events][n];
        store.commit(&job, fence(FIRST, 1, CommitMode::New), &commit("a")).await.unwrap();
        let _: String = store.query("spoil", &["SET", taken, "something else"]).await.unwrap();
        let known = if *taken == keys.state { 0 } else { 1 };
        let next = store.commit(&job, fence(FIRST, 2, CommitMode::Next), &commit("b")).await.unwrap();
        assert_eq!(next, Committed::StoreBehind { seq: known }, "{taken}");
        let left: String = store.query("look", &["GET", taken]).await.unwrap();
        assert_eq!(left, "something else");
        let whole = store.commit(&job, fence(FIRST, 2, CommitMode::Whole), &commit("b")).await.unwrap();
        assert_eq!(whole, Committed::Applied, "{taken}");
        let found: String = store.query("look", &["TYPE", taken]).await.unwrap();
        assert_ne!(found, "string", "{taken}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_more_events_than_the_stream_keeps_the_newest_are_written_and_the_others_counted() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let job: JobId = "eventful".parse().unwrap();
    let keys = JobKeys::new(&job);
    let mut told = 0;
    for (seq, events, mode, dropped) in [
        (1, 1_000, CommitMode::New, "800"),
        (2, 1, CommitMode::Next, "801"),
        (3, 450, CommitMode::Whole, "1251"),
    ] {
        let event = |at_us| Event { at_us, what: Happening::Resumed };
        let events = (told + 1..=told + events).map(|ms| event(1_000 * ms)).collect::<Vec<_>>();
        told += events.len() as u64;
        store.commit(&job, fence(FIRST, seq, mode), &Commit { events, ..commit("running") }).await.unwrap();
        let kept = store.stream("look", &keys.events, None).await.unwrap();
        assert_eq!(kept.len(), keys::STREAM_ENTRIES);
        let times: Vec<&str> = kept.iter().map(|entry| &*entry.fields["at_ms"]).collect();
        let newest = told + 1 - kept.len() as u64..=told;
        assert_eq!(times, newest.map(|ms| ms.to_string()).collect::<Vec<_>>());
        let count: String = store.query("count", &["HGET", &keys.job, "events_dropped"]).await.unwrap();
        assert_eq!(count, dropped, "after {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_made_of_a_count_or_a_stream_stops_no_commit() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let job: JobId = "foreign".parse().unwrap();
    let keys = JobKeys::new(&job);
    store.commit(&job, fence(FIRST, 1, CommitMode::New), &commit("a")).await.unwrap();
    let last = format!("{0}-{0}", u64::MAX);
    let _: String = store.query("end", &["XADD", &keys.events, &last, "what", "theirs"]).await.unwrap();
    let _: u64 = store.query("word", &["HSET", &keys.job, "metrics_dropped", "many"]).await.unwrap();
    let points = vec![vec![("loss", "1".to_owned())]; 401];
    let next = Commit { metrics: SeriesChanges { points, halve: false }, ..commit("b") };
    assert_eq!(
        store.commit(&job, fence(FIRST, 2, CommitMode::Next), &next).await.unwrap(),
        Committed::Applied
    );
    let events: u64 = store.query("count", &["XLEN", &keys.events]).await.unwrap();
    let dropped: String = store.query("count", &["HGET", &keys.job, "metrics_dropped"]).await.unwrap();
    assert_eq!((events, &*dropped), (1, "1"), "the stream was begun anew, and the count");
}

fn fields<V: Clone>(fields: &[(&str, V)]) -> Vec<(String, V)> {
    fields.iter().map(|(field, value)| ((*field).to_owned(), value.clone())).collect()
}

fn text(field: &str, value: &str) -> (String, Option<String>) {
    (field.to_owned(), Some(value.to_owned()))
}

/// All six parts of a graph, one of them with every byte there is.
fn graph() -> GraphChanges {
    let any: Vec<u8> = (0..=255).collect();
    GraphChanges {
        classes: fields(&[("0", "{\"work\":1}".to_owned())]),
        chunks: fields(&[("0", "[\"a\"]".to_owned()), ("1", "x".repeat(1 << 20))]),
        windows: fields(&[("0", "wrd".to_owned())]),
        values: fields(&[("2", Some([b"=", &any[..]].concat())), ("7", Some(Vec::new()))]),
        faults: vec![text("1", "{}")],
        leases: vec![text("w3", "0-1")],
    }
}

fn stored_graph() -> StoredGraph {
    let given = graph();
    let kept = |fields: Vec<(String, Option<String>)>| {
        fields.into_iter().filter_map(|(field, value)| Some((field, value?))).collect()
    };
    StoredGraph {
        classes: given.classes.into_iter().collect(),
        chunks: given.chunks.into_iter().collect(),
        windows: given.windows.into_iter().collect(),
        values: given.values.into_iter().filter_map(|(task, value)| Some((task, value?))).collect(),
        faults: kept(given.faults),
        leases: kept(given.leases),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graph_is_read_back_as_it_was_written_whatever_the_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let job: JobId = "graph".parse().unwrap();
    let write = async |seq, mode, graph| {
        let commit = Commit { graph, ..commit("a") };
        assert_eq!(store.commit(&job, fence(FIRST, seq, mode), &commit).await.unwrap(), Committed::Applied);
        store.read(&job).await.unwrap().graph
    };
    assert_eq!(write(1, CommitMode::New, graph()).await, stored_graph());
    assert_eq!(write(2, CommitMode::Next, GraphChanges::default()).await, stored_graph(), "left alone");

    let changes = GraphChanges {
        windows: fields(&[("0", "ddd".to_owned()), ("1", "w".to_owned())]),
        values: vec![("2".into(), None), ("3".into(), Some(b"=\r\n".to_vec()))],
        faults: vec![("1".into(), None)],
        leases: vec![("w3".into(), None), text("w4", "256")],
        ..GraphChanges::default()
    };
    let changed = write(3, CommitMode::Next, changes).await;
    assert_eq!(changed.windows["0"], "ddd");
    assert_eq!(changed.values.keys().map(String::as_str).collect::<Vec<_>>(), ["3", "7"]);
    assert_eq!((changed.values["3"].as_slice(), changed.faults.len()), (&b"=\r\n"[..], 0));
    assert_eq!(changed.leases, [("w4".to_owned(), "256".to_owned())].into());

    // A job that is written whole, or takes the place of another, has nothing of what was there.
    assert_eq!(write(4, CommitMode::Whole, graph()).await, stored_graph());
    assert_eq!(write(5, CommitMode::Whole, GraphChanges::default()).await, StoredGraph::default());
    write(6, CommitMode::Next, graph()).await;
    assert_eq!(write(7, CommitMode::New, GraphChanges::default()).await, StoredGraph::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_measured_before_it_is_read_and_read_also_where_that_is_not_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let job: JobId = "large".parse().unwrap();
    assert_eq!(store.record_bytes(&job).await.unwrap(), 0, "there is none");
    let chunks = (0..16).map(|chunk| (chunk.to_string(), "x".repeat(100_000))).collect();
    let graph = GraphChanges { chunks, ..GraphChanges::default() };
    store
        .commit(&job, fence(FIRST, 1, CommitMode::New), &Commit { graph, ..commit("running") })
        .await
        .unwrap();
    let bytes = store.record_bytes(&job).await.unwrap();
    assert!((1_600_000..4_000_000).contains(&bytes), "{bytes}");
    let refusing = ["ACL", "SETUSER", "default", "-memory"];
    let _: String = store.query("refuse it", &refusing).await.unwrap();
    assert_eq!(store.record_bytes(&job).await.unwrap(), 0);
    assert_eq!(store.read(&job).await.unwrap().graph.chunks.len(), 16);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graph_of_many_fields_expires_with_its_job_and_goes_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let job: JobId = "many".parse().unwrap();
    let keys = JobKeys::new(&job);
    let values: Vec<_> = (0..20_000).map(|task| (task.to_string(), Some(b"=\x00".to_vec()))).collect();
    let removed = values.iter().map(|(task, _)| (task.clone(), None)).skip(1).collect();
    let count = async || store.query::<u64>("count", &["HLEN", &keys.values]).await.unwrap();
    let first = Commit { graph: GraphChanges { values, ..graph() }, ..commit("a") };
    store.commit(&job, fence(FIRST, 1, CommitMode::New), &first).await.unwrap();
    assert_eq!(count().await, 20_000);
    let graph = GraphChanges { values: removed, ..GraphChanges::default() };
    let last = Commit { graph, expires: true, ..commit("z") };
    store.commit(&job, fence(FIRST, 2, CommitMode::Next), &last).await.unwrap();
    assert_eq!(count().await, 1);
    for key in keys.all() {
        let ttl_s: i64 = store.query("ttl", &["TTL", key]).await.unwrap();
        assert!(ttl_s > 600_000 || ttl_s == -2, "{key}: {ttl_s}");
    }
    let gone = Commit { gone: true, ..Commit::default() };
    store.commit(&job, fence(FIRST, 3, CommitMode::Next), &gone).await.unwrap();
    for key in keys.all().into_iter().filter(|key| *key != keys.state) {
        assert_eq!(store.query::<u64>("look", &["EXISTS", key]).await.unwrap(), 0, "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graph_key_of_another_type_counts_as_lost_where_it_would_be_written_and_nowhere_else() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let job: JobId = "typed".parse().unwrap();
    let keys = JobKeys::new(&job);
    store.commit(&job, fence(FIRST, 1, CommitMode::New), &commit("a")).await.unwrap();
    let _: u64 = store.query("spoil", &["LPUSH", &keys.values, "something else"]).await.unwrap();
    let with_graph = Commit { graph: graph(), ..commit("b") };
    let lost = store.commit(&job, fence(FIRST, 2, CommitMode::Next), &with_graph).await.unwrap();
    assert_eq!(lost, Committed::StoreBehind { seq: 1 });
    assert_eq!(store.query::<u64>("look", &["EXISTS", &keys.graph]).await.unwrap(), 0);
    assert_eq!(store.query::<u64>("look", &["XLEN", &keys.events]).await.unwrap(), 1);
    let trains = store.commit(&job, fence(FIRST, 2, CommitMode::Next), &commit("b")).await;
    assert_eq!(trains.unwrap(), Committed::Applied, "a job that trains has nothing to do with that key");
    let replaced = store.commit(&job, fence(FIRST, 3, CommitMode::New), &with_graph).await;
    assert_eq!(replaced.unwrap(), Committed::Applied, "a new job takes the place of whatever was there");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_engine_leads_and_its_own_restart_takes_over_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let lease = Duration::from_secs(60);
    let take = async |instance| {
        store.take_lead(instance, lease, at("127.0.0.1:1"), Beyond::default()).await.unwrap()
    };
    let renew = async |instance, epoch| {
        store.renew_lead(instance, lease, at("127.0.0.1:1"), epoch, Some(7_000)).await.unwrap()
    };
    let first = take("a").await.unwrap();
    assert_eq!(store.last_clock_ms().await.unwrap(), None);
    assert_eq!(take("b").await, None, "the lease is held");
    assert_eq!(renew("a", first).await, Some(first));
    assert!(take("a").await.unwrap() > first, "the same instance after a crash");
    assert_eq!(store.last_clock_ms().await.unwrap(), Some(7_000), "the clock of the one before");
    assert_eq!(renew("a", first).await, None, "its former life is over");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_job_expires_and_a_dead_server_is_a_passing_error() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let job: JobId = "over".parse().unwrap();
    let last = Commit { expires: true, ..commit("z") };
    store.commit(&job, fence(FIRST, 1, CommitMode::New), &last).await.unwrap();
    for key in [&JobKeys::new(&job).state, &JobKeys::new(&job).tasks] {
        assert!(store.query::<i64>("ttl", &["TTL", key]).await.unwrap() > 600_000, "{key}");
    }
    let url = redis.url();
    tokio::task::block_in_place(|| drop(redis));
    assert!(
        store.commit(&job, fence(FIRST, 2, CommitMode::Next), &commit("y")).await.unwrap_err().is_passing()
    );
    assert!(RedisStore::connect(&url).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_started_again_lets_in_who_has_its_password_from_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let first = server(dir.path());
    let (port, url) = (first.port(), first.url());
    let from_file = RedisAddress::from(first.address()).with_password_file(Some(first.password_file()));
    let store = RedisStore::connect(from_file.clone()).await.unwrap();
    let with_password = RedisStore::connect(url).await.unwrap();
    let program = syncline_kit::redis_server(&|line| eprintln!("{line}")).unwrap();
    let again = tokio::task::block_in_place(|| {
        drop(first);
        RedisServer::start(&program.path, RedisOptions { port: Some(port), ..RedisOptions::new(dir.path()) })
    });
    let _again = again.unwrap();
    // At the first call, though its connection is lost and its password refused.
    assert_eq!(store.query::<String>("ping", &["PING"]).await.unwrap(), "PONG");
    RedisStore::connect(from_file).await.unwrap();
    let refused = with_password.query::<String>("ping", &["PING"]).await.unwrap_err();
    assert!(matches!(refused, StoreError::LockedOut { .. }), "{refused}");
}

/// Answers all who connect to a port with these words, until told to end.
async fn foreign_program(port: u16, words: &'static str, mut end: tokio::sync::oneshot::Receiver<()>) {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (mut stream, _) = accepted.unwrap();
                let mut asked = [0; 1024];
                if stream.read(&mut asked).await.is_ok_and(|bytes| bytes > 0) {
                    let _ = stream.write_all(words.as_bytes()).await;
                }
            }
            _ = &mut end => return,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_found_again_behind_what_answered_on_its_port_meanwhile() {
    let program = syncline_kit::redis_server(&|line| eprintln!("{line}")).unwrap();
    let cases = [
        ("HTTP/1.1 400 Bad Request\r\n\r\n", "what answers there is no Redis server"),
        // Another server, with fewer databases.
        ("+OK\r\n-ERR DB index is out of range\r\n+OK\r\n+OK\r\n+OK\r\n", "DB index is out of range"),
    ];
    for (words, told) in cases {
        let dir = tempfile::tempdir().unwrap();
        let first = server(dir.path());
        let (port, address) = (first.port(), format!("{}5", first.address()));
        let address = RedisAddress::from(address.as_str()).with_password_file(Some(first.password_file()));
        let store = RedisStore::connect(address).await.unwrap();
        tokio::task::block_in_place(|| drop(first));
        let (end, ended) = tokio::sync::oneshot::channel();
        let foreign = tokio::spawn(foreign_program(port, words, ended));
        let mut last = String::new();
        // The first calls may find the connection closed, or nobody there.
        for _ in 0..100 {
            last = store.query::<String>("ping", &["PING"]).await.unwrap_err().to_string();
            if last.contains(told) {
                break;
            }
        }
        assert!(last.contains(told), "{words}: {last}");
        end.send(()).unwrap();
        foreign.await.unwrap();
        let again = tokio::task::block_in_place(|| {
            RedisServer::start(
                &program.path,
                RedisOptions { port: Some(port), ..RedisOptions::new(dir.path()) },
            )
        });
        let _again = again.unwrap();
        assert_eq!(store.query::<String>("ping", &["PING"]).await.unwrap(), "PONG", "{words}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_answers_ok_to_everything_gives_no_lead_and_damages_no_job() {
    let dir = tempfile::tempdir().unwrap();
    let first = server(dir.path());
    let (port, store) = (first.port(), RedisStore::connect(&first.url()).await.unwrap());
    tokio::task::block_in_place(|| drop(first));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let foreign = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut asked = [0; 1024];
                // A transaction takes an answer for each of its commands.
                while stream.read(&mut asked).await.is_ok_and(|bytes| bytes > 0) {
                    if stream.write_all("+OK\r\n".repeat(30).as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    let (job, epoch, lease) = ("digits".parse().unwrap(), EngineEpoch(7), Duration::from_secs(60));
    let beyond = Beyond { epoch, ..Beyond::default() };
    let ask = async || {
        [
            ("take the lead", store.take_lead("a", lease, at("h:1"), beyond).await.err()),
            ("renew it", store.renew_lead("a", lease, at("h:1"), epoch, None).await.err()),
            ("list", store.jobs().await.err()),
            ("claim", store.claim(&job, epoch).await.err()),
            ("measure", store.record_bytes(&job).await.err()),
            ("read", store.read_of_size(&job, 0).await.err()),
            ("commit", store.commit(&job, fence(epoch, 2, CommitMode::Next), &commit("a")).await.err()),
            ("number", store.next_incarnation().await.err()),
        ]
    };
    // The first call may find the connection closed.
    ask().await;
    for (what, refused) in ask().await {
        let error = refused.unwrap_or_else(|| panic!("{what}: it was believed"));
        assert!(error.is_passing() && !error.is_of_keys(), "{what}: {error:?}");
        assert!(error.to_string().contains("what answers there is no Redis server"), "{what}: {error}");
    }
    foreign.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_wants_another_password_or_any_is_told_at_once_and_without_the_password() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    for url in [redis.address(), format!("redis://:secret@127.0.0.1:{}/", redis.port())] {
        let refused = RedisStore::connect(&url).await.err().unwrap();
        let text = refused.to_string();
        assert!(matches!(refused, StoreError::Locked { .. }) && !text.contains("secret"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_a_redis_cluster_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let program = syncline_kit::redis_server(&|line| eprintln!("{line}")).unwrap();
    let node = dir.path().join("node");
    fs::write(&node, format!("#!/bin/sh\nexec '{}' \"$@\" --cluster-enabled yes\n", program.path.display()))
        .unwrap();
    fs::set_permissions(&node, fs::Permissions::from_mode(0o755)).unwrap();
    // Nodes talk to each other on a port 10,000 above, which not every free port has.
    let start = || RedisServer::start(&node, RedisOptions::new(dir.path().join("data")));
    let mut started = start();
    for _ in 0..50 {
        started = started.or_else(|_| start());
    }
    let redis = started.unwrap();
    let refused = RedisStore::connect(&redis.url()).await.err().unwrap();
    assert_eq!(refused.code(), "E209", "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_number_of_a_database_that_the_server_does_not_have_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let refused = RedisStore::connect(format!("{}99", redis.url())).await.err().unwrap();
    let text = refused.to_string();
    assert_eq!((refused.code(), refused.is_passing()), ("E656", false), "{text}");
    assert!(text.contains("/99 ") && text.contains("out of range"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_refused_with_its_master_named_until_it_is_a_master() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    store.query::<()>("set", &["REPLICAOF", "192.0.2.1", "6379"]).await.unwrap();
    let refused = RedisStore::connect(&redis.url()).await.err().unwrap();
    assert_eq!((refused.code(), refused.is_passing()), ("E658", true), "{refused}");
    assert!(refused.hint().unwrap().contains("192.0.2.1:6379"), "{refused}");
    store.query::<()>("set", &["REPLICAOF", "NO", "ONE"]).await.unwrap();
    RedisStore::connect(&redis.url()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_may_lose_jobs_says_so_and_one_that_may_not_tell_is_taken_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let redis = server(dir.path());
    let store = RedisStore::connect(&redis.url()).await.unwrap();
    let risks =
        async |store: &RedisStore| store.risks().await.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(risks(&store).await.is_empty(), "{:?}", risks(&store).await);
    let settings =
        [("maxmemory", "1gb"), ("maxmemory-policy", "allkeys-lru"), ("appendonly", "no"), ("save", "")];
    for (name, value) in settings {
        store.query::<()>("set", &["CONFIG", "SET", name, value]).await.unwrap();
    }
    let told = risks(&store).await;
    assert!(told[0].contains("allkeys-lru") && told[1].contains("appendonly is no"), "{told:?}");
    let allow = |rights: &'static [&str]| {
        let words =
            [&["ACL", "SETUSER", "trainer", "on", ">p", "~syncline:*", "+@all", "-@dangerous"], rights];
        let store = store.clone();
        async move { store.query::<()>("set", &words.concat()).await.unwrap() }
    };
    let url = redis.address().replace("redis://", "redis://trainer:p@");
    allow(&[]).await;
    assert!(risks(&RedisStore::connect(&url).await.unwrap()).await.is_empty(), "neither INFO nor CONFIG");
    allow(&["+info"]).await;
    assert_eq!(risks(&RedisStore::connect(&url).await.unwrap()).await, told[..1], "CONFIG is forbidden");
}
