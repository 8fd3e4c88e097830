//! Everything is stopped cleanly in the middle of a job, and goes on at the next start.

use std::{
    fs::{self, File},
    io::Write,
    os::fd::AsRawFd,
    path::Path,
};

use syncline::{Client, JobPhase, JobStatus};
use syncline_rpc::{EngineAddresses, Token};
use syncline_scheduler::ids::JobId;
use syncline_workers::submit;

use tokio::runtime::Runtime;

use crate::{
    cluster::runtime,
    counting,
    other_machine::with_own_mounts,
    rig::{Up, folder, kill, syncline, wait_until},
};

const SAMPLES: u64 = 12_000;
const BATCH: u32 = 10;
const CLUSTER: &[&str] = &["--workers", "2", "--shards", "2", "--step-ms", "4"];

pub fn client(up: &Up) -> Client {
    let token = Token::load(Path::new(up.about["token_file"].as_str().unwrap())).unwrap();
    let engine: EngineAddresses = up.about["engine"].as_str().unwrap().parse().unwrap();
    Client::new(engine, token)
}

/// Submits the job.
fn submit_to(up: &Up, waiting: &Runtime, policy: &str) -> JobId {
    let job: JobId = "counting".parse().unwrap();
    let graph = counting::job(job.as_str(), policy.parse().unwrap(), SAMPLES, BATCH, 1, 3);
    let prepared = submit::prepare(&runtime(), &graph).unwrap();
    let engine = client(up);
    waiting.block_on(engine.submit_prepared(prepared)).unwrap();
    job
}

/// Waits until so many samples of a running job are applied.
fn until_far(up: &Up, waiting: &Runtime, job: &JobId, far: u64) {
    let engine = client(up);
    wait_until("the job is in its middle", || {
        let view = waiting.block_on(engine.status(job)).unwrap().job;
        assert!(!view.is_over(), "{view:?}");
        view.samples_applied >= far
    });
}

/// How the job ends.
pub fn until_over(up: &Up, waiting: &Runtime, job: &JobId) -> JobStatus {
    let engine = client(up);
    let mut summary = None;
    wait_until("the job is over", || {
        let job = waiting.block_on(engine.status(job)).unwrap().job;
        summary = Some(job).filter(JobStatus::is_over);
        summary.is_some()
    });
    summary.unwrap()
}

/// Starts a job, stops the cluster `stops` times in its middle, and checks its counts at the end.
fn stopped_in_the_middle(policy: &str, stops: u64, signal: &str) {
    let waiting = Runtime::new().unwrap();
    let dir = folder();
    let mut up = Up::start(&dir, CLUSTER);
    let job = submit_to(&up, &waiting, policy);
    for stop in 1..=stops {
        until_far(&up, &waiting, &job, SAMPLES * stop / (stops + 1));
        kill(signal, up.pid());
        assert!(up.wait().success(), "{}", up.said());
        for shard in 0..2 {
            let kept = dir.path().join(format!("shard-{shard}/jobs/counting.job"));
            assert!(kept.exists(), "{}", fs::read_to_string(dir.path().join("logs/ps-0.log")).unwrap());
        }
        up = Up::start(&dir, CLUSTER);
    }
    let summary = until_over(&up, &waiting, &job);
    let logs = || fs::read_to_string(dir.path().join("logs/engine.log")).unwrap();
    assert_eq!(summary.state, JobPhase::Done, "{summary:?} {}", logs());
    assert_eq!(summary.samples_applied, SAMPLES);
    let counts = counting::counts(Path::new(summary.snapshot.as_ref().unwrap()));
    let (low, high) = (*counts.iter().min().unwrap(), *counts.iter().max().unwrap());
    let (done, torn) = (summary.iterations_done, summary.iterations_torn);
    println!("{policy}: {done} done, {torn} torn, weights {low}..{high}");
    if policy == "asp" {
        assert!(done <= low && high <= done + torn, "{done} done, {torn} torn, weights {low}..{high}");
    }
    if policy == "bsp" {
        // A round is one step, whole or torn.
        let barriers = summary.barriers;
        assert!(high <= barriers && high - low <= torn, "{barriers} barriers, weights {low}..{high}");
    }
}

#[test]
fn a_job_of_steps_goes_on_with_exact_counts_after_sigterm() {
    stopped_in_the_middle("asp", 2, "TERM");
}

#[test]
fn a_job_of_rounds_goes_on_with_exact_counts_after_ctrl_c() {
    stopped_in_the_middle("bsp", 2, "INT");
}

#[test]
fn a_job_of_local_rounds_goes_on_after_a_stop() {
    stopped_in_the_middle("local-sgd:4", 1, "TERM");
}

