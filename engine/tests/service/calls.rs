//! What any worker, client and shard can rely on.

use std::{process::Command, time::Duration};

use syncline_engine::store::{RedisStore, keys::JobKeys};
use syncline_rpc::{
    Activity, DiskState, EndedTasks, EngineFault, JobStream, OrderCursor, ReplicaRole, ShardHello,
    StoppingShard, within,
};
use syncline_scheduler::{
    core::IfTaken,
    ids::{ContentDigest, JobId, ShardIndex},
    sim::{training, training_job},
    spec::JobSpec,
};
use tokio::time::timeout;

use super::rig::{Rig, TEST_TIMEOUT, hello, until};

fn spec(id: &JobId) -> JobSpec {
    JobSpec { id: id.clone(), ..training_job(training("bsp".parse().unwrap(), 64, 32)) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_reconnects_at_once_is_kept_and_one_that_does_not_is_dropped() {
    let rig = Rig::start(1).await;
    let (client, first) = (rig.client().await, rig.worker().await);
    let me = first.register(within(TEST_TIMEOUT), hello()).await.unwrap().unwrap().who;
    // Greeted before: only the poll has to come within that time.
    let second = rig.worker().await;
    drop(first);
    // The poll outlasts the time in which a closed connection may be opened again.
    let orders = second
        .poll(
            within(TEST_TIMEOUT),
            me,
            Activity::default(),
            OrderCursor::default(),
            EndedTasks::default(),
            1_000,
        )
        .await
        .unwrap()
        .unwrap();
    assert_eq!((orders.assignments.len(), orders.revoked.len()), (0, 0));
    assert_eq!(client.workers(within(TEST_TIMEOUT)).await.unwrap().unwrap().len(), 1);
    drop(second);
    until(async || client.workers(within(TEST_TIMEOUT)).await.unwrap().unwrap().is_empty().then_some(()))
        .await;
    let late = rig
        .worker()
        .await
        .poll(within(TEST_TIMEOUT), me, Activity::default(), OrderCursor::default(), EndedTasks::default(), 0)
        .await
        .unwrap();
    assert_eq!(late, Err(EngineFault::Dropped));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_that_waits_holds_up_nobody_and_ends_when_its_worker_leaves() {
    let rig = Rig::start(1).await;
    let (client, worker) = (rig.client().await, rig.worker().await);
    let me = worker.register(within(TEST_TIMEOUT), hello()).await.unwrap().unwrap().who;
    let slow = worker.clone();
    let polling = tokio::spawn(async move {
        slow.poll(
            within(TEST_TIMEOUT),
            me,
            Activity::default(),
            OrderCursor::default(),
            EndedTasks::default(),
            20_000,
        )
        .await
    });
    assert_eq!(client.describe_engine(within(TEST_TIMEOUT)).await.unwrap().unwrap()["workers"], "1");
    worker.leave(within(TEST_TIMEOUT), me, Vec::new()).await.unwrap().unwrap();
    let answer = timeout(Duration::from_secs(15), polling).await.unwrap().unwrap().unwrap();
    assert_eq!(answer, Err(EngineFault::Dropped));
    assert!(client.workers(within(TEST_TIMEOUT)).await.unwrap().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_shard_is_named_and_one_that_counts_differently_is_refused() {
    let rig = Rig::start(2).await;
    let client = rig.client().await;
    let shard = rig.start_shard().await;
    let other = ShardHello { count: 3, ..shard.clone() };
    assert_eq!(rig.announce(other).await, Err(EngineFault::MissingShards { present: 3, expected: 2 }));
    rig.announce(shard).await.unwrap();
    let missing = EngineFault::MissingShards { present: 1, expected: 2 };
    assert_eq!(client.shards(within(TEST_TIMEOUT)).await.unwrap(), Err(missing.clone()));
    let job: JobId = "digits".parse().unwrap();
    assert_eq!(
        client.submit(within(TEST_TIMEOUT), spec(&job), 1, IfTaken::Refuse).await.unwrap(),
        Err(missing)
    );
    let about = client.describe_engine(within(TEST_TIMEOUT)).await.unwrap().unwrap();
    assert_eq!((about["shards_present"].as_str(), about["shards"].as_str()), ("1", "2"));
    assert!(
        about["shard_problem"]
            .contains("parameter shard s1 is not there; it has not come yet to this engine"),
        "{}",
        about["shard_problem"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_whose_process_stops_is_told_from_one_that_has_none() {
    let rig = Rig::start(2).await;
    let client = rig.client().await;
    let counts = async || {
        let about = client.describe_engine(within(TEST_TIMEOUT)).await.unwrap().unwrap();
        ["shards_stopping", "shards_missing", "shards_unreached"].map(|name| about[name].clone())
    };
    assert_eq!(counts().await, ["0", "2", "0"]);
    let stopping =
        StoppingShard { index: ShardIndex(0), address: "10.0.0.1:7".into(), boot: 1, problem: None };
    rig.registry().await.stopping(within(TEST_TIMEOUT), stopping).await.unwrap().unwrap();
    assert_eq!(counts().await, ["1", "1", "0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_very_job_that_waits_for_a_shard_is_answered_with_itself_and_another_one_is_refused() {
    let mut rig = Rig::start(1).await;
    rig.announce(rig.start_shard().await).await.unwrap();
    let client = rig.client().await;
    let job: JobId = "digits".parse().unwrap();
    client.submit(within(TEST_TIMEOUT), spec(&job), 1, IfTaken::Refuse).await.unwrap().unwrap();
    // The next engine has met no shard yet.
    rig.crash().await;
    let client = rig.client().await;
    let missing = EngineFault::MissingShards { present: 0, expected: 1 };
    let changed = JobSpec { id: job.clone(), ..training_job(training("asp".parse().unwrap(), 64, 32)) };
    for if_taken in [IfTaken::Refuse, IfTaken::Replace] {
        let submit = async |spec| client.submit(within(TEST_TIMEOUT), spec, 2, if_taken).await.unwrap();
        let before =
            async |spec| client.submitted_before(within(TEST_TIMEOUT), spec, if_taken).await.unwrap();
        assert_eq!(
            (submit(spec(&job)).await, before(spec(&job)).await),
            (Ok(1), Ok(Some(1))),
            "{if_taken:?}"
        );
        let answers = (submit(changed.clone()).await, before(changed.clone()).await);
        assert_eq!(answers, (Err(missing.clone()), Ok(None)), "{if_taken:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_is_missing_is_named_and_no_job_waits_for_it() {
    let rig = Rig::start(1).await;
    let client = rig.client().await;
    let shard = rig.start_shard().await;
    let role = Some(ReplicaRole::Primary { term: 7 });
    let alone = ShardHello { replicas: 2, role, lost: Some(8), follower: Some(8), ..shard };
    rig.announce(alone).await.unwrap();
    let job: JobId = "digits".parse().unwrap();
    client.submit(within(TEST_TIMEOUT), spec(&job), 1, IfTaken::Refuse).await.unwrap().unwrap();
    let about = client.describe_engine(within(TEST_TIMEOUT)).await.unwrap().unwrap();
    assert!(about["standby_problem"].contains("has no standby to take over"), "{about:?}");
    assert_eq!(about["shard_problem"], "", "{about:?}");
    let record = client.job(within(TEST_TIMEOUT), job.into()).await.unwrap().unwrap();
    assert_eq!(record.job["problem"], "", "{record:?}");
    assert!(record.notes.iter().any(|note| note.contains("has no standby")), "{record:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_whose_disk_is_nearly_full_or_takes_no_file_is_named() {
    let rig = Rig::start(1).await;
    let client = rig.client().await;
    let shard = rig.start_shard().await;
    let failed = Some("[E406] cannot create x: I/O error");
    for (free_bytes, free_inodes, problem, told) in [
        (None, None, None, ""),
        (Some(2 << 30), Some(1_000), None, ""),
        (Some(5_000_000), Some(1_000), None, "has 5 MB free"),
        (Some(2 << 30), Some(0), None, "has room for 0 files (inodes)"),
        (Some(2 << 30), None, failed, "takes no file: [E406] cannot create x: I/O error"),
        (Some(5_000_000), Some(7), None, "has room for 7 files (inodes), and has 5 MB free"),
    ] {
        let disk = DiskState { free_bytes, free_inodes, problem: problem.map(str::to_owned) };
        rig.announce(ShardHello { disk: disk.clone(), ..shard.clone() }).await.unwrap();
        let about = client.describe_engine(within(TEST_TIMEOUT)).await.unwrap().unwrap();
        let of_shard = format!("the disk of parameter shard s0 at {} {told}", shard.address);
        assert_eq!(about["disk_problem"], if told.is_empty() { "" } else { &of_shard }, "{disk:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_one_of_whose_blobs_is_nowhere_is_refused_and_leaves_nothing() {
    let rig = Rig::start(1).await;
    let client = rig.client().await;
    let job: JobId = "digits".parse().unwrap();
    let digest = spec(&job).train().unwrap().1.model.forward;
    rig.announce(rig.start_shard_without(Some(digest)).await).await.unwrap();
    let refused = client.submit(within(TEST_TIMEOUT), spec(&job), 1, IfTaken::Refuse).await.unwrap();
    assert_eq!(refused, Err(EngineFault::MissingBlob { digest }));
    assert!(client.jobs(within(TEST_TIMEOUT), None).await.unwrap().unwrap().jobs.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_that_parts_of_a_graph_will_name_are_looked_for_before_a_job_makes_room() {
    let rig = Rig::start(1).await;
    let client = rig.client().await;
    let [there, digest] = [0xa, 0xb].map(|byte| ContentDigest::from_bytes([byte; 32]));
    let check = async |digests| client.check_blobs(within(TEST_TIMEOUT), digests).await.unwrap();
    assert_eq!(check(Vec::new()).await, Ok(()), "no shard has to be there for none");
    assert_eq!(check(vec![there]).await, Err(EngineFault::MissingShards { present: 0, expected: 1 }));
    rig.announce(rig.start_shard_without(Some(digest)).await).await.unwrap();
    assert_eq!(check(vec![there]).await, Ok(()));
    assert_eq!(check(vec![there, digest]).await, Err(EngineFault::MissingBlob { digest }));
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_job_cannot_be_read_no_blob_is_removed() {
    let mut rig = Rig::start(1).await;
    let shard = rig.start_shard().await;
    rig.announce(shard.clone()).await.unwrap();
    let job: JobId = "digits".parse().unwrap();
    let client = rig.client().await;
    client.submit(within(TEST_TIMEOUT), spec(&job), 1, IfTaken::Refuse).await.unwrap().unwrap();
    let store = RedisStore::connect(&rig.redis.url()).await.unwrap();
    let spoil = ["HSET", &JobKeys::new(&job).state, "job_state", "{"];
    let _: u64 = store.query("spoil", &spoil).await.unwrap();
    rig.crash().await;
    rig.announce(shard).await.unwrap();
    let client = rig.client().await;
    let kept = client.gc(within(TEST_TIMEOUT), 0).await.unwrap();
    assert!(matches!(kept, Err(EngineFault::Unreadable { .. })), "{kept:?}");
    client.delete(within(TEST_TIMEOUT), job).await.unwrap().unwrap();
    assert_eq!(client.gc(within(TEST_TIMEOUT), 0).await.unwrap().unwrap().blobs, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_and_its_blobs_survive_a_crash_of_the_engine_and_go_when_it_is_deleted() {
    let mut rig = Rig::start(1).await;
    let shard = rig.start_shard().await;
    rig.announce(shard.clone()).await.unwrap();
    let job: JobId = "digits".parse().unwrap();
    let client = rig.client().await;
    for nonce in [1, 1, 2] {
        let submitted =
            client.submit(within(TEST_TIMEOUT), spec(&job), nonce, IfTaken::Refuse).await.unwrap();
        assert_eq!(submitted, Ok(1), "the same spec is the same job");
    }
    let other = JobSpec { id: job.clone(), ..training_job(training("asp".parse().unwrap(), 64, 32)) };
    let taken = EngineFault::DuplicateJob { job: job.clone(), differs: ", and differs in policy".into() };
    let other = client.submit(within(TEST_TIMEOUT), other, 2, IfTaken::Refuse).await.unwrap();
    assert_eq!(other, Err(taken), "another spec is another job");

    rig.crash().await;
    rig.announce(shard).await.unwrap();
    let client = rig.client().await;
    assert_eq!(client.submit(within(TEST_TIMEOUT), spec(&job), 3, IfTaken::Refuse).await.unwrap(), Ok(1));
    let jobs = client.jobs(within(TEST_TIMEOUT), None).await.unwrap().unwrap().jobs;
    assert_eq!((jobs.len(), jobs[0]["id"].as_str()), (1, "digits"));
    let named = client.gc(within(TEST_TIMEOUT), 60).await.unwrap().unwrap();
    assert_eq!((named.blobs, named.bytes), (4, 60), "the four blobs of the job are kept");
    let running = client.delete(within(TEST_TIMEOUT), job.clone()).await.unwrap();
    assert!(matches!(running, Err(EngineFault::NotOver { .. })), "{running:?}");
    client.cancel(within(TEST_TIMEOUT), job.clone().into(), String::new(), 0).await.unwrap().unwrap();
    until(async || client.delete(within(TEST_TIMEOUT), job.clone()).await.unwrap().ok()).await;
    assert!(client.jobs(within(TEST_TIMEOUT), None).await.unwrap().unwrap().jobs.is_empty());
    let named = client.gc(within(TEST_TIMEOUT), 60).await.unwrap().unwrap();
    assert_eq!(named.blobs, 0);
    let unknown = client.job(within(TEST_TIMEOUT), job.clone().into()).await.unwrap();
    assert_eq!(unknown, Err(EngineFault::UnknownJob { job }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_waits_is_written_again_when_redis_has_lost_it_and_is_never_said_to_be_unknown() {
    written_again_without(|keys| keys.all().to_vec(), "queued").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_waits_is_written_again_when_somebody_removed_what_people_see_of_it() {
    written_again_without(|keys| vec![&keys.job, &keys.events], "queued").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_has_just_ended_is_written_again_when_redis_has_lost_it_and_is_never_said_to_be_unknown() {
    written_again_without(|keys| keys.all().to_vec(), "canceled").await;
}

/// Removes some keys of a job in this state, and of no other one.
async fn written_again_without(lost: fn(&JobKeys) -> Vec<&str>, state: &str) {
    let mut rig = Rig::start(1).await;
    let shard = rig.start_shard().await;
    rig.announce(shard.clone()).await.unwrap();
    let job: JobId = "digits".parse().unwrap();
    let client = rig.client().await;
    client.submit(within(TEST_TIMEOUT), spec(&job), 1, IfTaken::Refuse).await.unwrap().unwrap();
    if state == "canceled" {
        client.cancel(within(TEST_TIMEOUT), job.clone().into(), String::new(), 0).await.unwrap().unwrap();
    }
    let shows = async || client.job(within(TEST_TIMEOUT), job.clone().into()).await.unwrap().unwrap().job;
    until(async || (shows().await["state"] == state).then_some(())).await;
    let store = RedisStore::connect(&rig.redis.url()).await.unwrap();
    let names = JobKeys::new(&job);
    let _: u64 = store.query("lose", &[&["DEL"], &lost(&names)[..]].concat()).await.unwrap();
    let listed = client.jobs(within(TEST_TIMEOUT), None).await.unwrap().unwrap().jobs;
    let shown: Vec<_> = listed.iter().map(|job| (job["id"].as_str(), job["state"].as_str())).collect();
    assert_eq!(shown, [("digits", state)], "it is known, whatever Redis has of it: {listed:?}");
    let written_again =
        until(async || match client.job(within(TEST_TIMEOUT), job.clone().into()).await.unwrap() {
            Ok(record) => Some(record),
            Err(fault) => {
                assert!(matches!(fault, EngineFault::Store { .. }), "{fault}");
                // It is looked at every ten seconds.
                tokio::time::sleep(Duration::from_millis(50)).await;
                None
            }
        });
    assert_eq!(written_again.await.job["state"], state);
    let events =
        client.stream(within(TEST_TIMEOUT), job.clone(), JobStream::Events, None).await.unwrap().unwrap();
    let told: Vec<&str> = events.iter().map(|entry| entry.fields["what"].as_str()).collect();
    assert_eq!(told, ["written_again"], "the older ones are lost, and that is said");
    rig.crash().await;
    rig.announce(shard).await.unwrap();
    let kept = rig.client().await.job(within(TEST_TIMEOUT), job.into()).await.unwrap().unwrap();
    assert_eq!(kept.job["state"], state);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_jobs_that_are_over_as_many_are_read_and_listed_as_somebody_wants_to_see() {
    let rig = Rig::start(1).await;
    rig.announce(rig.start_shard().await).await.unwrap();
    let client = rig.client().await;
    let names: Vec<JobId> = (0..5).map(|n| format!("job-{n}").parse().unwrap()).collect();
    for name in &names {
        client.submit(within(TEST_TIMEOUT), spec(name), 1, IfTaken::Refuse).await.unwrap().unwrap();
        // The one in the middle goes on.
        if name != &names[2] {
            client
                .cancel(within(TEST_TIMEOUT), name.clone().into(), String::new(), 0)
                .await
                .unwrap()
                .unwrap();
        }
    }
    let store = RedisStore::connect(&rig.redis.url()).await.unwrap();
    let reads = async || {
        let stats: String = store.query("stats", &["INFO", "commandstats"]).await.unwrap();
        let of_hashes = stats.lines().find_map(|line| line.strip_prefix("cmdstat_hgetall:calls=")).unwrap();
        of_hashes.split(',').next().unwrap().parse::<u32>().unwrap()
    };
    for (most_over, want, left_out) in [
        (None, &[0, 1, 2, 3, 4][..], 0),
        (Some(9), &[0, 1, 2, 3, 4], 0),
        (Some(2), &[2, 3, 4], 2),
        (Some(0), &[2], 4),
    ] {
        // The decision loop reads none meanwhile: nothing of these jobs changes.
        let before = reads().await;
        let listed = client.jobs(within(TEST_TIMEOUT), most_over).await.unwrap().unwrap();
        let ids: Vec<&str> = listed.jobs.iter().map(|job| job["id"].as_str()).collect();
        assert_eq!(ids, want.iter().map(|n| names[*n].as_str()).collect::<Vec<_>>(), "{most_over:?}");
        assert_eq!(listed.left_out, left_out, "{most_over:?}");
        assert_eq!((reads().await - before) as usize, want.len(), "{most_over:?}");
    }
    // One whose record is something else hides no other.
    let spoil = ["SET", &JobKeys::new(&names[4]).job, "nothing"];
    let _: String = store.query("spoil", &spoil).await.unwrap();
    let all = client.jobs(within(TEST_TIMEOUT), None).await.unwrap().unwrap().jobs;
    // It ended a moment ago, and is written again.
    assert_eq!((all.len(), all[4]["state"].as_str()), (5, "canceled"));
    assert!(!all[4]["problem"].is_empty(), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_more_jobs_than_one_answer_holds_the_newest_are_listed_and_the_others_are_counted() {
    const MIB: usize = 1 << 20;
    let rig = Rig::start(1).await;
    rig.announce(rig.start_shard().await).await.unwrap();
    let client = rig.client().await;
    let store = RedisStore::connect(&rig.redis.url()).await.unwrap();
    for n in 0..6 {
        let name: JobId = format!("job-{n}").parse().unwrap();
        client.submit(within(TEST_TIMEOUT), spec(&name), 1, IfTaken::Refuse).await.unwrap().unwrap();
        let wide = ["HSET", &JobKeys::new(&name).job, "wide", &"x".repeat(12 * MIB)];
        let _: u64 = store.query("widen", &wide).await.unwrap();
    }
    let listed = client.jobs(within(TEST_TIMEOUT), None).await.unwrap().unwrap();
    let ids: Vec<&str> = listed.jobs.iter().map(|job| job["id"].as_str()).collect();
    assert_eq!((ids.as_slice(), listed.left_out), (&["job-4", "job-5"][..], 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_a_worker_must_register_again_and_gets_a_higher_number() {
    let mut rig = Rig::start(1).await;
    let before = rig.worker().await.register(within(TEST_TIMEOUT), hello()).await.unwrap().unwrap();
    rig.crash().await;
    let worker = rig.worker().await;
    let poll = worker
        .poll(
            within(TEST_TIMEOUT),
            before.who,
            Activity::default(),
            OrderCursor::default(),
            EndedTasks::default(),
            0,
        )
        .await
        .unwrap();
    assert_eq!(poll, Err(EngineFault::Dropped));
    let after = worker.register(within(TEST_TIMEOUT), hello()).await.unwrap().unwrap();
    assert!(after.epoch > before.epoch && after.who.incarnation > before.who.incarnation);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_redis_is_paused_callers_are_refused_at_once_and_served_again_when_it_is_back() {
    let rig = Rig::start(1).await;
    let (client, worker) = (rig.client().await, rig.worker().await);
    let signal = |name: &str| {
        let pid = rig.redis.pid().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    };
    signal("-STOP");
    let cause = until(async || {
        let about = client.describe_engine(within(TEST_TIMEOUT)).await.unwrap().unwrap();
        about.get("store_problem").filter(|cause| !cause.is_empty()).cloned()
    });
    let cause = cause.await;
    let address = rig.redis.address().replace("redis://", "redis://***@");
    assert!(cause.contains("redis does not do") && cause.contains(&address), "{cause}");
    let refused = worker.register(within(TEST_TIMEOUT), hello()).await.unwrap();
    assert!(matches!(refused, Err(EngineFault::Store { .. })), "{refused:?}");
    let canceled = client
        .cancel(within(TEST_TIMEOUT), "digits".parse::<JobId>().unwrap().into(), String::new(), 0)
        .await
        .unwrap();
    assert!(matches!(canceled, Err(EngineFault::Store { .. })), "{canceled:?}");
    let read = client.jobs(within(TEST_TIMEOUT), None).await.unwrap();
    assert!(matches!(read, Err(EngineFault::Store { .. })), "{read:?}");
    signal("-CONT");
    let registered = until(async || worker.register(within(TEST_TIMEOUT), hello()).await.unwrap().ok()).await;
    assert!(registered.epoch.0 >= 1);
}
