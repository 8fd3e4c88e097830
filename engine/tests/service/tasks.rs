//! General tasks, from the submission to their values, over crashes of the engine.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use futures::SinkExt;
use syncline_engine::store::{
    RedisStore,
    keys::{JobKeys, STREAM_ENTRIES},
};
use syncline_rpc::{
    Activity, ClientServiceClient, ClientServiceRequest, ClientServiceResponse, EndedTasks, EngineFault,
    WorkerKey, connect, hello::Role, within,
};
use syncline_scheduler::{
    core::IfTaken,
    graph::TaskId,
    ids::{ContentDigest, JobId, JobRef, SubmissionId, Superstep},
    tasks::{
        Arg, BlobValue, GraphDigest, GraphReceipt, GraphSpec, NewTask, OneArg, Order, OrderArg, Preview,
        Progress, RunningCall, TaskIndex, TaskQuery, TaskState, Value,
    },
};
use tarpc::{ClientMessage, Request};
use tokio::time::timeout;

use super::{
    rig::{Rig, TEST_TIMEOUT, until},
    scripted_worker::{NONCE, ScriptedWorker, attempts, call, graph, inline, submit, take, tasks},
};

fn all() -> TaskQuery {
    TaskQuery { first: TaskIndex(0), limit: u32::MAX, state: None, name: None }
}

