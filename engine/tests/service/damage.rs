//! Keys of jobs that something else has overwritten: the jobs are shown as damaged, and all others go on.

use std::collections::BTreeMap;

use syncline_engine::store::{RedisStore, keys::JobKeys};
use syncline_rpc::{ClientServiceClient, EngineFault, JobStream, ShardHello, within};
use syncline_scheduler::{
    core::IfTaken,
    ids::{EngineEpoch, JobId, JobRef, ShardIndex},
    sim::{training, training_job},
    spec::JobSpec,
    tasks::{ClassIndex, GraphSpec, NewTask, PreparedTraining, Rules, TaskClass, Work},
};

use super::{
    rig::{Rig, TEST_TIMEOUT, until},
    scripted_worker::{NONCE, ScriptedWorker, call, graph, submit},
};

/// What something else may do to a key.
const DAMAGES: [(&str, &str); 3] = [
    ("text", "redis.call('SET', KEYS[1], 'text')"),
    ("list", "redis.call('DEL', KEYS[1]) redis.call('RPUSH', KEYS[1], 'a', 'b')"),
    (
        "bytes",
        "if redis.call('TYPE', KEYS[1]).ok == 'stream' then redis.call('XADD', KEYS[1], '*', '\\255', '\\254') \
         else redis.call('HSET', KEYS[1], '\\255', '\\254') end",
    ),
];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Training,
    Graph,
    Ended,
}

/// Submits a job that waits, or that is over.
async fn begin(client: &ClientServiceClient, kind: Kind, name: &str) -> JobId {
    if kind == Kind::Training {
        let id: JobId = name.parse().unwrap();
        let spec = JobSpec { id: id.clone(), ..training_job(training("bsp".parse().unwrap(), 64, 32)) };
        client.submit(within(TEST_TIMEOUT), spec, 1, IfTaken::Refuse).await.unwrap().unwrap();
        return id;
    }
    let id = submit(client, graph(name, vec![call(b"1")])).await;
    if kind == Kind::Ended {
        client.cancel(within(TEST_TIMEOUT), id.clone().into(), String::new(), 0).await.unwrap().unwrap();
    }
    id
}

/// Repeats a call while the engine reads everything again.
async fn asked<T>(mut call: impl AsyncFnMut() -> Result<T, EngineFault>) -> Result<T, EngineFault> {
    until(async || match call().await {
        Err(EngineFault::NotActive { .. }) => {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            None
        }
        answer => Some(answer),
    })
    .await
}

async fn states(client: &ClientServiceClient) -> BTreeMap<String, String> {
    let jobs = asked(async || client.jobs(within(TEST_TIMEOUT), None).await.unwrap()).await.unwrap();
    jobs.jobs.into_iter().map(|mut job| (job.remove("id").unwrap(), job.remove("state").unwrap())).collect()
}

async fn end(client: &ClientServiceClient, job: &JobId) {
    let over = asked(async || client.delete(within(TEST_TIMEOUT), job.clone()).await.unwrap()).await;
    if matches!(over, Err(EngineFault::NotOver { .. })) {
        let cancel =
            async || client.cancel(within(TEST_TIMEOUT), job.clone().into(), String::new(), 0).await.unwrap();
        asked(cancel).await.unwrap();
        // A damaged one is gone with that.
        let deleted = asked(async || client.delete(within(TEST_TIMEOUT), job.clone()).await.unwrap()).await;
        assert!(matches!(deleted, Ok(()) | Err(EngineFault::UnknownJob { .. })), "{job}: {deleted:?}");
    }
}

/// Jobs of one kind, one for each of their keys.
async fn spoiled(rig: &Rig, kind: Kind, (damage, script): (&str, &str)) -> Vec<JobId> {
    let (client, store) = (rig.client().await, RedisStore::connect(&rig.redis.url()).await.unwrap());
    let mut jobs = Vec::new();
    for n in 0..15 {
        jobs.push(begin(&client, kind, &format!("{damage}-{n}")).await);
    }
    for (n, job) in jobs.iter().enumerate() {
        let names = JobKeys::new(job);
        let words = ["EVAL", script, "1", names.all()[n]];
        let _: () = store.query("spoil", &words).await.unwrap();
    }
    jobs
}

/// Whether a key of a job holds what is none of ours.
async fn is_foreign(store: &RedisStore, job: &JobId, key: usize) -> bool {
    let found: String = store.query("look", &["TYPE", JobKeys::new(job).all()[key]]).await.unwrap();
    ["string", "list"].contains(&found.as_str())
}

