//! Commands that need no cluster: `simulate`, `plan` and `bench plan`.

use std::{
    fs,
    io::Write,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
};

use crate::rig::{Ended, Killed, command, folder, kill, syncline, wait_until};

const STRAGGLER: [&str; 3] = ["simulate", "--intervals-ms", "100,100,100,200"];

fn simulate(args: &[&str]) -> Ended {
    syncline(&[&STRAGGLER[..], args].concat())
}

#[test]
fn simulate_prints_what_its_json_promises() {
    let run = simulate(&["--policy", "bsp", "--duration-s", "200", "--json"]).ok().json();
    let mut fields: Vec<&str> = run.as_object().unwrap().keys().map(String::as_str).collect();
    fields.retain(|f| {
        [
            "policy",
            "pushes",
            "pushes_per_s",
            "samples_per_s",
            "waiting_fraction",
            "max_lead",
            "mean_staleness",
            "barriers",
            "per_worker",
        ]
        .contains(f)
    });
    assert_eq!(fields.len(), 9, "{run:#}");
    assert_eq!(run["waiting_fraction"].as_f64().unwrap(), 0.375);
    assert_eq!(run["pushes"], 4000);
    assert_eq!(run["per_worker"][3]["waiting_fraction"], 0.0);
}

#[test]
fn simulate_takes_lookahead_predictor_and_jitter_from_flags() {
    let flags = ["--lookahead", "15", "--jitter", "0.15", "--duration-s", "1000", "--seed", "3", "--json"];
    let wait = |more: &[&str]| {
        let run = simulate(&[&flags[..], more].concat()).ok().json();
        run["waiting_fraction"].as_f64().unwrap()
    };
    let (last, smooth) = (wait(&["--policy", "elastic-bsp"]), wait(&["--predictor", "ema:0.2"]));
    assert!((0.08..=0.15).contains(&last), "{last}");
    assert!(smooth <= 0.09 && smooth < last, "{smooth} {last}");
}

#[test]
fn simulate_compares_side_by_side_and_draws() {
    let dir = folder();
    let picture = dir.path().join("runs.svg");
    let compare = ["--compare", "bsp,asp,elastic-bsp:15", "--duration-s", "60"];
    let table = simulate(&[&compare[..], &["--plot", picture.to_str().unwrap()]].concat()).ok();
    assert_eq!(table.out.lines().count(), 4, "{}", table.out);
    let svg = fs::read_to_string(picture).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("elastic-bsp:15"));
    let runs = simulate(&[&compare[..], &["--json"]].concat()).ok().json();
    assert_eq!(runs.as_array().unwrap().len(), 3);
}

#[test]
fn simulate_names_what_is_wrong() {
    simulate(&["--jitter=-1"]).refused(2, "E570");
    syncline(&["simulate", "--scenario", "/nowhere.toml"]).refused(2, "E571");
    let dir = folder();
    let file = dir.path().join("bad.toml");
    fs::write(&file, "polcy = 1").unwrap();
    let bad = syncline(&["simulate", "--scenario", file.to_str().unwrap()]).refused(2, "E572");
    assert!(bad.err.contains("polcy"), "{}", bad.err);
    simulate(&["--leave", "9@1"]).refused(2, "E573");
    simulate(&["--plot", "/nowhere/a.svg"]).refused(2, "E574");
    let unknown = simulate(&["--policy", "best"]);
    assert!(unknown.code == 2 && unknown.err.contains("E003"), "{unknown:#?}");
}

#[test]
fn plan_reads_both_forms_from_stdin() {
    let plan = |input: &str, args: &[&str]| {
        let mut child = command(&[&["plan"], args].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        Ended::from(child.wait_with_output().unwrap())
    };
    let answer = plan(r#"{"points": [[10, 20, 30], [29, 58]]}"#, &["--json"]).ok().json();
    assert_eq!((&answer["span"], &answer["sync_time"]), (&1.into(), &30.into()), "{answer}");
    assert_eq!(answer["iterations"], serde_json::json!([3, 1]));
    for algorithm in ["zipline", "zipline-opt", "zipline-opt-bs", "heap"] {
        let history = r#"{"history": [[0, 10], [0, 29]], "lookahead": 15}"#;
        let answer = plan(history, &["--json", "--algorithm", algorithm]).ok().json();
        assert_eq!(answer["span"], 2, "{algorithm}: {answer}");
    }
    plan("{", &[]).refused(2, "E564");
    plan(r#"{"points": [[3, 1]]}"#, &[]).refused(2, "E566");
}

#[test]
fn bench_plan_measures() {
    let bench = syncline(&["bench", "plan", "--workers", "20", "--lookahead", "15", "--json"]).ok().json();
    assert!(bench["median_us"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_measurement_that_is_interrupted_takes_along_what_it_has_started() {
    let dir = folder();
    let (python, told) = (dir.path().join("python"), dir.path().join("pid"));
    let body = format!("#!/bin/sh\necho $$ > {}\nexec sleep 1000\n", told.display());
    fs::write(&python, body).unwrap();
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    let args = "bench scaling --rounds 1 --seconds 1 --policies bsp --python";
    let args: Vec<&str> = args.split(' ').chain([python.to_str().unwrap()]).collect();
    let mut bench = Killed::start(command(&args).stdout(Stdio::null()).stderr(Stdio::null()));
    let pid = || fs::read_to_string(&told).unwrap_or_default().trim().to_owned();
    wait_until("the program runs", || !pid().is_empty());
    kill("TERM", bench.id());
    assert_eq!(bench.wait().unwrap().code(), Some(130));
    let stat = format!("/proc/{}/stat", pid());
    wait_until("the program has ended", || {
        fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))
    });
}

#[test]
fn a_measurement_that_is_interrupted_leaves_no_files_behind() {
    let dir = folder();
    let mut bench = command(&["bench", "push", "--transport", "tcp", "--mb", "8", "--rounds", "10000"]);
    bench.env("TMPDIR", dir.path()).stdout(Stdio::null()).stderr(Stdio::piped());
    let bench = Killed::start(&mut bench);
    let entries =
        |path: &Path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    wait_until("it keeps files", || entries(dir.path()).iter().any(|folder| !entries(folder).is_empty()));
    kill("INT", bench.id());
    let ended = bench.ended();
    assert_eq!(ended.code, 130, "{ended:#?}");
    assert_eq!(ended.err.contains("not optimized"), cfg!(debug_assertions), "{ended:#?}");
    assert_eq!(entries(dir.path()), Vec::<PathBuf>::new());
}
