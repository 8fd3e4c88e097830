//! `syncline up`: one cluster at a time, restarts, and nothing that outlives it.

use std::{fs, os::unix::fs::PermissionsExt};

use crate::rig::{Up, command, folder, kill, processes, runs, syncline, wait_until};

const SMALL: &[&str] = &["--workers", "2", "--shards", "2"];

#[test]
fn it_says_where_everything_is() {
    let dir = folder();
    let place = dir.path().to_str().unwrap();
    let mut child = command(&["up", "--state-dir", place, "--listen", "127.0.0.1:0", "--workers", "1"])
        .stdout(fs::File::create(dir.path().join("said")).unwrap())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let said = || fs::read_to_string(dir.path().join("said")).unwrap();
    wait_until("it is ready", || said().contains("\nnext "));
    for line in [
        "engine      127.0.0.1:",
        "token file  ",
        "redis       redis://127.0.0.1:",
        "state       ",
        "next        syncline submit",
    ] {
        assert!(said().contains(line), "{line} is not in {}", said());
    }
    let mode = fs::metadata(dir.path().join("token")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    kill("INT", child.id());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_second_one_on_the_same_folder_is_refused() {
    let dir = folder();
    let _up = Up::start(&dir, SMALL);
    let place = dir.path().to_str().unwrap();
    syncline(&["up", "--state-dir", place, "--listen", "127.0.0.1:0"]).refused(2, "E503");
}

#[test]
fn sigterm_stops_every_process() {
    let dir = folder();
    let mut up = Up::start(&dir, SMALL);
    let all = processes(dir.path());
    let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["engine", "ps-0", "ps-1", "redis", "worker-0", "worker-1"]);
    assert!(all.iter().all(|(_, pid)| runs(*pid)));
    kill("TERM", up.pid());
    assert!(up.wait().success(), "{}", up.said());
    let left: Vec<_> = all.iter().filter(|(_, pid)| runs(*pid)).collect();
    assert!(left.is_empty(), "still there: {left:?}");
    assert!(!dir.path().join("up.json").exists());
}

#[test]
fn nothing_outlives_a_killed_one_and_its_successor_takes_the_same_ports() {
    let dir = folder();
    let mut first = Up::start(&dir, SMALL);
    let all = processes(dir.path());
    kill("KILL", first.pid());
    first.wait();
    wait_until("all children have ended", || all.iter().all(|(_, pid)| !runs(*pid)));

    let token = fs::read_to_string(dir.path().join("token")).unwrap();
    let second = Up::start(&dir, SMALL);
    for same in ["engine", "redis", "token_file"] {
        assert_eq!(first.about[same], second.about[same]);
    }
    assert_eq!(token, fs::read_to_string(dir.path().join("token")).unwrap());
}

#[test]
fn a_dead_child_is_started_again() {
    let dir = folder();
    let up = Up::start(&dir, SMALL);
    let place = dir.path().to_str().unwrap();
    for (name, pid) in processes(dir.path()) {
        kill("KILL", pid);
        wait_until(&format!("{name} runs again"), || up.said().contains(&format!("{name} runs again")));
    }
    assert!(up.said().contains("ps-1 ended with signal: 9 (SIGKILL); the parameters"), "{}", up.said());
    wait_until("the cluster is whole again", || {
        let report = syncline(&["doctor", "--state-dir", place]);
        report.code == 0 && report.out.contains("workers       2")
    });
}

#[test]
fn a_child_that_cannot_start_ends_it_with_the_reason() {
    let dir = folder();
    let place = dir.path().to_str().unwrap();
    let ended =
        syncline(&["up", "--state-dir", place, "--listen", "127.0.0.1:0", "--redis", "redis://127.0.0.1:1/"]);
    let ended = ended.refused(4, "E504");
    assert!(ended.err.contains("[E201]"), "{}", ended.err);
    // What was locked and started is free again.
    drop(Up::start(&dir, SMALL));
}

#[test]
fn doctor_finds_nothing_wrong_with_a_healthy_cluster() {
    let dir = folder();
    let _up = Up::start(&dir, SMALL);
    let report = syncline(&["doctor", "--json", "--state-dir", dir.path().to_str().unwrap()]).ok().json();
    let verdicts = report
        .as_array()
        .unwrap()
        .iter()
        .map(|f| (f["check"].as_str().unwrap(), f["verdict"].as_str().unwrap()));
    for (check, verdict) in verdicts.filter(|(check, _)| *check != "state" && *check != "open files") {
        assert_eq!(verdict, "ok", "{check}: {report:#}");
    }
}
