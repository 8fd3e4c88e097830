//! What an operator does and meets: ids that are taken, Redis that is full or stuck, and what the log says
//! afterwards.

use std::{
    fs,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    job::write_job,
    json::Page,
    rig::{Ended, Killed, Up, command, folder, kill, processes, runs, syncline, wait_until},
};

/// Longer than any command may take to say what is wrong.
const AT_ONCE: Duration = Duration::from_secs(20);

struct RunningCluster {
    up: Up,
    /// Removed last: whoever still runs would write into it again.
    dir: TempDir,
}

impl RunningCluster {
    fn start() -> Self {
        let dir = folder();
        let up =
            Up::start(&dir, &["--workers", "2", "--shards", "1", "--slowdown", "1,1", "--step-ms", "20"]);
        Self { up, dir }
    }

    fn args<'a>(&'a self, args: &[&'a str]) -> Vec<&'a str> {
        [args, &["--state-dir", self.dir.path().to_str().unwrap()]].concat()
    }

    fn run(&self, args: &[&str]) -> Ended {
        syncline(&self.args(args))
    }

    /// Writes a job and submits it.
    fn submit(&self, epochs: u32, flags: &[&str]) -> Ended {
        write_job(self.dir.path(), epochs);
        let file = self.dir.path().join("points.toml");
        self.run(&[&["submit", file.to_str().unwrap()], flags].concat())
    }

    /// Starts to watch the job; what is said goes into the file.
    fn watch(&self) -> (Killed, PathBuf) {
        self.begin(&["watch", "points"])
    }

    /// A command that goes on, and the file with what it says on stderr.
    fn begin(&self, words: &[&str]) -> (Killed, PathBuf) {
        let said = self.dir.path().join(format!("said-by-{}", words[0]));
        let mut begun = command(&self.args(words));
        begun.stdout(Stdio::null()).stderr(fs::File::create(&said).unwrap());
        (Killed::start(&mut begun), said)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("logs/engine.log")).unwrap()
    }

    fn field(&self, name: &str) -> String {
        let status = self.run(&["status", "points", "--json"]);
        if status.code != 0 {
            return String::new();
        }
        match &status.json()["job"][name] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        }
    }
}

#[test]
fn a_job_under_auto_says_what_it_goes_by_now() {
    let cluster = RunningCluster::start();
    cluster.submit(5_000, &["--set", "settings.policy=auto"]).ok();
    let status = || cluster.run(&["status", "points", "--json"]).ok();
    wait_until("a policy is chosen", || status().json()["chosen"]["reason"].is_string());
    Page::read().holds("status", &status());
    wait_until("status says so", || {
        let told = cluster.run(&["status", "points"]).ok().out;
        told.lines().any(|line| line.starts_with("policy") && line.contains(", now "))
    });
    cluster.run(&["cancel", "points"]).ok();
}

