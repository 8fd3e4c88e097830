//! A job in a file, read when its cluster is gone.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::Stdio,
};

use syncline::{CallOptions, Client, Cluster, Function, TaskGraph};
use tokio::runtime::Runtime;

use crate::{
    job::write_job,
    json::Page,
    rig::{Killed, Up, command, folder, on_full_disk, syncline, wait_until},
};

const NOBODYS: Function<(u64,), u64> = Function::new("nobody.has-it");
/// More than are fetched at a time, and with one more task more than can be listed at a time.
const WIDTH: u64 = 10_000;

/// What some commands print, but for what changes by itself: the age of a job, and where its Redis server
/// was.
fn told(commands: &[Vec<&str>], at: &[&str]) -> Vec<String> {
    let said = |command: &Vec<&str>| {
        let out = syncline(&[command, at].concat()).ok().out;
        let about_job = out.split("\n\nlook at it with").next().unwrap_or_default().trim_end();
        about_job.lines().filter(|line| !line.starts_with("age ")).collect::<Vec<_>>().join("\n")
    };
    commands.iter().map(said).collect()
}

/// The same commands, in words and as JSON.
fn both_forms<'a>(commands: &[&[&'a str]]) -> Vec<Vec<&'a str>> {
    let json = commands.iter().map(|command| [*command, &["--json"]].concat());
    commands.iter().map(|command| command.to_vec()).chain(json).collect()
}

/// Exports a job while nothing about it changes, and gives what the engine says of it.
fn export(job: &str, file: &Path, commands: &[Vec<&str>], state_dir: &[&str]) -> Vec<String> {
    let words = ["export", job, file.to_str().unwrap(), "--force"];
    let mut online = Vec::new();
    wait_until("a job that stays as it is", || {
        online = told(commands, state_dir);
        syncline(&[&words, state_dir].concat()).ok();
        told(commands, state_dir) == online
    });
    online
}