#[test]
fn another_number_of_shards_is_refused_and_the_number_that_was_goes_on() {
    let (waiting, dir) = (Runtime::new().unwrap(), folder());
    let mut up = Up::start(&dir, &["--workers", "2", "--shards", "3", "--step-ms", "4"]);
    let job = submit_to(&up, &waiting, "asp");
    until_far(&up, &waiting, &job, SAMPLES / 3);
    kill("TERM", up.pid());
    assert!(up.wait().success(), "{}", up.said());
    let state_dir = dir.path().to_str().unwrap();
    let other = ["up", "--state-dir", state_dir, "--listen", "127.0.0.1:0", "--shards", "2"];
    let refused = syncline(&other).refused(2, "E516");
    assert!(refused.err.contains("3 shards (counting)") && refused.err.contains("--shards 3"), "{refused:?}");
    // By hand it is the shard that refuses.
    let shard = dir.path().join("shard-0");
    let refused = syncline(&["ps", "--state-dir", shard.to_str().unwrap(), "--shard", "0/2"]);
    let refused = refused.refused(2, "E427");
    assert!(refused.err.contains("holds a job of shard 0/3"), "{refused:?}");
    let up = Up::start(&dir, &["--workers", "1"]);
    assert_eq!(up.about["shards"], 3);
    let summary = until_over(&up, &waiting, &job);
    assert_eq!((summary.state, summary.samples_applied), (JobPhase::Done, SAMPLES));
}

/// What starts a program for which the folder `$1` is a small disk.
const SMALL_DISK: &str = "mount -t tmpfs -o size=64m none \"$1\" && shift && exec \"$@\"";

/// Stops a cluster in the middle of a job while the disk of its shard is full, lets `meanwhile` happen once
/// it has said so, and returns the exit code and what lies in the folder of saved jobs at the end. Nothing
/// where no disk can be had.
fn stopped_on_a_full_disk(meanwhile: impl FnOnce(&Up, &Path)) -> Option<(Option<i32>, Vec<String>)> {
    let starter = with_own_mounts(SMALL_DISK)?;
    let (waiting, dir) = (Runtime::new().unwrap(), folder());
    let shard = dir.path().join("shard-0");
    fs::create_dir(&shard).unwrap();
    let starter = [&starter[..], &[shard.to_str().unwrap()]].concat();
    let mut up = Up::start_by(&starter, dir.path(), &["--workers", "1", "--shards", "1", "--step-ms", "4"]);
    let job = submit_to(&up, &waiting, "asp");
    until_far(&up, &waiting, &job, SAMPLES / 10);
    // Only its processes see the disk; the open folder stays with us when they have gone.
    let disk = Path::new(&format!("/proc/{}/root", up.pid())).join(shard.strip_prefix("/").unwrap());
    let jobs = File::open(disk.join("jobs")).unwrap();
    let filler = disk.join("filler");
    let mut file = File::create(&filler).unwrap();
    while file.write_all(&[1; 65_536]).is_ok() {}
    drop(file);
    kill("TERM", up.pid());
    wait_until("up says what the shard waits for", || up.said().contains("ps-0: [E428] job counting"));
    assert!(up.said().contains("No space left"), "{}", up.said());
    meanwhile(&up, &filler);
    let status = up.wait();
    let log = || fs::read_to_string(dir.path().join("logs/ps-0.log")).unwrap();
    wait_until("the shard has ended", || {
        log().contains("kept until the next start") || log().contains("[E419]")
    });
    let left = fs::read_dir(format!("/proc/self/fd/{}", jobs.as_raw_fd())).unwrap();
    Some((status.code(), left.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()))
}

#[test]
fn a_stop_waits_for_room_on_a_full_disk_and_then_keeps_the_job() {
    if let Some(ended) = stopped_on_a_full_disk(|_, filler| fs::remove_file(filler).unwrap()) {
        assert_eq!(ended, (Some(0), vec!["counting.job".to_owned()]));
    }
}

#[test]
fn a_second_ctrl_c_gives_up_the_job_that_a_full_disk_does_not_take() {
    if let Some(ended) = stopped_on_a_full_disk(|up, _| kill("INT", up.pid())) {
        assert_eq!(ended, (Some(130), Vec::new()));
    }
}

#[test]
fn a_second_sigterm_to_the_shard_gives_up_the_job_that_a_full_disk_does_not_take() {
    let stop_the_shard = |up: &Up, _: &Path| {
        kill("TERM", up.about["processes"]["ps-0"].as_u64().unwrap().try_into().unwrap());
        wait_until("up says how it ended", || up.said().contains("ps-0 ended with exit status: 5"));
    };
    if let Some(ended) = stopped_on_a_full_disk(stop_the_shard) {
        assert_eq!(ended, (Some(0), Vec::new()));
    }
}
