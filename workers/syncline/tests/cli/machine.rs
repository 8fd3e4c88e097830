//! A machine that lacks something: `doctor` and whoever needs it name it, with what to do.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Write},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

use super::rig::{Ended, Killed, command, command_by, wait_until};

/// What starts a program where nothing in the folder `$1` can be executed, and no Python is found.
const NOEXEC: &str = "mount -t tmpfs -o noexec none \"$1\" && export SYNCLINE_CACHE=\"$1\" PATH=/nowhere && shift && exec \"$@\"";
/// What starts a program that may have few files and connections open.
const FEW_FILES: [&str; 4] = ["sh", "-c", "ulimit -n 64; exec \"$@\"", "sh"];
/// More connections than that, for much longer than a shard waits for each to greet.
const CALLERS: usize = 400;

fn finding<'a>(report: &'a Value, check: &str) -> Option<&'a Value> {
    report.as_array().unwrap().iter().find(|finding| finding["check"] == check)
}

fn doctor(state_dir: &Path, env: &[(&str, &Path)]) -> Value {
    let mut doctor = command(&["doctor", "--json", "--state-dir", state_dir.to_str().unwrap()]);
    doctor.envs(env.iter().copied());
    Ended::from(doctor.output().unwrap()).json()
}

#[test]
fn a_folder_for_temporary_files_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let found = |tmp: &Path| finding(&doctor(dir.path(), &[("TMPDIR", tmp)]), "temporary").unwrap().clone();
    assert_ne!(found(dir.path())["verdict"], "fail");
    let gone = found(&dir.path().join("gone"));
    assert_eq!(gone["verdict"], "fail", "{gone}");
    assert!(gone["hint"].as_str().unwrap().contains("TMPDIR"), "{gone}");
}

#[test]
fn a_folder_whose_path_is_too_long_for_sockets_is_named_with_its_length_and_another_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let long = dir.path().join("x".repeat(100));
    fs::create_dir(&long).unwrap();
    let (tmp, short) = (("TMPDIR", dir.path()), ("XDG_RUNTIME_DIR", dir.path()));
    assert_eq!(finding(&doctor(dir.path(), &[short, tmp]), "sockets"), None);
    let report = doctor(dir.path(), &[("XDG_RUNTIME_DIR", &long), tmp]);
    let found = finding(&report, "sockets").unwrap();
    assert_eq!(found["verdict"], "warn", "{found}");
    let told = found["found"].as_str().unwrap();
    assert!(told.contains(" bytes, and 107 are the most: shards listen in "), "{told}");
    assert!(found["hint"].as_str().unwrap().contains("XDG_RUNTIME_DIR"), "{found}");
}

#[test]
fn an_onnx_runtime_that_cannot_be_loaded_is_told_with_what_the_loader_says() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("libonnxruntime.so");
    File::create(&empty).unwrap();
    let report = doctor(dir.path(), &[("ORT_DYLIB_PATH", &empty)]);
    let found = finding(&report, "onnx runtime").unwrap();
    assert_eq!(found["verdict"], "fail", "{found}");
    let told = found["found"].as_str().unwrap();
    assert!(told.starts_with("[E321]") && told.contains("file too short"), "{told}");
    assert!(found["hint"].as_str().unwrap().contains("ORT_DYLIB_PATH"), "{found}");
}

#[test]
fn a_cache_that_is_mounted_noexec_is_named_before_anything_is_fetched() {
    let dir = tempfile::tempdir().unwrap();
    let (cache, state) = (dir.path().join("cache"), dir.path().join("state"));
    fs::create_dir(&cache).unwrap();
    let tried = |flags: &&str| {
        let done = Command::new("unshare").args([flags, "mount", "-t", "tmpfs", "none", "/mnt"]).output();
        done.is_ok_and(|done| done.status.success())
    };
    let Some(flags) = ["-m", "-rm"].into_iter().find(tried) else {
        // What `eprintln!` says is shown of tests that fail only.
        let text = "SKIPPED: nobody may have mounts of his own here (`unshare -rm` fails)\n";
        return io::stderr().write_all(text.as_bytes()).unwrap();
    };
    let starter = ["unshare", flags, "sh", "-c", NOEXEC, "sh", cache.to_str().unwrap()];
    let run = |args: &[&str]| {
        let args = [args, &["--state-dir", state.to_str().unwrap()]].concat();
        let mut command = command_by(&starter, &args);
        command.env_remove("ORT_DYLIB_PATH").env_remove("SYNCLINE_REDIS_SERVER");
        Ended::from(command.output().unwrap())
    };
    let report = run(&["doctor", "--json"]).json();
    for check in ["onnx runtime", "redis server"] {
        let found = finding(&report, check).unwrap();
        assert_eq!(found["verdict"], "fail", "{found}");
        assert!(found["found"].as_str().unwrap().contains("[E666]"), "{found}");
        assert!(found["hint"].as_str().unwrap().contains("SYNCLINE_CACHE"), "{found}");
    }
    run(&["up"]).refused(5, "E666");
}

#[test]
fn a_shard_without_a_descriptor_says_so_and_serves_again_when_it_has_one() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let text = || fs::read_to_string(&log).unwrap();
    let state = dir.path().to_str().unwrap();
    let args =
        ["ps", "--engine", "127.0.0.1:1", "--state-dir", state, "--listen", "127.0.0.1:0", "--shard", "0/1"];
    let mut shard = command_by(&FEW_FILES, &args);
    shard.env("SYNCLINE_LOG", "debug").stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
    let mut shard = Killed::start(&mut shard);
    let mut line = String::new();
    BufReader::new(shard.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening ").unwrap().to_owned();
    let callers: Vec<TcpStream> = (0..CALLERS).map(|_| TcpStream::connect(&address).unwrap()).collect();
    // The one that accepts, and the one that calls the engine.
    for whose in ["callers wait until a connection ends", "still waiting"] {
        let told = |line: &str| line.contains(whose) && line.contains("[E665]");
        wait_until(whose, || text().lines().any(told));
        let line = text().lines().find(|line| told(line)).unwrap().to_owned();
        assert!(line.contains("this process may have 64 open") && !line.contains("[E426]"), "{line}");
    }
    drop(callers);
    // A greeting of another program is refused as such, which takes a connection.
    wait_until("it serves again", || {
        let mut caller = TcpStream::connect(&address).unwrap();
        let _ = caller.write_all(&[b'x'; 512]);
        text().contains("caller refused")
    });
}
