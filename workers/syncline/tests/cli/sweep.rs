//! Many trainings of one job file: which are stopped, which is best, and that the same command goes on where
//! it was.

use std::{fs, process::Stdio};

use serde_json::Value;

use crate::{
    job::write_job,
    json::Page,
    rig::{Ended, Killed, Up, command, folder, kill, processes, syncline, wait_until},
};

/// Each of the trials by the end of its id, with how it stands.
fn standings(answer: &Value) -> Vec<(String, String)> {
    let text = |one: &Value, field: &str| one[field].as_str().unwrap().to_owned();
    let trials = answer["trials"].as_array().unwrap().iter();
    let mut all: Vec<_> = trials.map(|one| (text(one, "id"), text(one, "standing"))).collect();
    all.sort();
    all
}

/// When each of them was submitted and ended.
fn moments(answer: &Value) -> Vec<(String, Value, Value)> {
    let trials = answer["trials"].as_array().unwrap().iter();
    let moments = |one: &Value| {
        let job = &one["job"];
        (one["id"].as_str().unwrap().to_owned(), job["submitted_ms"].clone(), job["ended_ms"].clone())
    };
    let mut all: Vec<_> = trials.map(moments).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

#[test]
fn a_bad_rate_is_stopped_early_and_the_same_command_goes_on_and_trains_nothing_twice() {
    let dir = folder();
    let up = ["--workers", "1", "--trainings", "4", "--shards", "1", "--slowdown", "1", "--step-ms", "5"];
    let _up = Up::start(&dir, &up);
    write_job(dir.path(), 50);
    let file = dir.path().join("points.toml");
    let (file, state_dir) = (file.to_str().unwrap(), dir.path().to_str().unwrap());
    let rates = "settings.learning_rate=0.3,0.1,1e-7,1e30";
    let words = ["sweep", file, "--set", rates, "--set", "settings.evaluate={ every_epochs = 2 }"];
    let words = [&words[..], &["--rungs", "2,40", "--keep", "1/2", "--state-dir", state_dir]].concat();
    let in_json = [&words[..], &["--json"]].concat();
    let at = |args: &[&str]| syncline(&[args, &["--state-dir", state_dir]].concat());

    // Whoever ends the command ends no trial.
    for (signal, code) in [("INT", Some(130)), ("KILL", None)] {
        let mut begun = Killed::start(command(&words).stdout(Stdio::null()).stderr(Stdio::piped()));
        wait_until("a trial is there", || at(&["status", "points-sweep-1"]).code == 0);
        kill(signal, begun.id());
        assert_eq!(begun.wait().unwrap().code(), code);
    }

    let done = syncline(&in_json).ok();
    Page::read().holds("sweep", &done);
    let answer = done.json();
    let said = standings(&answer);
    let stands =
        |end: &str| said.iter().find(|(id, _)| id == &format!("points-sweep-{end}")).unwrap().1.clone();
    assert_eq!([stands("3"), stands("4")], ["stopped", "failed"], "{said:?}");
    let best = answer["best"].as_str().unwrap();
    let first = &answer["trials"][0];
    assert!(["points-sweep-1", "points-sweep-2"].contains(&best) && first["id"] == best, "{said:?}");
    assert_eq!((&first["rank"], &first["measured_on"]), (&1.into(), &"test".into()));
    assert_eq!((&answer["by"], &answer["prefix"]), (&"loss".into(), &"points-sweep".into()));
    let last = &answer["trials"][3];
    assert_eq!(
        (&last["job"]["code"], &last["values"]["settings.learning_rate"]),
        (&"E351".into(), &"1e30".into())
    );
    let mut trials = answer["trials"].as_array().unwrap().iter();
    let stopped = trials.find(|one| one["id"] == "points-sweep-3").unwrap();
    assert_eq!(stopped["stopped_at_epoch"], 2, "{stopped:#}");
    let stopped = &stopped["job"];
    let reason = stopped["reason"].as_str().unwrap();
    assert!(reason.starts_with("sweep: ranked 3rd of 3 at epoch 2"), "{reason}");
    assert!(stopped["epochs_complete"].as_u64() < Some(50), "{stopped:#}");

    let again = syncline(&words).ok();
    assert!(again.err.contains("4 are over and 0 go on from before"), "{again:#?}");
    assert!(
        !again.err.contains("begins") && again.err.contains(&format!("best: {best}, test loss ")),
        "{again:#?}"
    );
    assert!(again.out.contains("failed E351"), "{again:#?}");
    let row = again.out.lines().find(|row| row.contains(best)).unwrap();
    assert!(
        again.out.starts_with("ranked by test loss, the lowest first\nrank  job") && row.ends_with("  best"),
        "{again:#?}"
    );
    let shown = at(&["sweep", file, "--show", "--json"]).ok();
    Page::read().holds("sweep --show", &shown);
    assert_eq!((standings(&shown.json()), moments(&shown.json())), (said, moments(&answer)));

    // One that was deleted is trained again, and stopped again; no other is.
    at(&["delete", "points-sweep-3"]).ok();
    let anew = syncline(&in_json).ok().json();
    let (before, after) = (moments(&answer), moments(&anew));
    let changed: Vec<usize> = (0..4).filter(|n| before[*n] != after[*n]).collect();
    assert_eq!((changed, standings(&anew)), (vec![2], standings(&answer)));

    // What is there under the name has to be this sweep.
    let text = fs::read_to_string(file).unwrap();
    fs::write(file, text.replace("batch = 10", "batch = 20")).unwrap();
    let other = syncline(&words).refused(1, "E584");
    assert!(
        other.err.contains("points-sweep-1 is there already") && other.err.contains("differs in batch"),
        "{other:#?}"
    );
    at(&["sweep", file, "--show", "--name", "other"]).refused(1, "E588");
}

#[test]
fn a_dry_run_shows_the_trials_without_a_cluster() {
    let dir = folder();
    write_job(dir.path(), 5);
    let file = dir.path().join("points.toml");
    let sets = ["--set", "settings.learning_rate=0.3,0.1", "--set", "settings.epochs=2,4"];
    let words = [&["sweep", file.to_str().unwrap(), "--dry-run"], &sets[..]].concat();
    let dry = |more: &[&str]| syncline(&[&words[..], more].concat());
    let told = dry(&[]).ok();
    let rows: Vec<String> =
        told.out.lines().map(|row| row.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let want = [
        "job learning_rate epochs samples in all",
        "points-sweep-1 0.3 2 160 320",
        "points-sweep-2 0.3 4 160 640",
        "points-sweep-3 0.1 2 160 320",
        "points-sweep-4 0.1 4 160 640",
    ];
    assert_eq!(rows, want);
    assert!(told.err.contains("4 trials, points-sweep-1 to points-sweep-4"), "{told:#?}");
    assert!(told.err.contains("nothing was submitted"), "{told:#?}");
    let said = dry(&["--json"]).ok();
    Page::read().holds("sweep --dry-run", &said);
    assert_eq!(said.json()["trials"][3]["values"]["settings.epochs"], "4");
    // What cannot train is refused as before a sweep.
    dry(&["--set", "settings.batch=1000"]).refused(2, "E028");
    // So is what none of them would measure.
    let unmeasured = dry(&["--by", "perplexity"]).refused(2, "E509");
    let needs = "points-sweep-1 does not measure it, which needs softmax-cross-entropy with `loss_options = { perplexity";
    assert!(unmeasured.err.contains(needs), "{unmeasured:#?}");
    dry(&["--by", "macro-f1"]).ok();
}

#[test]
fn a_damaged_trial_keeps_a_sweep_from_none_of_the_others() {
    let dir = folder();
    let up = Up::start(&dir, &["--workers", "1", "--shards", "1", "--slowdown", "1", "--step-ms", "5"]);
    write_job(dir.path(), 50);
    let file = dir.path().join("points.toml");
    let (file, state_dir) = (file.to_str().unwrap(), dir.path().to_str().unwrap());
    let words =
        ["sweep", file, "--set", "settings.epochs=100000,1", "--at-once", "1", "--state-dir", state_dir];
    let state = || {
        let said = syncline(&["status", "points-sweep-1", "--state-dir", state_dir, "--json"]);
        if said.code == 0 { said.json()["job"]["state"].as_str().unwrap().to_owned() } else { String::new() }
    };
    let mut begun = Killed::start(command(&words).stdout(Stdio::null()).stderr(Stdio::null()));
    wait_until("a trial runs", || state() == "running");
    kill("INT", begun.id());
    begun.wait().unwrap();
    let engine = processes(dir.path()).into_iter().find(|(name, _)| name == "engine").unwrap().1;
    // A living engine would write again what it knows.
    kill("STOP", engine);
    assert!(up.redis("DEL syncline:{points-sweep-1}:state").contains(":1"));
    kill("KILL", engine);
    wait_until("its successor knows", || state() == "damaged");
    let answer = syncline(&[&words[..], &["--json"]].concat()).ok().json();
    let want = [("points-sweep-1", "failed"), ("points-sweep-2", "done")];
    assert_eq!(standings(&answer), want.map(|(id, how)| (id.to_owned(), how.to_owned())));
}

#[test]
fn a_trial_that_redis_has_lost_begins_once_more_and_one_that_is_deleted_does_not() {
    let dir = folder();
    let up = Up::start(&dir, &["--workers", "1", "--shards", "1", "--slowdown", "1", "--step-ms", "5"]);
    write_job(dir.path(), 50);
    let file = dir.path().join("points.toml");
    let (file, state_dir) = (file.to_str().unwrap(), dir.path().to_str().unwrap());
    let words = ["sweep", file, "--set", "settings.epochs=100000,1", "--at-once", "1"];
    let at = |args: &[&str]| syncline(&[args, &["--state-dir", state_dir]].concat());
    let submitted_ms = || {
        let said = at(&["status", "points-sweep-1", "--json"]);
        (said.code == 0 && said.json()["job"]["state"] == "running")
            .then(|| said.json()["job"]["submitted_ms"].clone())
    };
    let sweep = [&words[..], &["--state-dir", state_dir]].concat();
    let sweep = Killed::start(command(&sweep).stdout(Stdio::piped()).stderr(Stdio::piped()));
    wait_until("a trial runs", || submitted_ms().is_some());
    let first = submitted_ms();
    let engine = processes(dir.path()).into_iter().find(|(name, _)| name == "engine").unwrap().1;
    // A living engine would write again what it knows.
    kill("STOP", engine);
    let keys = "state job tasks workers supersteps events metrics barriers evaluations";
    let keys = keys.split(' ').map(|key| format!("syncline:{{points-sweep-1}}:{key}"));
    up.redis(&format!("DEL syncline:jobs {}", keys.collect::<Vec<_>>().join(" ")));
    kill("KILL", engine);
    wait_until("it begins once more", || submitted_ms().is_some_and(|ms| Some(ms) != first));
    // It sees nothing of the end: the next look finds no trial.
    kill("STOP", sweep.id());
    at(&["cancel", "points-sweep-1"]).ok();
    wait_until("it is over", || at(&["delete", "points-sweep-1"]).code == 0);
    kill("CONT", sweep.id());
    let done = sweep.ended();
    let said = |what: &str| done.err.contains(&format!("points-sweep-1: {what}"));
    assert!(
        said("Redis has lost it, and it begins once more") && said("somebody has deleted it"),
        "{done:#?}"
    );
    assert_eq!(done.err.matches("points-sweep-1: begins").count(), 2, "{done:#?}");
}

#[test]
fn a_job_that_takes_the_name_of_a_trial_is_none_of_its_sweep() {
    let dir = folder();
    let _up = Up::start(&dir, &["--workers", "1", "--shards", "1", "--slowdown", "1", "--step-ms", "5"]);
    write_job(dir.path(), 2);
    let file = dir.path().join("points.toml");
    let (file, state_dir) = (file.to_str().unwrap(), dir.path().to_str().unwrap());
    let at = |args: &[&str]| syncline(&[args, &["--state-dir", state_dir]].concat());
    let words = ["sweep", file, "--set", "settings.epochs=100000,1", "--at-once", "1"];
    let mut sweep = command(&[&words[..], &["--state-dir", state_dir]].concat());
    let said = dir.path().join("said");
    let stderr = fs::File::create(&said).unwrap();
    let sweep = Killed::start(sweep.stdout(Stdio::piped()).stderr(stderr));
    let has_said = |what: &str| fs::read_to_string(&said).unwrap().contains(what);
    wait_until("a trial begins", || has_said("points-sweep-1: begins"));
    kill("STOP", sweep.id());
    at(&["cancel", "points-sweep-1"]).ok();
    at(&["submit", file, "--id", "points-sweep-1", "--replace", "--watch"]).ok();
    kill("CONT", sweep.id());
    let table = sweep.ended().ok().out;
    let stands = |job: &str, how: &str| table.lines().any(|row| row.contains(job) && row.contains(how));
    assert!(stands("points-sweep-1", "not there") && stands("points-sweep-2", "done"), "{table}");
    assert!(has_said("points-sweep-1: somebody has replaced it by another job"));
}

#[test]
fn a_sweep_that_makes_no_sense_is_refused_before_anything_is_asked() {
    let dir = folder();
    write_job(dir.path(), 3);
    let file = dir.path().join("points.toml");
    let (file, state_dir) = (file.to_str().unwrap(), dir.path().to_str().unwrap());
    let sweep =
        |more: &[&str]| -> Ended { syncline(&[&["sweep", file, "--state-dir", state_dir], more].concat()) };
    let rate = "settings.learning_rate=1e-4..0.1:log";
    #[rustfmt::skip]
    let cases: [(&[&str], &str, &str); 9] = [
        (&["--set", rate],                              "E509", "--samples N draws"),
        (&["--set", rate, "--samples", "100000"],       "E509", "at most 1000"),
        (&["--set", "settings.batch=8,8"],              "E509", "`8` is there twice"),
        (&["--set", "id=a,b"],                          "E509", "comes from --name"),
        (&["--set", "settings.btach=8,16"],             "E369", "unknown field `btach`"),
        (&["--set", "settings.batch=8,16", "--set", "settings.batch=32"], "E509", "is there twice"),
        (&["--keep", "1/2"],                            "E500", "--rungs"),
        (&["--set", "settings.batch=8", "--rungs", "2,1"], "E500", "that ascend"),
        (&["--set", "settings.batch=8", "--at-once", "0"], "E500", "--at-once"),
    ];
    for (words, code, want) in cases {
        let refused = sweep(words).refused(2, code);
        assert!(refused.err.contains(want), "{words:?}: {refused:#?}");
    }
}

#[test]
fn a_sweep_with_a_precision_that_no_worker_computes_trains_nothing() {
    let dir = folder();
    let _up = Up::start(&dir, &["--workers", "1", "--shards", "1"]);
    write_job(dir.path(), 2);
    let (file, state_dir) = (dir.path().join("points.toml"), dir.path().to_str().unwrap());
    let words = ["--set", "settings.precision=f32,bf16", "--state-dir", state_dir];
    let refused = syncline(&[&["sweep", file.to_str().unwrap()], &words[..]].concat());
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("[E470]"), "{}", refused.err);
    let jobs = syncline(&["jobs", "--json", "--state-dir", state_dir]).ok().json();
    assert_eq!(jobs.as_array().map(Vec::len), Some(0), "{jobs:#}");
}
