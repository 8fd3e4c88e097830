//! `syncline chaos`: accidents of all processes of a cluster.

use std::{fs, process::Stdio};

use crate::rig::{Ended, Killed, command, folder, kill, runs, syncline, wait_until};

#[test]
fn random_graphs_and_trainings_are_as_they_have_to_be_while_processes_are_killed() {
    let dir = folder();
    let place = dir.path().join("state");
    let run = syncline(&["chaos", "--minutes", "0.1", "--seed", "7", "--state-dir", place.to_str().unwrap()]);
    let run = run.ok();
    let lines: Vec<&str> = run.out.lines().collect();
    let [first, second, third] = lines[..] else { panic!("{run:#?}") };
    assert!(first.starts_with("seed 7: ") && first.ends_with(" trainings are as they have to be"), "{first}");
    assert!(second.starts_with("accidents: "), "{second}");
    assert!(third.starts_with("engines killed: "), "{third}");
    assert!(run.err.starts_with("seed 7, state "), "{}", run.err);
    // What lies there is nobody's to mix with.
    let again = syncline(&["chaos", "--minutes", "0.1", "--state-dir", place.to_str().unwrap()]);
    assert!(again.refused(5, "E502").err.contains("not empty"));
}

#[test]
fn an_engine_that_is_killed_again_and_again_keeps_what_it_has_acknowledged() {
    let arguments = "chaos --minutes 0.08 --seed 3 --engines 1 --replicas 1 --kill engine --every 200ms";
    let run = syncline(&arguments.split(' ').collect::<Vec<_>>()).ok();
    assert!(run.out.contains(" are as they have to be\naccidents: kill engine "), "{run:#?}");
}

#[test]
fn what_is_not_as_it_has_to_be_ends_the_run_with_its_seed_and_the_state_kept() {
    let dir = folder();
    let place = dir.path().to_str().unwrap();
    let elsewhere = folder();
    let said = elsewhere.path().join("said");
    let mut chaos = command(&["chaos", "--minutes", "30", "--seed", "8", "--state-dir", place]);
    let mut chaos = Killed::start(chaos.stdout(Stdio::null()).stderr(fs::File::create(&said).unwrap()));
    // Whoever cancels a graph of the run makes it go wrong. It may end before, or the engine be killed
    // meanwhile.
    let mut ended = None;
    wait_until("the run ends", || {
        ended = chaos.try_wait().unwrap();
        let jobs = syncline(&["jobs", "--json", "--state-dir", place]);
        let jobs: Vec<serde_json::Value> = serde_json::from_str(&jobs.out).unwrap_or_default();
        let ids = jobs.iter().filter_map(|job| job["id"].as_str());
        for id in ids.filter(|id| !id.contains('~')) {
            syncline(&["cancel", id, "--grace", "0s", "--state-dir", place]);
        }
        ended.is_some()
    });
    let said = fs::read_to_string(said).unwrap();
    assert_eq!(ended.unwrap().code(), Some(1), "{said}");
    assert!(said.contains("[E540]") && said.contains("was canceled"), "{said}");
    assert!(said.contains(&format!("seed 8, state kept in {place}")), "{said}");
    assert!(dir.path().join("logs").is_dir());
}

#[test]
fn a_cluster_that_does_not_come_up_ends_the_run_with_how_long_that_took() {
    let dir = folder();
    let mut chaos = command(&["chaos", "--state-dir", dir.path().to_str().unwrap()]);
    let run = Ended::from(chaos.env("SYNCLINE_REDIS_SERVER", "/nowhere/redis-server").output().unwrap());
    assert!(run.code == 5 && run.err.contains("[E508]"), "{run:#?}");
    assert!(run.err.contains("up.log says why") && !run.err.contains("within 0 s"), "{run:#?}");
}

#[test]
fn a_run_that_is_killed_takes_its_cluster_along() {
    let dir = folder();
    let place = dir.path().to_str().unwrap();
    // No accident happens before it is killed.
    let mut chaos = command(&["chaos", "--minutes", "30", "--every", "20min", "--state-dir", place]);
    let (mut chaos, running) = (Killed::start(&mut chaos), dir.path().join("up.json"));
    wait_until("the cluster runs", || running.exists());
    let up: serde_json::Value = serde_json::from_slice(&fs::read(&running).unwrap()).unwrap();
    let children = up["processes"].as_object().unwrap().values();
    let pids: Vec<u32> = children.chain([&up["pid"]]).map(|pid| pid.as_u64().unwrap() as u32).collect();
    kill("KILL", chaos.id());
    chaos.wait().unwrap();
    wait_until("nothing of it runs", || !pids.iter().any(|pid| runs(*pid)));
}

#[test]
fn a_run_that_is_told_to_stop_takes_its_cluster_along() {
    let dir = folder();
    let place = dir.path().to_str().unwrap();
    let mut chaos = command(&["chaos", "--minutes", "30", "--seed", "9", "--state-dir", place]);
    let chaos = Killed::start(chaos.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let running = dir.path().join("up.json");
    wait_until("the cluster runs", || running.exists());
    let up: serde_json::Value = serde_json::from_slice(&fs::read(&running).unwrap()).unwrap();
    kill("TERM", chaos.id());
    let run = chaos.ended();
    assert_eq!(run.code, 1, "{run:#?}");
    assert!(run.err.contains("[E541]") && run.err.contains("seed 9, state kept in"), "{run:#?}");
    assert!(!runs(up["pid"].as_u64().unwrap() as u32));
}