async fn check_that_others_go_on(kind: Kind) {
    let mut rig = Rig::start(1).await;
    let shard = rig.start_shard().await;
    rig.announce(shard.clone()).await.unwrap();
    let store = RedisStore::connect(&rig.redis.url()).await.unwrap();
    let sound = submit(&rig.client().await, graph("sound", vec![call(b"1")])).await;
    let mut jobs = Vec::new();
    for damage in DAMAGES {
        jobs.extend(spoiled(&rig, kind, damage).await);
    }
    for crashed in [false, true] {
        if crashed {
            rig.crash().await;
            rig.announce(shard.clone()).await.unwrap();
        }
        let client = rig.client().await;
        let states = states(&client).await;
        assert_eq!(states.len(), jobs.len() + 1);
        assert_eq!(states["sound"], "running");
        for (n, job) in jobs.iter().enumerate() {
            let is_known = n % 15 == 1;
            // The engine that knows the job may have put its own there again meanwhile.
            if is_foreign(&store, job, n % 15).await && (crashed || is_known) {
                // What ended a moment ago is written again, and after that left as it is.
                let want = match kind {
                    _ if crashed => ["damaged"; 2],
                    Kind::Ended => ["canceled", "damaged"],
                    Kind::Training | Kind::Graph => ["queued", "running"],
                };
                assert!(want.contains(&&*states[job.as_str()]), "{job}: {states:?}");
            }
            // The record of the job, or why that job alone has none.
            let read =
                asked(async || client.job(within(TEST_TIMEOUT), job.clone().into()).await.unwrap()).await;
            assert!(matches!(read, Ok(_) | Err(EngineFault::Unreadable { .. })), "{job}: {read:?}");
            let events = async || {
                client.stream(within(TEST_TIMEOUT), job.clone(), JobStream::Events, None).await.unwrap()
            };
            let read = asked(events).await;
            assert!(matches!(read, Ok(_) | Err(EngineFault::Unreadable { .. })), "{job}: {read:?}");
        }
    }
    let client = rig.client().await;
    for job in &jobs {
        end(&client, job).await;
    }
    assert_eq!(states(&client).await.into_keys().collect::<Vec<_>>(), ["sound"]);
    let mut worker = ScriptedWorker::register(&rig, 1).await;
    assert_eq!(worker.orders().await.len(), 1, "the other job goes on");
    worker.finish(&sound, &[(0, b"1")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_holds_the_keys_of_trainings_that_wait_all_other_jobs_go_on() {
    check_that_others_go_on(Kind::Training).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_holds_the_keys_of_graphs_that_wait_all_other_jobs_go_on() {
    check_that_others_go_on(Kind::Graph).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_holds_the_keys_of_jobs_that_are_over_all_others_go_on() {
    check_that_others_go_on(Kind::Ended).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_key_of_a_job_that_runs_is_taken_the_engine_writes_all_of_that_job_again() {
    let rig = Rig::start(1).await;
    let client = rig.client().await;
    let store = RedisStore::connect(&rig.redis.url()).await.unwrap();
    for (n, taken) in ["job", "events", "states", "values", "leases"].into_iter().enumerate() {
        let mut worker = ScriptedWorker::register(&rig, 1).await;
        let job = submit(&client, graph(&format!("runs-{n}"), vec![call(b"1"), call(b"2")])).await;
        worker.tasks().await;
        let key = format!("syncline:{{{job}}}:{taken}");
        let _: () = store.query("spoil", &["EVAL", DAMAGES[0].1, "1", &key]).await.unwrap();
        let cancel =
            async || client.cancel(within(TEST_TIMEOUT), job.clone().into(), String::new(), 0).await.unwrap();
        let sound = submit(&client, graph(&format!("sound-{n}"), vec![call(b"1")])).await;
        // Its commit writes all of these keys.
        assert_eq!(asked(cancel).await, Ok(()), "{taken}");
        let states = states(&client).await;
        assert_eq!((&*states[sound.as_str()], &*states[job.as_str()]), ("running", "canceled"), "{taken}");
        let found: String = store.query("look", &["TYPE", &key]).await.unwrap();
        assert_ne!(found, "string", "{taken}");
        end(&client, &sound).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_job_that_is_not_whole_it_is_said_that_the_server_has_evicted_keys() {
    let mut rig = Rig::start(1).await;
    rig.announce(rig.start_shard().await).await.unwrap();
    let store = RedisStore::connect(&rig.redis.url()).await.unwrap();
    let job = begin(&rig.client().await, Kind::Graph, "cut").await;
    let state = JobKeys::new(&job).state;
    // A key of somebody else goes because of its expiry, and nothing of ours; what is missing of the job we
    // remove.
    let fill = "redis.call('SET', 'another', string.rep('x', 100000), 'EX', 1000)";
    let _: () = store.query("fill", &["EVAL", fill, "0"]).await.unwrap();
    let set = async |name, value| store.query::<()>("set", &["CONFIG", "SET", name, value]).await;
    set("maxmemory-policy", "volatile-ttl").await.unwrap();
    set("maxmemory", "1").await.unwrap();
    // Any command that writes makes room first, and is refused.
    assert!(store.query::<()>("write", &["SET", "more", "1"]).await.is_err());
    set("maxmemory", "0").await.unwrap();
    let _: () = store.query("cut", &["DEL", &state]).await.unwrap();
    rig.crash().await;
    let client = rig.client().await;
    let told = async || client.job(within(TEST_TIMEOUT), job.clone().into()).await.unwrap();
    let told = asked(told).await.unwrap().job;
    assert_eq!((told["state"].as_str(), told["code"].as_str()), ("damaged", "E030"), "{told:?}");
    assert!(told["reason"].contains("; keys that Redis has evicted since its start: 1,"), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_at_which_engine_after_engine_ends_is_set_aside_and_the_others_go_on() {
    let mut rig = Rig::start(1).await;
    let shard = rig.start_shard().await;
    rig.announce(shard.clone()).await.unwrap();
    let store = RedisStore::connect(&rig.redis.url()).await.unwrap();
    let job = begin(&rig.client().await, Kind::Training, "poison").await;
    let sound = submit(&rig.client().await, graph("sound", vec![call(b"1")])).await;
    // Nothing is wrong with these records until a worker joins: the number that is counted up then has no
    // next one.
    let state = JobKeys::new(&job).state;
    let job_state: String = store.query("read", &["HGET", &state, "job_state"]).await.unwrap();
    let spoiled = job_state.replace("\"clock_revision\":0", &format!("\"clock_revision\":{}", u64::MAX));
    assert_ne!(spoiled, job_state);
    let _: u64 = store.query("spoil", &["HSET", &state, "job_state", &spoiled]).await.unwrap();
    for times in 1..=3 {
        rig.crash().await;
        rig.announce(shard.clone()).await.unwrap();
        assert_eq!(states(&rig.client().await).await["poison"], "queued");
        let worker = rig.worker().await;
        tokio::spawn(async move { worker.register(within(TEST_TIMEOUT), super::rig::hello()).await });
        let panic = rig.panicked().await;
        assert!(panic.contains("overflow"), "{panic}");
        let counted: u64 = store.query("read", &["HGET", &state, "crashes"]).await.unwrap();
        assert_eq!(counted, times);
    }
    rig.crash().await;
    rig.announce(shard).await.unwrap();
    let client = rig.client().await;
    let mut worker = ScriptedWorker::register(&rig, 1).await;
    assert_eq!(worker.orders().await.len(), 1, "the other job goes on");
    worker.finish(&sound, &[(0, b"1")]).await;
    rig.worker().await.register(within(TEST_TIMEOUT), super::rig::hello()).await.unwrap().unwrap();
    let parked = client.job(within(TEST_TIMEOUT), job.clone().into()).await.unwrap().unwrap().job;
    assert_eq!((parked["state"].as_str(), parked["code"].as_str()), ("damaged", "E147"));
    assert!(parked["reason"].contains("3 times") && parked["reason"].contains("overflow"), "{parked:?}");
    client.delete(within(TEST_TIMEOUT), job.clone()).await.unwrap().unwrap();
    assert!(!states(&client).await.contains_key("poison"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_training_is_left_aside_by_an_engine_with_another_number_of_shards_and_goes_on_with_its_own() {
    let mut rig = Rig::start(1).await;
    let shard = rig.start_shard().await;
    rig.announce(shard.clone()).await.unwrap();
    let job = begin(&rig.client().await, Kind::Training, "digits").await;
    // As an earlier release left those of a training whose last weights were still to be written.
    let store = RedisStore::connect(&rig.redis.url()).await.unwrap();
    let state = JobKeys::new(&job).state;
    let _: u64 = store.query("let expire", &["EXPIRE", &state, "600000"]).await.unwrap();
    rig.crash_and_want(2).await;
    let aside = rig.client().await.job(within(TEST_TIMEOUT), job.clone().into()).await.unwrap().unwrap().job;
    assert_eq!((aside["state"].as_str(), aside["code"].as_str()), ("damaged", "E586"));
    assert!(aside["reason"].contains("lies on 1 parameter shards, and this engine has 2"), "{aside:?}");
    assert_eq!(store.query::<i64>("look", &["TTL", &state]).await.unwrap(), -1, "nothing of it expires");
    let meant = JobRef { id: job, nonce: Some(1) };
    let canceled = rig.client().await.cancel(within(TEST_TIMEOUT), meant, String::new(), 0).await.unwrap();
    assert!(
        matches!(&canceled, Err(EngineFault::Unreadable { .. })),
        "whose it is nobody knows: {canceled:?}"
    );
    rig.crash_and_want(1).await;
    rig.announce(shard).await.unwrap();
    assert_eq!(states(&rig.client().await).await["digits"], "queued");
}

/// A graph of one task, which trains.
fn graph_that_trains(name: &str) -> GraphSpec {
    let training = PreparedTraining::new(&training_job(training("bsp".parse().unwrap(), 64, 32))).unwrap();
    let class = TaskClass { work: Work::Train(training), rules: Rules::default() };
    let task = NewTask { class: ClassIndex(0), args: Vec::new(), after: Vec::new(), name: None };
    GraphSpec { classes: vec![class], ..graph(name, vec![task]) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_graph_takes_the_name_of_one_whose_training_was_left_aside_and_trains() {
    let mut rig = Rig::start(1).await;
    rig.announce(rig.start_shard().await).await.unwrap();
    let store = RedisStore::connect(&rig.redis.url()).await.unwrap();
    let job = submit(&rig.client().await, graph_that_trains("sweep")).await;
    // It had made many commits, of which those of the next engine know nothing.
    let state = JobKeys::new(&job.of_training(0, 1)).state;
    let _: u64 = store.query("count up", &["HSET", &state, "seq", "5000"]).await.unwrap();
    rig.crash_and_want(2).await;
    for index in [0, 1] {
        let identity = u64::from(index) + 1;
        rig.announce(ShardHello { index: ShardIndex(index), identity, ..rig.start_shard().await })
            .await
            .unwrap();
    }
    let client = rig.client().await;
    let is_damaged = |states: BTreeMap<String, String>| states["sweep~0"] == "damaged";
    assert!(is_damaged(states(&client).await));
    client.cancel(within(TEST_TIMEOUT), job.clone().into(), String::new(), 0).await.unwrap().unwrap();
    assert!(is_damaged(states(&client).await), "it can still be looked at");
    let epoch = async || store.query::<u64>("read", &["HGET", &state, "epoch"]).await.unwrap();
    let leads = epoch().await;
    let again =
        client.submit_graph(within(TEST_TIMEOUT), graph_that_trains("sweep"), NONCE + 1, IfTaken::Replace);
    again.await.unwrap().unwrap();
    let expected = [("sweep", "running"), ("sweep~0", "queued")];
    let expected: BTreeMap<_, _> = expected.map(|(id, state)| (id.to_owned(), state.to_owned())).into();
    assert_eq!(states(&client).await, expected);
    assert_eq!(epoch().await, leads, "the same engine");
    rig.crash().await;
    assert_eq!(states(&rig.client().await).await, expected, "its records are whole");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_training_that_was_left_aside_is_deleted_with_its_graph() {
    let mut rig = Rig::start(1).await;
    rig.announce(rig.start_shard().await).await.unwrap();
    let store = RedisStore::connect(&rig.redis.url()).await.unwrap();
    let job = submit(&rig.client().await, graph_that_trains("sweep")).await;
    rig.crash_and_want(2).await;
    let client = rig.client().await;
    assert_eq!(states(&client).await["sweep~0"], "damaged");
    end(&client, &job).await;
    assert_eq!(states(&client).await, BTreeMap::new());
    let keys = JobKeys::new(&job.of_training(0, 1));
    let words: Vec<&str> = ["EXISTS"].into_iter().chain(keys.all()).collect();
    assert_eq!(store.query::<u64>("count", &words).await.unwrap(), 1, "a fence");
}

#[tokio::test(flavor = "multi_thread")]
async fn crashes_count_in_a_row_only_and_at_a_job_of_the_engine_that_ends() {
    let rig = Rig::start(1).await;
    let job = submit(&rig.client().await, graph("sum", vec![call(b"1")])).await;
    let store = RedisStore::connect(&rig.redis.url()).await.unwrap();
    let epoch: u64 = store.query("read", &["HGET", &JobKeys::new(&job).state, "epoch"]).await.unwrap();
    let crash = async |job: &JobId, epoch, now_ms| {
        store.note_crash(job, EngineEpoch(epoch), now_ms, "a bug").await.unwrap()
    };
    assert_eq!(crash(&job, epoch, 1_000_000).await, 1);
    assert_eq!(crash(&job, epoch, 1_600_000).await, 2, "ten minutes later");
    assert_eq!(crash(&job, epoch, 2_200_001).await, 1, "more than that later");
    assert_eq!(crash(&job, epoch - 1, 2_200_002).await, 0, "another engine has the job");
    assert_eq!(crash(&"unknown".parse().unwrap(), epoch, 1_000).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_another_job_are_not_taken_for_those_of_this_one() {
    let mut rig = Rig::start(1).await;
    let [first, second] = ["first", "second"].map(|name| graph(name, vec![call(b"1")]));
    let (first, second) =
        (submit(&rig.client().await, first).await, submit(&rig.client().await, second).await);
    let store = RedisStore::connect(&rig.redis.url()).await.unwrap();
    let [from, to] = [&first, &second].map(|job| JobKeys::new(job).state);
    let _: i64 = store.query("spoil", &["COPY", &from, &to, "REPLACE"]).await.unwrap();
    rig.crash().await;
    let states = states(&rig.client().await).await;
    assert_eq!((states["first"].as_str(), states["second"].as_str()), ("running", "damaged"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graph_that_is_refused_has_taken_nothing_from_the_damaged_job_that_it_was_to_replace() {
    let mut rig = Rig::start(1).await;
    let store = RedisStore::connect(&rig.redis.url()).await.unwrap();
    let job = submit(&rig.client().await, graph("sums", vec![call(b"1")])).await;
    let keys = JobKeys::new(&job);
    let _: u64 = store.query("cut", &["DEL", &keys.state]).await.unwrap();
    rig.crash().await;
    let stored = async || {
        let words: Vec<&str> = ["EXISTS"].into_iter().chain(keys.all()).collect();
        store.query::<u64>("count", &words).await.unwrap()
    };
    let before = stored().await;
    assert!(before > 0);
    let client = rig.client().await;
    let replace = async |tasks| {
        client
            .submit_graph(within(TEST_TIMEOUT), graph("sums", tasks), NONCE, IfTaken::Replace)
            .await
            .unwrap()
    };
    let refused = replace(Vec::new()).await;
    assert!(matches!(refused, Err(EngineFault::InvalidJob { .. })), "{refused:?}");
    assert_eq!(states(&client).await["sums"], "damaged");
    assert_eq!(stored().await, before, "its records");
    replace(vec![call(b"2")]).await.unwrap();
    assert_eq!(states(&client).await["sums"], "running");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_finds_no_list_of_jobs_finds_the_jobs() {
    let mut rig = Rig::start(1).await;
    let store = RedisStore::connect(&rig.redis.url()).await.unwrap();
    let jobs = ["b", "a"].map(|name| graph(name, vec![call(b"1")]));
    for job in jobs {
        submit(&rig.client().await, job).await;
    }
    for script in ["redis.call('DEL', KEYS[1])", DAMAGES[0].1, "redis.call('ZADD', KEYS[1], 0, '\\255')"] {
        let _: () = store.query("spoil", &["EVAL", script, "1", "syncline:jobs"]).await.unwrap();
        rig.crash().await;
        let states = states(&rig.client().await).await;
        assert_eq!(states.into_keys().collect::<Vec<_>>(), ["a", "b"], "{script}");
    }
    let mut worker = ScriptedWorker::register(&rig, 2).await;
    assert!(!worker.orders().await.is_empty(), "they go on");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_shown_at_once_where_something_has_taken_them_off_the_list() {
    let rig = Rig::start(1).await;
    let client = rig.client().await;
    let store = RedisStore::connect(&rig.redis.url()).await.unwrap();
    for name in ["over", "b", "a"] {
        submit(&client, graph(name, vec![call(b"1")])).await;
    }
    let over: JobId = "over".parse().unwrap();
    client.cancel(within(TEST_TIMEOUT), over.into(), String::new(), 0).await.unwrap().unwrap();
    for script in
        ["redis.call('DEL', KEYS[1])", "redis.call('ZADD', KEYS[1], 0, 'b', 1, 'gone')", DAMAGES[0].1]
    {
        let _: () = store.query("spoil", &["EVAL", script, "1", "syncline:jobs"]).await.unwrap();
        let states = states(&client).await;
        let want = [("a", "running"), ("b", "running"), ("over", "canceled")];
        assert_eq!(states, want.map(|(id, state)| (id.to_owned(), state.to_owned())).into(), "{script}");
    }
}