#[test]
fn an_id_is_free_again_once_its_job_is_over_and_the_log_tells_the_story() {
    let cluster = RunningCluster::start();
    cluster.submit(1, &["--watch"]).ok();
    let taken = cluster.submit(2, &[]).refused(1, "E130");
    assert!(
        taken.err.contains("--replace")
            && taken.err.contains("--new")
            && taken.err.contains("syncline delete"),
        "{taken:#?}"
    );
    assert!(taken.err.contains("exists already, and differs in epochs\n"), "{taken:#?}");
    let file = cluster.dir.path().join("points.checkpoint");
    let none = cluster.run(&["checkpoint", "points", file.to_str().unwrap()]).refused(1, "E146");
    assert!(none.err.contains("no complete checkpoint; it is done, and kept checkpoints every 5 min until it is done (default)\n"), "{none:#?}");
    let status = cluster.run(&["status", "points"]).ok().out;
    assert!(status.contains("\ncheckpoints   every 5 min until it is done (default)\n"), "{status}");
    cluster.submit(1, &["--replace", "--watch"]).ok();
    assert_eq!(cluster.field("epochs"), "1");
    let status = cluster.run(&["status", "points"]).ok().out;
    assert!(!status.contains(" active "), "a job that is done has no active workers: {status}");
    assert_eq!(cluster.field("workers"), "0");

    // What cannot be deleted keeps none of the others.
    let deleted = cluster.run(&["delete", "nowhere", "points", "nobody"]);
    assert_eq!(deleted.code, 1, "{deleted:#?}");
    for told in ["there is no job nowhere", "job points is deleted", "error: [E131] there is no job nobody"] {
        assert!(deleted.err.contains(told), "{deleted:#?}");
    }
    cluster.run(&["status", "points"]).refused(1, "E131");
    cluster.run(&["delete", "points"]).refused(1, "E131");
    assert_eq!(cluster.up.redis("EXISTS {syncline}:x syncline:{points}:job").lines().nth(1), Some(":0"));

    cluster.submit(5_000, &["--replace"]).ok();
    wait_until("it runs", || cluster.field("state") == "running");
    for running in [cluster.run(&["delete", "points"]), cluster.submit(1, &["--replace"])] {
        let refused = running.refused(1, "E140");
        assert!(refused.err.contains("syncline cancel"), "{refused:#?}");
    }
    assert_eq!(cluster.field("epochs"), "5000", "the running one is not touched");
    let said = cluster.run(&["workers"]).ok().out;
    assert!(said.lines().next().unwrap().starts_with("worker    id"), "{said}");
    let trained = cluster.dir.path().join("trained.onnx");
    // What was typed is right.
    cluster.run(&["model", "export", "points", trained.to_str().unwrap()]).refused(1, "E246");
    cluster.run(&["cancel", "points"]).ok();
    cluster.run(&["delete", "points", "--json"]).ok().json();

    let log = cluster.log();
    for words in ["job submitted", "job started", "job trained", "job done", "job canceled", "job deleted"] {
        let told = log.lines().any(|line| line.contains(words) && line.contains("job=points"));
        assert!(told, "`{words}` is not in {log}");
    }
}

