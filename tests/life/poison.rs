//! A job at which the engine meets a bug of its own: the process ends with its reason, the other engine takes
//! over, and after three times the job is left aside and all others go on.

use std::fs;

use syncline::{Client, JobPhase};
use syncline_engine::store::{RedisStore, keys::JobKeys};
use syncline_workers::{
    client::{RunningCluster, load_token},
    submit,
};
use tokio::runtime::Runtime;

use crate::{
    cluster::{Process, runtime},
    counting,
    rig::{Up, command, folder, kill, processes, wait_until},
};

const SAMPLES: u64 = 500;

#[test]
fn engines_that_end_at_a_job_one_after_the_other_leave_it_aside_and_go_on_with_the_others() {
    let waiting = Runtime::new().unwrap();
    let dir = folder();
    let up = Up::start(&dir, &["--engines", "2", "--workers", "0", "--longest-pause-ms", "300"]);
    let running = RunningCluster::load(dir.path()).unwrap().unwrap();
    let client = Client::new(running.engines(), load_token(&running.token_file).unwrap());
    let submit = |name: &str| {
        let graph = counting::job(name, "asp".parse().unwrap(), SAMPLES, 10, 1, 0);
        let prepared = submit::prepare(&runtime(), &graph).unwrap();
        let job = prepared.spec.id.clone();
        waiting.block_on(client.submit_prepared(prepared)).unwrap();
        job
    };
    let poison = submit("poison");
    // Nothing is wrong with these records until a worker joins: the number that is counted up then has no
    // next one.
    waiting.block_on(async {
        let store = RedisStore::connect(&running.redis_url().unwrap()).await.unwrap();
        let state = JobKeys::new(&poison).state;
        let stored: String = store.query("read", &["HGET", &state, "job_state"]).await.unwrap();
        let spoiled = stored.replace("\"clock_revision\":0", &format!("\"clock_revision\":{}", u64::MAX));
        assert_ne!(spoiled, stored);
        let _: u64 = store.query("spoil", &["HSET", &state, "job_state", &spoiled]).await.unwrap();
    });
    // Those that run know what they wrote; those that follow read it.
    for (name, pid) in processes(dir.path()) {
        if name.starts_with("engine") {
            kill("KILL", pid);
        }
    }
    let mut worker = command(&["worker", "--threads", "1", "--state-dir", dir.path().to_str().unwrap()]);
    let _worker = Process::of(&mut worker);

    let mut said = None;
    wait_until("the job is left aside", || {
        let job = waiting.block_on(client.status(&poison)).map(|view| view.job);
        said = job.ok().filter(|job| job.state == JobPhase::Damaged);
        said.is_some()
    });
    let said = said.unwrap();
    let reason = said.reason.as_deref().unwrap_or_default();
    assert_eq!(said.code.as_deref(), Some("E147"), "{said:?}");
    assert!(reason.contains("3 times in a row") && reason.contains("overflow"), "{reason}");
    let sound = submit("sound");
    let done = waiting.block_on(client.wait(&sound, |_| ())).unwrap().job;
    assert_eq!((done.state, done.samples_applied), (JobPhase::Done, SAMPLES));

    let logs = ["engine", "engine-2"].map(|name| dir.path().join(format!("logs/{name}.log")));
    let told: String = logs.iter().map(|log| fs::read_to_string(log).unwrap_or_default()).collect();
    assert!(told.matches("the engine has a bug that it meets with this job").count() >= 3, "{told}");
    assert!(up.said().contains("ended with"), "{}", up.said());
}