#[test]
fn a_training_is_read_from_its_file_as_the_engine_told_it() {
    let (dir, page) = (folder(), Page::read());
    let up = Up::start(&dir, &["--workers", "2"]);
    let state_dir = ["--state-dir", dir.path().to_str().unwrap()];
    write_job(dir.path(), 5);
    let job_file = dir.path().join("points.toml");
    syncline(&[&["submit", job_file.to_str().unwrap(), "--watch"], &state_dir[..]].concat()).ok();
    let status = syncline(&[&["status", "points", "--json"], &state_dir[..]].concat()).ok().json();
    let barrier = (status["job"]["barriers"].as_u64().unwrap() - 1).to_string();
    let closed = format!("barrier/{barrier}");
    let worker = &status["workers"][0];
    let iteration = format!("it/{}/{}", worker["id"].as_str().unwrap(), worker["granted"]);
    let events = syncline(&[&["events", "points", "--json"], &state_dir[..]].concat()).ok().json();
    let cursor = events[1]["cursor"].as_str().unwrap();
    let commands = both_forms(&[
        &["status", "points"],
        &["events", "points"],
        &["events", "points", "--after", cursor],
        &["metrics", "points"],
        &["metrics", "points", "--evaluations"],
        &["explain", "points", "weights"],
        &["explain", "points", &closed],
        &["explain", "points", &iteration],
        &["explain", "points", "--barrier", &barrier],
    ]);
    let file = dir.path().join("points.export");
    let name = file.to_str().unwrap();
    let online = export("points", &file, &commands, &state_dir);

    syncline(&[&["export", "points", name], &state_dir[..]].concat()).refused(2, "E536");
    page.holds(
        "export",
        &syncline(&[&["export", "points", name, "--force", "--json"], &state_dir[..]].concat()),
    );
    let piped = syncline(&[&["export", "points", "-"], &state_dir[..]].concat()).ok();
    assert_eq!(piped.out.lines().count(), fs::read_to_string(&file).unwrap().lines().count());
    assert!(piped.err.starts_with("points (") && !Path::new("-").exists(), "{}", piped.err);
    let read = dir.path().join("piped.export");
    fs::write(&read, &piped.out).unwrap();
    assert_eq!(told(&commands, &["--from", read.to_str().unwrap()]), online);
    let both = syncline(&[&["export", "points", "-", "--json"], &state_dir[..]].concat());
    assert!(both.code == 2 && both.err.contains(r#""code":"E509""#), "{both:#?}");
    let asks_engine = [vec!["export", "points", "-"], vec!["jobs"], vec!["jobs", "--json"], vec!["workers"]];
    for words in commands.iter().chain(&asks_engine) {
        let full = on_full_disk(&[words, &state_dir[..]].concat());
        assert!(
            full.code == 5 && full.err.contains("E510") && full.err.contains("cannot write to stdout"),
            "{words:?}: {full:#?}"
        );
        assert!(full.err.contains("No space left on device"), "{words:?}: {full:#?}");
    }
    for words in [&["--version"][..], &["jobs", "--help"], &["completions", "bash"]] {
        on_full_disk(words).refused(5, "E510");
    }
    let nobodys = dir.path().join("nobody.export");
    syncline(&[&["export", "nobody", nobodys.to_str().unwrap()], &state_dir[..]].concat()).refused(1, "E131");
    let nowhere = dir.path().join("no-folder/points");
    syncline(&[&["export", "points", nowhere.to_str().unwrap()], &state_dir[..]].concat()).refused(2, "E537");
    drop(up);
    assert!(!nobodys.exists(), "a refusal leaves nothing behind");

    let from = ["--from", name];
    assert_eq!(told(&commands, &from), online);
    let asked = |words: &[&str]| syncline(&[words, &from].concat());
    assert!(asked(&["status", "points"]).ok().out.contains("\nage "));
    let left_out = [&["status"][..], &["events", "--json"], &["explain", "--barrier", &barrier]];
    let named = [
        &["status", "points"][..],
        &["events", "points", "--json"],
        &["explain", "points", "--barrier", &barrier],
    ];
    assert_eq!(left_out.map(|words| asked(words).ok().out), named.map(|words| asked(words).ok().out));
    assert!(asked(&["explain", "weights"]).refused(2, "E534").err.contains("in front of a task"));
    asked(&["status", "other"]).refused(2, "E534");
    asked(&["explain", "points", "it/w9999/1"]).refused(1, "E535");
    asked(&["explain", "points", "--barrier", "9999"]).refused(1, "E535");
    asked(&["tasks", "points"]).refused(1, "E535");
    asked(&["events", "points", "--follow"]).refused(2, "E500");
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let cut = asked(&["status", "points", "--json"]);
    assert!(cut.code == 2 && cut.err.contains(r#""code":"E533""#), "{cut:#?}");
    fs::write(&file, "id = \"points\"\n").unwrap();
    asked(&["status", "points"]).refused(2, "E531");
    fs::remove_file(&file).unwrap();
    asked(&["status", "points"]).refused(2, "E530");
}

#[test]
fn a_graph_that_runs_is_read_from_its_file_as_the_engine_told_it() {
    let dir = folder();
    let up = Up::start(&dir, &["--workers", "1", "--shards", "1"]);
    let state_dir = ["--state-dir", dir.path().to_str().unwrap()];
    let Cluster { engines, token } = Cluster::load(None, None, Some(dir.path())).unwrap();
    let mut graph = TaskGraph::new("wide");
    let calls = graph.map(NOBODYS, (0..WIDTH).map(|n| (n,)));
    graph.call_with(&CallOptions::new().name("last"), NOBODYS, (calls[0],));
    Runtime::new().unwrap().block_on(Client::new(engines, token).submit_tasks(&graph)).unwrap();
    let commands = both_forms(&[
        &["status", "wide"],
        &["events", "wide"],
        &["tasks", "wide"],
        &["tasks", "wide", "--first", "4990", "--limit", "20"],
        &["tasks", "wide", "--state", "waiting"],
        &["tasks", "wide", "--state", "done"],
        &["tasks", "wide", "9999"],
        &["tasks", "wide", "last"],
        &["explain", "wide", "0"],
        &["explain", "wide", "last"],
    ]);
    let file = dir.path().join("wide.export");
    let online = export("wide", &file, &commands, &state_dir);
    let again =
        syncline(&[&["export", "wide", file.to_str().unwrap(), "--force"], &state_dir[..]].concat()).ok();
    assert!(again.out.starts_with("wide (running), ") && again.out.contains("10001 tasks"), "{again:#?}");
    let most = syncline(&[&["tasks", "wide", "--limit", "10000"], &state_dir[..]].concat()).ok();
    assert!(most.err.contains("--first 10000 goes on"), "{}", most.err);
    drop(up);

    let from = ["--from", file.to_str().unwrap()];
    assert_eq!(told(&commands, &from), online);
    let asked = |words: &[&str]| syncline(&[words, &from].concat());
    assert!(asked(&["tasks", "wide"]).ok().err.contains("--first 100 goes on"));
    assert_eq!(asked(&["tasks"]).ok().out, asked(&["tasks", "wide"]).ok().out);
    asked(&["tasks", "wide", "10001"]).refused(1, "E535");
    asked(&["explain", "wide", "nobody"]).refused(1, "E535");
    assert!(asked(&["metrics", "wide"]).refused(2, "E575").err.contains("job wide "));
    asked(&["explain", "wide", "--barrier", "1"]).refused(1, "E535");
}

/// As while somebody submits it again: nothing of the second job goes into the file of the first.
#[test]
fn a_job_that_is_replaced_while_it_is_exported_is_not_mixed_with_the_other_one() {
    let dir = folder();
    let _up = Up::start(&dir, &["--workers", "0", "--shards", "1"]);
    let Cluster { engines, token } = Cluster::load(None, None, Some(dir.path())).unwrap();
    let client = Client::new(engines, token);
    let (runtime, id) = (Runtime::new().unwrap(), "wide".parse().unwrap());
    let graph = |first: u64| {
        let mut graph = TaskGraph::new("wide");
        graph.map(NOBODYS, (first..first + WIDTH).map(|n| (n,)));
        graph
    };
    runtime.block_on(client.submit_tasks(&graph(0))).unwrap();
    // What is read of it is written as far as the pipe takes it, which is less than the first tasks.
    let words = ["export", "wide", "-", "--state-dir", dir.path().to_str().unwrap()];
    let mut export = Killed::start(command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()));
    let mut lines = BufReader::new(export.stdout.take().unwrap()).lines();
    assert!(lines.by_ref().map(Result::unwrap).any(|line| line.starts_with("{\"task\":")));
    runtime.block_on(async {
        client.cancel(&id).await.unwrap();
        client.wait(&id, |_| ()).await.unwrap_err();
        client.replace_tasks(&graph(1)).await.unwrap();
    });
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(rest.len() < WIDTH as usize, "the tasks of the second job are not among them");
    export.ended().refused(1, "E650");
}