/// What one task gave.
async fn value_of(
    client: &ClientServiceClient,
    job: impl Into<JobRef>,
    task: u32,
) -> Result<Option<Value>, EngineFault> {
    let asked = vec![TaskIndex(task)];
    let given = client.values(within(TEST_TIMEOUT), job.into(), asked).await.unwrap();
    given.map(|values| values[0].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_many_tasks_come_in_one_answer_as_far_as_it_holds_them() {
    let rig = Rig::start(1).await;
    let (client, mut worker) = (rig.client().await, ScriptedWorker::register(&rig, 1_100).await);
    let job = submit(&client, graph("many", vec![call(b"1"); 1_100])).await;
    let values = async |tasks: &[u32]| {
        let tasks = tasks.iter().copied().map(TaskIndex).collect();
        client.values(within(TEST_TIMEOUT), job.clone().into(), tasks).await.unwrap()
    };
    let orders = worker.tasks().await;
    assert_eq!(orders.len(), 1_100);
    let large = vec![7; 16 << 10];
    worker.finish(&job, &[(0, b"a"), (2, b"c")]).await;
    assert_eq!(
        values(&[2, 1, 0, 2]).await,
        Ok([Some(b"c"), None, Some(b"a"), Some(b"c")].map(|v| v.map(|v: &[u8; 1]| inline(v))).into())
    );
    assert_eq!(values(&[]).await, Ok(vec![]));
    assert_eq!(values(&[0, 1_100]).await.unwrap_err().code().to_string(), "E138");
    let all: Vec<u32> = (0..1_100).collect();
    assert_eq!(values(&all).await.map(|given| given.len()), Ok(1_000), "so many at a time");
    let ended: Vec<(u32, &[u8])> = (3..203).map(|task| (task, large.as_slice())).collect();
    for part in ended.chunks(50) {
        worker.finish(&job, part).await;
    }
    assert_eq!(values(&all[3..]).await.map(|given| given.len()), Ok(64), "a megabyte of 16 KiB each");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graph_runs_to_its_end_and_gives_its_values_of_any_bytes() {
    let rig = Rig::start(1).await;
    let (client, mut worker) = (rig.client().await, ScriptedWorker::register(&rig, 2).await);
    let job = submit(&client, graph("sum", vec![call(b"1"), call(b"\x00\xff"), take(&[0, 1])])).await;
    submit(&client, graph("sum", vec![call(b"1"), call(b"\x00\xff"), take(&[0, 1])])).await;

    let first = worker.tasks().await;
    assert_eq!(attempts(&first), [(0, 1), (1, 1)]);
    assert_eq!(first[1].args, [OrderArg::One(OneArg::Value(inline(b"\x00\xff")))]);
    let value = async |task| value_of(&client, job.clone(), task).await;
    assert_eq!(value(0).await, Ok(None));
    worker.finish(&job, &[(0, b"\r\n"), (1, b"\xfe=")]).await;
    let last = worker.tasks().await;
    assert_eq!(
        last[0].args,
        [OrderArg::One(OneArg::Value(inline(b"\r\n"))), OrderArg::One(OneArg::Value(inline(b"\xfe=")))]
    );
    worker.finish(&job, &[(2, b"\x03\x00")]).await;

    assert_eq!(client.wait_job(within(TEST_TIMEOUT), job.clone().into(), 20_000).await.unwrap(), Ok(true));
    assert_eq!(value(2).await, Ok(Some(inline(b"\x03\x00"))));
    let views = client.tasks(within(TEST_TIMEOUT), job.clone().into(), all()).await.unwrap().unwrap();
    let states: Vec<TaskState> = views.iter().map(|view| view.state).collect();
    assert_eq!(states, [TaskState::Done; 3]);
    let fields = client.jobs(within(TEST_TIMEOUT), None).await.unwrap().unwrap().jobs.remove(0);
    assert_eq!((fields["kind"].as_str(), fields["state"].as_str()), ("tasks", "done"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_calls_all_have_values_that_no_shard_takes_says_that_it_waits_for_one() {
    let rig = Rig::start(1).await;
    let (client, mut worker) = (rig.client().await, ScriptedWorker::register(&rig, 2).await);
    let job = submit(&client, graph("large", vec![call(b"1"), call(b"2")])).await;
    assert_eq!(worker.tasks().await.len(), 2);
    let call = |(task, text): (u32, &str)| RunningCall {
        submission: SubmissionId { job: job.clone(), nonce: NONCE },
        task: TaskIndex(task),
        attempt: 1,
        running_ms: 0,
        progress: Some(Progress { text: text.to_owned(), ..Progress::default() }),
    };
    let unstored = Progress::unstored("[E406] no space");
    let waits = "a shard to take the values of 2 tasks: [E406] no space";
    for (second, told) in [("computes", ""), (&*unstored, waits)] {
        let calls = Some([(0, &*unstored), (1, second)].map(call).to_vec());
        let activity = Activity { tasks: 2, calls, ..Activity::default() };
        let poll = worker.calls.poll(
            within(TEST_TIMEOUT),
            worker.who,
            activity,
            worker.cursor,
            EndedTasks::default(),
            0,
        );
        poll.await.unwrap().unwrap();
        let record = client.job(within(TEST_TIMEOUT), job.clone().into()).await.unwrap().unwrap();
        assert_eq!(record.job["waiting_for"], told, "{record:?}");
        let listed = client.jobs(within(TEST_TIMEOUT), None).await.unwrap().unwrap().jobs.remove(0);
        assert_eq!(listed["waiting_for"], told);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn results_are_listed_and_kept_with_their_previews_and_the_list_is_bounded() {
    const RESULTS: u32 = 230;
    let mut rig = Rig::start(1).await;
    let (client, mut worker) = (rig.client().await, ScriptedWorker::register(&rig, 1).await);
    let mut calls: Vec<NewTask> = (0..RESULTS).map(|_| call(b"1")).collect();
    calls.push(NewTask { name: Some("first".parse().unwrap()), ..take(&[0]) });
    let job = submit(&client, graph("results", calls)).await;
    let mut ended = Vec::new();
    while ended.len() <= RESULTS as usize {
        for order in worker.tasks().await {
            // The first one is taken by the last.
            assert_eq!(order.is_shown, order.task.0 > 0, "{order:?}");
            let shown =
                if order.task.0 == 7 { "x".repeat(999) } else { format!("{{\"result\":{}}}", order.task) };
            worker.finish_shown(&job, order.task, b"\n:", shown).await;
            ended.push(order.task);
        }
    }
    assert_eq!(client.wait_job(within(TEST_TIMEOUT), job.clone().into(), 20_000).await.unwrap(), Ok(true));

    let store = RedisStore::connect(&rig.redis.url()).await.unwrap();
    let keys = JobKeys::new(&job);
    let listed = store.stream("look", &keys.results, None).await.unwrap();
    assert_eq!(listed.len(), STREAM_ENTRIES);
    let newest = &listed.last().unwrap().fields;
    let last = ended.last().unwrap();
    let wanted = [last.to_string(), format!("{{\"result\":{last}}}"), "2".to_owned()];
    assert_eq!(["task", "value", "bytes"].map(|name| newest[name].clone()), wanted);
    let dropped = store.hash("look", &keys.job).await.unwrap()["results_dropped"].clone();
    assert_eq!(dropped, (RESULTS as usize - STREAM_ENTRIES).to_string());

    for _ in 0..2 {
        let client = rig.client().await;
        let views = client.tasks(within(TEST_TIMEOUT), job.clone().into(), all()).await.unwrap().unwrap();
        let shown = |task: usize| views[task].value.as_ref().map(Preview::as_str);
        assert_eq!((shown(0), views[0].value_bytes), (None, None), "the last one has taken it");
        assert_eq!((shown(1), views[1].value_bytes), (Some("{\"result\":1}"), Some(2)));
        assert_eq!(shown(7), Some(&*format!("{}…", "x".repeat(253))));
        assert_eq!(shown(RESULTS as usize), Some("{\"result\":230}"), "it has a name");
        rig.crash().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_that_brings_an_end_is_answered_with_what_follows_and_an_end_that_comes_twice_counts_once() {
    let mut rig = Rig::start(1).await;
    let (client, mut worker) = (rig.client().await, ScriptedWorker::register(&rig, 1).await);
    let job = submit(&client, graph("sum", vec![call(b"1"), call(b"2")])).await;
    assert_eq!(attempts(&worker.tasks().await), [(0, 1)]);
    // The first answer is lost.
    for _ in 0..2 {
        let answer = worker.ask_and_finish(&job, (0, b"one")).await;
        assert!(answer.ends_taken);
        assert_eq!(attempts(&tasks(answer.orders.orders)), [(1, 1)]);
    }
    rig.crash().await;
    let client = rig.client().await;
    let value = async |task| value_of(&client, job.clone(), task).await;
    assert_eq!(value(0).await, Ok(Some(inline(b"one"))), "it was durable when it was answered");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_got_a_workers_number_from_another_redis_is_not_taken_for_that_worker_by_the_next_engine() {
    let mut rig = Rig::start(1).await;
    let (client, mut worker) = (rig.client().await, ScriptedWorker::register(&rig, 1).await);
    submit(&client, graph("sum", vec![call(b"1")])).await;
    assert_eq!(attempts(&worker.tasks().await), [(0, 1)]);
    rig.crash().await;
    let poll = async |who| {
        let (activity, ended) = (Activity::default(), EndedTasks::default());
        let calls = rig.worker().await;
        let answer = calls.poll(within(TEST_TIMEOUT), who, activity, worker.cursor, ended, 0);
        answer.await.unwrap().map(drop)
    };
    // Whoever calls first.
    assert_eq!(poll(WorkerKey::draw(worker.who.incarnation)).await, Err(EngineFault::Dropped));
    assert_eq!(poll(worker.who).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_is_answered_while_redis_stands_still_and_says_that_its_ends_are_not_taken() {
    let rig = Rig::start(1).await;
    let (client, mut worker) = (rig.client().await, ScriptedWorker::register(&rig, 1).await);
    let job = submit(&client, graph("sum", vec![call(b"1")])).await;
    assert_eq!(attempts(&worker.tasks().await), [(0, 1)]);
    let signal = |name: &str| {
        let pid = rig.redis.pid().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    };
    signal("STOP");
    for _ in 0..2 {
        assert!(!worker.ask_and_finish(&job, (0, b"one")).await.ends_taken);
    }
    signal("CONT");
    until(async || worker.ask_and_finish(&job, (0, b"one")).await.ends_taken.then_some(())).await;
    assert_eq!(client.wait_job(within(TEST_TIMEOUT), job.into(), 20_000).await.unwrap(), Ok(true));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_of_general_tasks_and_is_not_there_is_named() {
    let rig = Rig::start(1).await;
    let client = rig.client().await;
    let job = submit(&client, graph("sum", vec![call(b"1")])).await;
    let nothing_but = |what: &str, kept: &str| {
        Err(EngineFault::NothingKnown { job: job.clone(), what: what.to_owned(), kept: kept.to_owned() })
    };
    let nothing = |what: &str| nothing_but(what, "");
    let value = value_of(&client, job.clone(), 9).await;
    assert_eq!(value, nothing("task 9").map(|()| None));
    let barrier = client.explain_barrier(within(TEST_TIMEOUT), job.clone(), Superstep(3)).await.unwrap();
    assert_eq!(
        barrier.map(drop),
        nothing_but("barrier 3", "; it is one of general tasks, which `syncline tasks` lists")
    );
    let task: TaskId = "clock/3".parse().unwrap();
    let explained = client.explain_task(within(TEST_TIMEOUT), job.clone(), task).await.unwrap();
    assert_eq!(
        explained.map(drop),
        nothing_but("task clock/3", "; it is one of general tasks, which `syncline tasks` lists")
    );

    let other: JobId = "other".parse().unwrap();
    let unknown = EngineFault::UnknownJob { job: other.clone() };
    let asked = [
        value_of(&client, other.clone(), 0).await.map(drop),
        client.tasks(within(TEST_TIMEOUT), other.clone().into(), all()).await.unwrap().map(drop),
        client.wait_job(within(TEST_TIMEOUT), other.clone().into(), 20_000).await.unwrap().map(drop),
        client.start_graph(within(TEST_TIMEOUT), other.clone(), NONCE, 1).await.unwrap(),
    ];
    assert_eq!(asked, [(); 4].map(|()| Err(unknown.clone())));

    let running = client.delete(within(TEST_TIMEOUT), job.clone()).await.unwrap();
    assert!(matches!(running, Err(EngineFault::NotOver { .. })), "{running:?}");
    client.cancel(within(TEST_TIMEOUT), job.clone().into(), String::new(), 0).await.unwrap().unwrap();
    client.delete(within(TEST_TIMEOUT), job.clone()).await.unwrap().unwrap();
    assert!(client.jobs(within(TEST_TIMEOUT), None).await.unwrap().unwrap().jobs.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graph_comes_in_parts_and_begins_when_all_are_there() {
    let mut rig = Rig::start(1).await;
    let (client, mut worker) = (rig.client().await, ScriptedWorker::register(&rig, 4).await);
    let first = graph("parts", vec![call(b"1")]);
    let job = submit(&client, GraphSpec { complete: false, ..first }).await;
    let extend = async |first, more| {
        client.extend_graph(within(TEST_TIMEOUT), job.clone(), NONCE, TaskIndex(first), more).await.unwrap()
    };
    for _ in 0..2 {
        assert_eq!(extend(1, vec![take(&[0])]).await, Ok(()));
    }
    let gap = extend(5, vec![call(b"2")]).await;
    assert!(
        matches!(&gap, Err(EngineFault::InvalidJob { code, reason }) if *code == "E050" && reason.starts_with("[E050]")),
        "{gap:?}"
    );
    let mut large = call(b"3");
    large.args.push(Arg::Blob(BlobValue { digest: ContentDigest::from_bytes([0xab; 32]), bytes: 1 }));
    let missing = EngineFault::MissingShards { present: 0, expected: 1 };
    assert_eq!(extend(2, vec![large.clone()]).await, Err(missing), "who keeps the value is not there");
    rig.announce(rig.start_shard().await).await.unwrap();
    assert_eq!(extend(2, vec![large.clone()]).await, Ok(()));

    assert_eq!(client.wait_job(within(TEST_TIMEOUT), job.clone().into(), 0).await.unwrap(), Ok(false));
    let start = async |count| client.start_graph(within(TEST_TIMEOUT), job.clone(), NONCE, count).await;
    assert!(start(4).await.unwrap().is_err());
    start(3).await.unwrap().unwrap();
    start(3).await.unwrap().unwrap();
    assert_eq!(
        attempts(&worker.tasks().await),
        [(0, 1), (1, 1), (2, 1)],
        "the second waits for the first there"
    );
    let keeps = client.gc(within(TEST_TIMEOUT), 60).await.unwrap().unwrap();
    assert_eq!(keeps.blobs, 1, "the large value is not collected while the job names it");

    rig.crash().await;
    let client = rig.client().await;
    let again = client.extend_graph(within(TEST_TIMEOUT), job, NONCE, TaskIndex(2), vec![large]);
    assert_eq!(again.await.unwrap(), Ok(()), "no shard is there, and the part is");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_submits_a_graph_again_gets_the_job_that_is_there_and_what_it_lacks() {
    let mut rig = Rig::start(1).await;
    let digest = |byte| GraphDigest::new([byte; 32]);
    let first = GraphSpec { digest: digest(1), complete: false, ..graph("again", vec![call(b"1")]) };
    let job = first.id.clone();
    let submit = async |rig: &Rig, spec: &GraphSpec, nonce, if_taken| {
        let client = rig.client().await;
        client.submit_graph(within(TEST_TIMEOUT), spec.clone(), nonce, if_taken).await.unwrap()
    };
    let there = |nonce, tasks, is_closed| Ok(GraphReceipt { nonce, tasks, is_closed });
    // The second client comes while the first one sends, and the third after the engine was killed.
    assert_eq!(submit(&rig, &first, 1, IfTaken::Refuse).await, there(1, 1, false));
    assert_eq!(submit(&rig, &first, 2, IfTaken::Refuse).await, there(1, 1, false));
    let client = rig.client().await;
    let extend = client.extend_graph(within(TEST_TIMEOUT), job.clone(), 1, TaskIndex(1), vec![take(&[0])]);
    extend.await.unwrap().unwrap();
    rig.crash().await;
    assert_eq!(submit(&rig, &first, 3, IfTaken::Replace).await, there(1, 2, false));
    let client = rig.client().await;
    client.start_graph(within(TEST_TIMEOUT), job.clone(), 1, 2).await.unwrap().unwrap();
    assert_eq!(submit(&rig, &first, 4, IfTaken::Refuse).await, there(1, 2, true));
    let other = GraphSpec { digest: digest(2), ..first.clone() };
    let differs = ", and differs behind its first tasks".to_owned();
    let taken = Err(EngineFault::DuplicateJob { job: job.clone(), differs });
    assert_eq!(submit(&rig, &other, 1, IfTaken::Refuse).await, taken, "another graph, whatever its nonce");

    // Over, it is the same job until somebody deletes it or wants it done once more.
    client.cancel(within(TEST_TIMEOUT), job.clone().into(), String::new(), 0).await.unwrap().unwrap();
    assert_eq!(submit(&rig, &first, 5, IfTaken::Refuse).await, there(1, 2, true));
    assert_eq!(submit(&rig, &first, 6, IfTaken::Replace).await, there(6, 1, false));
    client.cancel(within(TEST_TIMEOUT), job.clone().into(), String::new(), 0).await.unwrap().unwrap();
    client.delete(within(TEST_TIMEOUT), job.clone()).await.unwrap().unwrap();
    assert_eq!(
        submit(&rig, &first, 7, IfTaken::Refuse).await,
        there(7, 1, false),
        "a new job with a nonce of its own"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_means_one_submission_is_refused_once_another_job_has_its_name() {
    let mut rig = Rig::start(1).await;
    let (client, mut worker) = (rig.client().await, ScriptedWorker::register(&rig, 1).await);
    let spec = graph("nightly", vec![call(b"1")]);
    let job = submit(&client, spec.clone()).await;
    worker.tasks().await;
    worker.finish(&job, &[(0, b"old")]).await;
    assert_eq!(client.wait_job(within(TEST_TIMEOUT), job.clone().into(), 20_000).await.unwrap(), Ok(true));
    client.submit_graph(within(TEST_TIMEOUT), spec, NONCE + 1, IfTaken::Replace).await.unwrap().unwrap();

    let replaced = || Err(EngineFault::Replaced { job: job.clone() });
    let meant = |nonce| JobRef { id: job.clone(), nonce };
    for _ in 0..2 {
        let client = rig.client().await;
        for (nonce, answer) in [(Some(NONCE), replaced()), (Some(NONCE + 1), Ok(())), (None, Ok(()))] {
            let (meant, first) = (|| meant(nonce), TaskIndex(0));
            let asked = [
                client.job(within(TEST_TIMEOUT), meant()).await.unwrap().map(drop),
                client.wait_job(within(TEST_TIMEOUT), meant(), 0).await.unwrap().map(drop),
                value_of(&client, meant(), first.0).await.map(drop),
                client.ended_tasks(within(TEST_TIMEOUT), meant(), vec![first]).await.unwrap().map(drop),
                client.tasks(within(TEST_TIMEOUT), meant(), all()).await.unwrap().map(drop),
            ];
            assert_eq!(asked, [(); 5].map(|()| answer.clone()), "{nonce:?}");
        }
        rig.crash().await;
    }
    let client = rig.client().await;
    let cancel =
        async |nonce| client.cancel(within(TEST_TIMEOUT), meant(nonce), String::new(), 0).await.unwrap();
    assert_eq!(cancel(Some(NONCE)).await, replaced());
    assert_eq!(cancel(Some(NONCE + 1)).await, Ok(()));
}

/// Its large arguments are gone with the calls that took them.
#[tokio::test(flavor = "multi_thread")]
async fn a_graph_that_is_there_is_answered_with_that_whether_or_not_a_shard_still_has_its_large_values() {
    let mut rig = Rig::start(1).await;
    rig.announce(rig.start_shard().await).await.unwrap();
    let mut large = call(b"1");
    large.args.push(Arg::Blob(BlobValue { digest: ContentDigest::from_bytes([0xab; 32]), bytes: 1 }));
    let spec = graph("large", vec![large]);
    let submit = async |rig: &Rig, nonce, if_taken| {
        let client = rig.client().await;
        client.submit_graph(within(TEST_TIMEOUT), spec.clone(), nonce, if_taken).await.unwrap()
    };
    let there = Ok(GraphReceipt { nonce: 1, tasks: 1, is_closed: true });
    assert_eq!(submit(&rig, 1, IfTaken::Refuse).await, there);
    rig.crash().await;
    assert_eq!(submit(&rig, 1, IfTaken::Refuse).await, there, "no shard is there");
    let client = rig.client().await;
    client.cancel(within(TEST_TIMEOUT), spec.id.clone().into(), String::new(), 0).await.unwrap().unwrap();
    assert_eq!(submit(&rig, 1, IfTaken::Replace).await, there, "it is the same submission");
    let missing = EngineFault::MissingShards { present: 0, expected: 1 };
    assert_eq!(submit(&rig, 2, IfTaken::Replace).await, Err(missing), "it is to run once more");
}

/// Whoever sent the beginning says at last, after an outage, that the rest does not come.
#[tokio::test(flavor = "multi_thread")]
async fn a_graph_is_abandoned_only_by_whoever_began_it_and_only_before_it_has_begun() {
    let mut rig = Rig::start(1).await;
    let job: JobId = "parts".parse().unwrap();
    let mut first = graph("parts", vec![call(b"1")]);
    first.complete = false;
    let abandon = async |rig: &Rig, nonce| {
        let client = rig.client().await;
        client.abandon_graph(within(TEST_TIMEOUT), job.clone(), nonce).await.unwrap().unwrap();
    };
    let is_there = async |rig: &Rig| {
        let client = rig.client().await;
        client.job(within(TEST_TIMEOUT), job.clone().into()).await.unwrap().is_ok()
    };
    abandon(&rig, 1).await;
    let client = rig.client().await;
    client.submit_graph(within(TEST_TIMEOUT), first.clone(), 1, IfTaken::Refuse).await.unwrap().unwrap();
    abandon(&rig, 2).await;
    assert!(is_there(&rig).await, "that of another submission");
    abandon(&rig, 1).await;
    assert!(!is_there(&rig).await);
    rig.crash().await;
    assert!(!is_there(&rig).await, "the next engine knows nothing of it");

    let client = rig.client().await;
    client.submit_graph(within(TEST_TIMEOUT), first, 1, IfTaken::Refuse).await.unwrap().unwrap();
    client.start_graph(within(TEST_TIMEOUT), job.clone(), 1, 1).await.unwrap().unwrap();
    abandon(&rig, 1).await;
    assert!(is_there(&rig).await, "another client has sent the rest, and it runs");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_lost_comes_again_and_a_canceled_job_wakes_whoever_waits() {
    let rig = Rig::start(1).await;
    let (client, mut worker) = (rig.client().await, ScriptedWorker::register(&rig, 2).await);
    let job = submit(&client, graph("lost", vec![call(b"1"), call(b"2")])).await;
    let (lost, again) = (worker.ask(20_000).await, worker.ask(20_000).await);
    assert_eq!(lost.orders, again.orders);
    assert_eq!(attempts(&worker.tasks().await), [(0, 1), (1, 1)]);

    let waiting = client.clone();
    let (name, began) = (job.clone(), Instant::now());
    let ended =
        tokio::spawn(
            async move { waiting.wait_job(within(TEST_TIMEOUT), name.into(), 60_000).await.unwrap() },
        );
    let (orders, ()) = tokio::join!(worker.orders(), async {
        tokio::task::yield_now().await;
        client.cancel(within(TEST_TIMEOUT), job.clone().into(), String::new(), 0).await.unwrap().unwrap();
    });
    assert!(matches!(&orders[..], [Order::Recall(recall)] if recall.tasks.len() == 2), "{orders:?}");
    assert_eq!(ended.await.unwrap(), Ok(true));
    assert!(began.elapsed() < Duration::from_secs(15), "by what happened, not by the end of the time");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_engine_knows_who_has_what_and_what_was_given() {
    let mut rig = Rig::start(1).await;
    let (client, mut worker) = (rig.client().await, ScriptedWorker::register(&rig, 4).await);
    let chain = vec![call(b"1"), take(&[0]), take(&[1]), call(b"2"), take(&[2, 3])];
    let job = submit(&client, graph("chain", chain)).await;
    let mut held = Vec::new();
    while held.len() < 4 {
        held.extend(worker.tasks().await);
    }
    worker.finish(&job, &[(0, b"\xff\x00")]).await;

    rig.crash().await;
    let client = rig.client().await;
    worker.calls = rig.worker().await;
    worker.holding = 3;
    let told = worker.ask(20_000).await;
    assert!(told.epoch > worker.cursor.epoch);
    assert_eq!((told.orders.first, attempts(&tasks(told.orders.orders))), (0, vec![(1, 1), (2, 1), (3, 1)]));
    let told = worker.tasks().await;
    assert_eq!(told[0].args, [OrderArg::One(OneArg::Value(inline(b"\xff\x00")))]);
    assert_eq!(told[1].args, [OrderArg::One(OneArg::Held(TaskIndex(1)))]);

    // What was reported before and may not have been acknowledged is reported again.
    worker.finish(&job, &[(0, b"other"), (1, b"b"), (2, b"c"), (3, b"d")]).await;
    let last = worker.tasks().await;
    assert_eq!(
        last[0].args,
        [OrderArg::One(OneArg::Value(inline(b"c"))), OrderArg::One(OneArg::Value(inline(b"d")))]
    );
    worker.finish(&job, &[(4, b"all")]).await;
    assert_eq!(client.wait_job(within(TEST_TIMEOUT), job.clone().into(), 20_000).await.unwrap(), Ok(true));
    let value = value_of(&client, job.clone(), 4).await;
    assert_eq!(value, Ok(Some(inline(b"all"))));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_had_that_left_goes_to_another_at_its_next_attempt() {
    let rig = Rig::start(1).await;
    let (client, mut first) = (rig.client().await, ScriptedWorker::register(&rig, 1).await);
    let job = submit(&client, graph("left", vec![call(b"1")])).await;
    assert_eq!(attempts(&first.tasks().await), [(0, 1)]);
    let mut second = ScriptedWorker::register(&rig, 1).await;
    first.calls.leave(within(TEST_TIMEOUT), first.who, Vec::new()).await.unwrap().unwrap();
    assert_eq!(attempts(&second.tasks().await), [(0, 2)]);
    // The first attempt was not the one that counts.
    second.finish(&job, &[(0, b"late")]).await;
    let value = value_of(&client, job, 0).await;
    assert_eq!(value, Ok(None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_graph_is_over_for_those_who_wait_and_makes_room_for_the_next_one() {
    let mut rig = Rig::start(1).await;
    let client = rig.client().await;
    let job = submit(&client, graph("sum", vec![call(b"1")])).await;
    submit(&client, graph("sound", vec![call(b"1")])).await;
    let store = RedisStore::connect(&rig.redis.url()).await.unwrap();
    let states = JobKeys::new(&job).states;
    let _: u64 = store.query("spoil", &["HSET", &states, "0", "r?"]).await.unwrap();
    rig.crash().await;

    let (client, mut worker) = (rig.client().await, ScriptedWorker::register(&rig, 1).await);
    let waited = client.wait_job(within(TEST_TIMEOUT), job.clone().into(), 20_000).await.unwrap();
    assert_eq!(waited, Ok(true));
    let value = value_of(&client, job.clone(), 0).await;
    assert!(matches!(value, Err(EngineFault::Unreadable { .. })), "{value:?}");
    assert_eq!(worker.orders().await.len(), 1, "the other job goes on");
    let paused = client.pause(within(TEST_TIMEOUT), job.clone(), true).await.unwrap();
    assert!(matches!(paused, Err(EngineFault::Unreadable { .. })), "{paused:?}");
    let (task, reason) = (TaskIndex(0), String::new());
    let canceled =
        client.cancel_task(within(TEST_TIMEOUT), job.clone().into(), task, reason, 0).await.unwrap();
    assert!(matches!(canceled, Err(EngineFault::Unreadable { .. })), "{canceled:?}");

    let next = || graph("sum", vec![call(b"2")]);
    let taken = client.submit_graph(within(TEST_TIMEOUT), next(), 8, IfTaken::Refuse).await.unwrap();
    assert_eq!(
        taken,
        Err(EngineFault::DuplicateJob { job: job.clone(), differs: ", and is damaged".into() })
    );
    client.submit_graph(within(TEST_TIMEOUT), next(), 8, IfTaken::Replace).await.unwrap().unwrap();
    let views = client.tasks(within(TEST_TIMEOUT), job.into(), all()).await.unwrap().unwrap();
    assert_eq!(views.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_never_reads_holds_up_nobody() {
    let rig = Rig::start(1).await;
    let (client, mut worker) = (rig.client().await, ScriptedWorker::register(&rig, 1).await);
    let job = submit(&client, graph("many", (0..5_000u32).map(|n| call(&n.to_le_bytes())).collect())).await;

    let mut slow =
        connect::<ClientServiceRequest, ClientServiceResponse>(&rig.address(), Role::Client, &rig.token)
            .await
            .unwrap();
    for id in 0..64 {
        let message = ClientServiceRequest::Tasks { job: job.clone().into(), query: all() };
        let request = Request { context: within(TEST_TIMEOUT), id, message };
        let sent = timeout(Duration::from_millis(500), slow.send(ClientMessage::Request(request))).await;
        if sent.is_err() {
            break;
        }
    }
    for round in 0..3 {
        let given = worker.tasks().await;
        let ended: Vec<(u32, &[u8])> = given.iter().map(|task| (task.task.0, &b""[..])).collect();
        worker.finish(&job, &ended).await;
        assert!(!given.is_empty(), "round {round}");
    }
    let done = TaskQuery { state: Some(TaskState::Done), limit: 3, ..all() };
    let views = until(async || {
        client.tasks(within(TEST_TIMEOUT), job.clone().into(), done.clone()).await.unwrap().ok()
    });
    assert_eq!(views.await.len(), 3);
}