#[test]
fn a_checkpoint_that_is_gone_on_from_lies_nowhere_while_the_job_is_watched() {
    let cluster = RunningCluster::start();
    write_job(cluster.dir.path(), 5_000);
    let file = cluster.dir.path().join("points.toml");
    let kept =
        fs::read_to_string(&file).unwrap().replace("epochs =", "checkpoint = { every_epochs = 1 }, epochs =");
    fs::write(&file, kept).unwrap();
    let file = file.to_str().unwrap();
    cluster.run(&["submit", file]).ok();
    wait_until("it has a checkpoint", || !cluster.field("checkpoint").is_empty());
    let temporary = folder();
    let mut watched =
        command(&cluster.args(&["submit", file, "--id", "second", "--resume", "points", "--watch"]));
    watched.env("TMPDIR", temporary.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut watched = Killed::start(&mut watched);
    let left = || fs::read_dir(temporary.path()).unwrap().count();
    wait_until("it is submitted", || cluster.run(&["status", "second"]).code == 0);
    wait_until("nothing is left of the checkpoint", || left() == 0);
    kill("INT", watched.id());
    assert_eq!(watched.wait().unwrap().code(), Some(130));
    assert_eq!(left(), 0);
}

#[test]
fn doctor_looks_at_one_cluster_and_not_at_another_beside_it() {
    let cluster = RunningCluster::start();
    let here = cluster.run(&["doctor"]).ok().out;
    assert!(here.contains("appendonly") && here.contains(", protocol "), "{here}");
    let elsewhere = cluster.run(&["doctor", "--engine", "127.0.0.1:1"]).out;
    assert!(!elsewhere.contains("appendonly") && elsewhere.contains("no address is known"), "{elsewhere}");
}

#[test]
fn who_submits_is_told_of_what_is_sent_where_that_takes_long() {
    let cluster = RunningCluster::start();
    write_job(cluster.dir.path(), 10);
    let shard = processes(cluster.dir.path()).into_iter().find(|(name, _)| name == "ps-0").unwrap().1;
    kill("STOP", shard);
    let file = cluster.dir.path().join("points.toml");
    let (mut submit, said) = cluster.begin(&["submit", file.to_str().unwrap()]);
    wait_until("it is said", || {
        let said = fs::read_to_string(&said).unwrap();
        said.contains("sending ") && said.contains(" MiB to the shards, for ")
    });
    kill("CONT", shard);
    assert!(submit.wait().unwrap().success());
}

#[test]
fn a_machine_of_a_worker_needs_no_redis_server() {
    let dir = folder();
    let looked = |verdict: &str, engine: &[&str]| {
        let mut doctor = command(&["doctor", "--state-dir", dir.path().to_str().unwrap()]);
        let doctor = doctor.args(engine).env("SYNCLINE_REDIS_SERVER", "/nowhere/redis-server").output();
        let out = Ended::from(doctor.unwrap()).out;
        assert!(out.contains(&format!("{verdict}  redis server")), "{out}");
    };
    looked("warn", &["--engine", "127.0.0.1:1"]);
    looked("fail", &[]);
}

#[test]
fn a_running_job_that_lost_its_state_is_listed_as_damaged_and_cancel_says_that_it_is_removed() {
    let cluster = RunningCluster::start();
    cluster.submit(5_000, &[]).ok();
    wait_until("it runs", || cluster.field("state") == "running");
    let engine = || processes(cluster.dir.path()).into_iter().find(|(name, _)| name == "engine").unwrap().1;
    let first = engine();
    // A living engine would write again what it knows.
    kill("STOP", first);
    assert!(cluster.up.redis("DEL syncline:{points}:state").contains(":1"));
    kill("KILL", first);
    wait_until("its successor knows", || cluster.field("state") == "damaged");
    let jobs = cluster.run(&["jobs"]).ok().out;
    assert!(jobs.lines().any(|line| line.contains("points") && line.contains("damaged")), "{jobs}");
    let canceled = cluster.run(&["cancel", "points"]).ok();
    assert!(canceled.err.contains("job points was damaged and is removed"), "{canceled:?}");
    assert!(!cluster.run(&["jobs"]).ok().out.contains("points"));
    cluster.run(&["delete", "points"]).refused(1, "E131");
    cluster.submit(1, &["--watch"]).ok();
}

#[test]
fn gc_removes_what_no_job_names_and_nothing_else() {
    let cluster = RunningCluster::start();
    cluster.submit(1, &["--watch"]).ok();
    let blobs = || fs::read_dir(cluster.dir.path().join("shard-0/blobs")).unwrap().count();
    let gc = || cluster.run(&["gc", "--older-than-s", "0", "--json"]).ok().json()["blobs"].as_u64().unwrap();
    // A file's age is counted in whole seconds.
    let since = Instant::now();
    wait_until("they are old enough", || since.elapsed() > Duration::from_secs(2));
    let before = blobs();
    assert!(before > 0);
    assert_eq!((gc(), blobs()), (0, before), "a job that is over is still looked at and exported");
    cluster.run(&["delete", "points"]).ok();
    assert_eq!((gc(), blobs()), (before as u64, 0));
    cluster.submit(1, &["--watch"]).ok();
}

#[test]
fn snapshots_of_jobs_that_were_replaced_are_removed_and_those_of_the_job_in_their_place_stay() {
    let cluster = RunningCluster::start();
    for epochs in 1..=3 {
        cluster.submit(epochs, &["--watch", "--replace"]).ok();
    }
    let folders = || {
        let all = fs::read_dir(cluster.dir.path().join("shard-0/snapshots")).unwrap();
        all.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>()
    };
    let written = cluster.run(&["status", "points", "--json"]).ok().json()["job"]["snapshot"].to_string();
    assert_eq!(folders().len(), 3, "{:?}", folders());
    let gc = cluster.run(&["gc", "--older-than", "0", "--snapshots", "--json"]).ok().json();
    assert_eq!(gc["forgotten_snapshots"], 2, "{gc}");
    assert!(matches!(&folders()[..], [left] if written.contains(left.to_str().unwrap())), "{:?}", folders());
}

#[test]
fn checkpoints_of_jobs_that_redis_has_forgotten_are_counted_and_removed_when_that_is_asked_for() {
    let cluster = RunningCluster::start();
    write_job(cluster.dir.path(), 20);
    let file = cluster.dir.path().join("points.toml");
    let kept = "checkpoint = { every_epochs = 10 }, epochs =";
    fs::write(&file, fs::read_to_string(&file).unwrap().replace("epochs =", kept)).unwrap();
    for id in ["known", "forgotten"] {
        cluster.run(&["submit", file.to_str().unwrap(), "--id", id, "--watch"]).ok();
    }
    let folders = || {
        let all = fs::read_dir(cluster.dir.path().join("shard-0/checkpoints")).unwrap();
        all.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(folders().len(), 2, "{:?}", folders());
    let gc = |more: &[&str]| cluster.run(&[&["gc", "--older-than", "0"], more].concat()).ok();
    let count = |done: &Ended| done.json()["forgotten_checkpoints"].as_u64().unwrap();
    assert_eq!(count(&gc(&["--json", "--checkpoints"])), 0);

    assert!(cluster.up.redis("DEL syncline:{forgotten}:state").contains(":1"));
    let said = gc(&[]).err;
    assert!(said.contains("kept checkpoints in 1 folder, ") && said.contains("--checkpoints"), "{said}");
    assert_eq!((count(&gc(&["--json", "--checkpoints"])), count(&gc(&["--json"]))), (1, 0));
    assert!(matches!(&folders()[..], [left] if left.starts_with("known-")), "{:?}", folders());

    // Its weights as well, where somebody has looked at what is left of it.
    let snapshots = || fs::read_dir(cluster.dir.path().join("shard-0/snapshots")).unwrap().count();
    let said = gc(&[]).err;
    let left = cluster.up.redis("HGETALL syncline:{forgotten}:state");
    assert!(said.contains("kept snapshots in 1 folder, ") && said.contains("--snapshots"), "{said}, {left}");
    let removed = gc(&["--json", "--snapshots"]).json();
    assert_eq!((&removed["forgotten_snapshots"], snapshots()), (&1.into(), 1), "{removed}");
    assert!(removed["forgotten_snapshot_bytes"].as_u64() > Some(0), "{removed}");
    let longer = ["--id", "third", "--resume", "known", "--set", "settings.epochs=21", "--watch"];
    cluster.run(&[&["submit", file.to_str().unwrap()], &longer[..]].concat()).ok();
}

#[test]
fn a_full_redis_is_said_at_once_by_every_command_and_nothing_is_lost() {
    let cluster = RunningCluster::start();
    cluster.submit(5_000, &[]).ok();
    wait_until("it runs", || cluster.field("state") == "running");
    let (mut watch, out) = cluster.watch();

    assert!(cluster.up.redis("CONFIG SET maxmemory 1").contains("+OK"));
    wait_until("doctor says so", || {
        let doctor = cluster.run(&["doctor"]);
        doctor.code == 4 && doctor.out.contains("fail  redis writes") && doctor.out.contains("fail  memory")
    });
    let since = Instant::now();
    let status = cluster.run(&["status", "points"]).ok();
    assert!(status.out.contains("problem") && status.out.contains("OOM"), "{status:#?}");
    assert!(cluster.field("problem").contains("OOM"));
    let jobs = cluster.run(&["jobs"]).ok().out;
    assert!(jobs.contains("Redis takes no writes") && jobs.contains("OOM"), "{jobs}");
    cluster.run(&["pause", "points"]).refused(4, "E135");
    assert!(since.elapsed() < AT_ONCE, "took {:?}", since.elapsed());

    // What was submitted meanwhile is submitted once it can be.
    write_job(cluster.dir.path(), 1);
    let file = cluster.dir.path().join("points.toml");
    let mut submit = command(&cluster.args(&["submit", file.to_str().unwrap(), "--id", "later"]));
    let submit = Killed::start(submit.stdout(Stdio::piped()).stderr(Stdio::piped()));
    std::thread::sleep(Duration::from_secs(1));
    assert!(cluster.up.redis("CONFIG SET maxmemory 0").contains("+OK"));
    submit.ended().ok();
    wait_until("it goes on", || cluster.run(&["doctor"]).code == 0);
    cluster.run(&["cancel", "points"]).ok();
    assert_eq!(watch.wait().unwrap().code(), Some(1), "{}", fs::read_to_string(&out).unwrap());
    cluster.run(&["watch", "later"]).ok();
}

#[test]
fn a_submission_waits_for_a_redis_that_has_taken_no_writes_for_longer_than_a_lease() {
    let cluster = RunningCluster::start();
    write_job(cluster.dir.path(), 1);
    assert!(cluster.up.redis("CONFIG SET min-replicas-to-write 1").contains("+OK"));
    // Until then the engine still answers from what it knows.
    wait_until("another engine may lead", || cluster.run(&["workers"]).code == 4);
    let file = cluster.dir.path().join("points.toml");
    let (mut submit, said) = cluster.begin(&["submit", file.to_str().unwrap()]);
    let said = || fs::read_to_string(&said).unwrap();
    wait_until("it waits", || {
        assert!(submit.try_wait().unwrap().is_none(), "it gave up: {}", said());
        said().contains("to the shards, for")
    });
    assert!(cluster.up.redis("CONFIG SET min-replicas-to-write 0").contains("+OK"));
    assert_eq!(submit.wait().unwrap().code(), Some(0), "{}", said());
    cluster.run(&["watch", "points"]).ok();
}

#[test]
fn a_stuck_redis_ends_nobody_who_follows_and_is_said_at_once() {
    let cluster = RunningCluster::start();
    cluster.submit(5_000, &[]).ok();
    wait_until("it runs", || cluster.field("state") == "running");
    let redis = processes(cluster.dir.path()).into_iter().find(|(name, _)| name == "redis").unwrap().1;
    kill("STOP", redis);
    let (mut watch, out) = cluster.watch();
    let (mut events, told) = cluster.begin(&["events", "points", "--follow"]);
    let since = Instant::now();
    let status = cluster.run(&["status", "points"]).refused(4, "E135");
    assert!(since.elapsed() < AT_ONCE, "took {:?}", since.elapsed());
    assert!(status.err.contains("redis does not do"), "{status:#?}");
    let said = || fs::read_to_string(&out).unwrap();
    let told = || fs::read_to_string(&told).unwrap();
    wait_until("both say what is wrong", || {
        [said(), told()].iter().all(|said| said.contains("still watching") && said.contains("E135"))
    });
    let doctor = cluster.run(&["doctor"]);
    assert!(doctor.code == 4 && doctor.out.contains("fail  redis"), "{doctor:#?}");
    // Longer than any patience of a client.
    wait_until("it was stuck for long", || since.elapsed() > Duration::from_secs(25));
    assert!(watch.try_wait().unwrap().is_none(), "watch gave up: {}", said());
    assert!(events.try_wait().unwrap().is_none(), "events gave up: {}", told());
    kill("CONT", redis);
    wait_until("it goes on", || cluster.run(&["doctor"]).code == 0);
    cluster.run(&["cancel", "points"]).ok();
    assert_eq!(watch.wait().unwrap().code(), Some(1), "{}", said());
    assert_eq!(events.wait().unwrap().code(), Some(0), "{}", told());
}

#[test]
fn metrics_are_followed_on_where_a_new_engine_finds_another_redis_for_a_while() {
    let cluster = RunningCluster::start();
    cluster.submit(5_000, &[]).ok();
    wait_until("it has points", || cluster.run(&["metrics", "points"]).out.lines().count() > 1);
    let drawn = cluster.dir.path().join("curve.svg");
    let (mut metrics, told) =
        cluster.begin(&["metrics", "points", "--plot", drawn.to_str().unwrap(), "--follow"]);
    let told = || fs::read_to_string(&told).unwrap();
    wait_until("it follows", || told().contains("written again every"));
    let engine = || processes(cluster.dir.path()).into_iter().find(|(name, _)| name == "engine").unwrap().1;
    let change_databases = || {
        // It would start the next engine before that.
        kill("STOP", cluster.up.pid());
        let killed = engine();
        kill("KILL", killed);
        wait_until("the engine is gone", || !runs(killed));
        assert!(cluster.up.redis("SWAPDB 0 5").contains("+OK"));
        kill("CONT", cluster.up.pid());
    };
    change_databases();
    wait_until("it says that the job is not known", || {
        assert!(metrics.try_wait().unwrap().is_none(), "it gave up: {}", told());
        told().contains("still watching: [E131]")
    });
    change_databases();
    wait_until("the job is seen again", || told().contains("the job is seen again"));
    cluster.run(&["cancel", "points"]).ok();
    assert_eq!(metrics.wait().unwrap().code(), Some(0), "{}", told());
}

#[test]
fn whoever_follows_a_job_gets_nothing_of_another_that_takes_its_name() {
    let cluster = RunningCluster::start();
    write_job(cluster.dir.path(), 5_000);
    let file = cluster.dir.path().join("points.toml");
    let follow = |words: &[&str]| {
        let printed = cluster.dir.path().join(format!("printed-by-{}", words[0]));
        let mut begun = command(&cluster.args(words));
        begun.stdout(fs::File::create(&printed).unwrap()).stderr(Stdio::piped());
        let begun = Killed::start(&mut begun);
        wait_until("it has seen the job", || fs::metadata(&printed).unwrap().len() > 0);
        begun
    };
    let followers = [
        follow(&["submit", file.to_str().unwrap(), "--watch"]),
        follow(&["watch", "points"]),
        follow(&["events", "points", "--follow"]),
    ];
    // As behind the lid of a laptop.
    followers.iter().for_each(|follower| kill("STOP", follower.id()));
    cluster.run(&["cancel", "points"]).ok();
    cluster.submit(1, &["--replace", "--watch"]).ok();
    followers.iter().for_each(|follower| kill("CONT", follower.id()));
    for follower in followers {
        let ended = follower.ended().refused(1, "E650");
        assert!(
            ended.err.contains("`syncline status JOB` shows the one that has the name now"),
            "{ended:#?}"
        );
    }
}

#[test]
fn a_job_whose_numbers_somebody_has_overwritten_is_damaged_in_status_as_in_jobs() {
    let cluster = RunningCluster::start();
    cluster.submit(1, &["--watch"]).ok();
    assert!(cluster.up.redis("HSET syncline:{points}:job samples_applied many").contains(":0"));
    let row = |ended: Ended| ended.ok().json()[0]["reason"].as_str().unwrap().to_owned();
    let reason = row(cluster.run(&["jobs", "--json"]));
    let status = cluster.run(&["status", "points"]).ok().out;
    for part in ["points (damaged)", &reason, "`syncline delete points`"] {
        assert!(status.contains(part), "{part} is not in {status}");
    }
    assert!(cluster.up.redis("XADD syncline:{points}:events * what \"\\xff\"").contains('$'));
    cluster.run(&["events", "points"]).ok();
    cluster.run(&["delete", "points"]).ok();
}

#[test]
fn a_password_of_redis_that_was_changed_is_named_as_the_cause_and_nothing_else_is_claimed() {
    let cluster = RunningCluster::start();
    cluster.submit(5_000, &[]).ok();
    wait_until("it runs", || cluster.field("state") == "running");
    let password = cluster.up.redis_password();
    let engine = || processes(cluster.dir.path()).into_iter().find(|(name, _)| name == "engine").unwrap().1;
    let before = engine();
    let (mut watch, out) = cluster.watch();
    let (mut events, told) = cluster.begin(&["events", "points", "--follow"]);
    assert!(cluster.up.redis("CONFIG SET requirepass changed").contains("+OK"));
    cluster.up.redis_as("changed", "CLIENT KILL TYPE normal SKIPME yes");
    wait_until("Redis lets nobody in", || {
        let jobs = cluster.run(&["jobs"]);
        let status = cluster.run(&["status", "points"]);
        assert!(!jobs.out.contains("damaged") && !status.out.contains("damaged"), "{jobs:#?}{status:#?}");
        status.code == 4
    });
    let mut said = String::new();
    wait_until("the engine has noticed", || {
        said = cluster.run(&["doctor"]).out;
        said.contains("Redis does not let it lead")
    });
    let failed = said.lines().find(|line| line.starts_with("fail")).unwrap();
    assert!(failed.starts_with("fail  redis ") && !said.contains("another engine"), "{said}");
    assert!(
        !said.contains("workers ") && !said.contains("shards ") && !said.contains("ok    engine"),
        "{said}"
    );
    let since = Instant::now();
    cluster.run(&["status", "points"]).refused(4, "E136");
    assert!(since.elapsed() < AT_ONCE, "took {:?}", since.elapsed());

    assert!(cluster.up.redis_as("changed", &format!("CONFIG SET requirepass {password}")).contains("+OK"));
    wait_until("the same engine goes on", || {
        let said = cluster.run(&["status", "points"]);
        assert!(!said.out.contains("damaged"), "{said:#?}");
        said.code == 0
    });
    wait_until("all is well", || cluster.run(&["doctor"]).code == 0);
    assert_eq!(engine(), before);
    let [said, told] = [&out, &told].map(|said| fs::read_to_string(said).unwrap());
    assert!(watch.try_wait().unwrap().is_none(), "watch gave up: {said}");
    assert!(events.try_wait().unwrap().is_none(), "events gave up: {told}");
    cluster.run(&["cancel", "points"]).ok();
    assert_eq!((watch.wait().unwrap().code(), events.wait().unwrap().code()), (Some(1), Some(0)));
}
