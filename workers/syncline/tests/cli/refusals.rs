//! Exit codes, error codes and hints.

use std::{
    fs, io,
    net::TcpListener,
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use serde_json::Value;
use syncline_engine::store::keys::SCHEMA;
use syncline_rpc::hello::PROTOCOL_VERSION;
use tempfile::TempDir;

use crate::rig::{Ended, Up, command, folder, syncline};

/// An address at which nobody listens.
fn nobody() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn help_lists_every_command_in_the_order_in_which_a_person_meets_them() {
    let help = syncline(&["--help"]).ok().out;
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let commands = commands.split("\n\n").next().unwrap().lines();
    let names: Vec<&str> = commands
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .map(|line| line.split_whitespace().next().unwrap())
        .filter(|name| *name != "help")
        .collect();
    #[rustfmt::skip]
    let met = [
        "up", "submit", "sweep", "jobs", "status", "watch", "metrics", "predict", "model", "explain", "events", "tasks",
        "dashboard", "pause", "resume", "cancel", "delete", "export", "checkpoint", "workers", "doctor", "gc",
        "simulate", "plan", "bench", "chaos", "engine", "ps", "worker", "completions",
    ];
    assert_eq!(names, met, "{help}");
    met.iter().for_each(|name| drop(syncline(&[name, "--help"]).ok()));
}

#[test]
fn a_shell_is_told_the_commands_and_their_options() {
    for shell in ["bash", "zsh", "fish"] {
        let script = syncline(&["completions", shell]).ok().out;
        assert!(script.contains("checkpoint") && script.contains("dry-run"), "{script}");
        assert!(!script.contains("chaos-worker") && !script.contains("bench-worker"), "{script}");
    }
}

#[test]
fn an_empty_variable_counts_as_not_set() {
    let dir = folder();
    let names = ["ENGINE", "TOKEN_FILE", "STATE_DIR", "REDIS", "TRANSPORT"];
    let empty = names.map(|name| (format!("SYNCLINE_{name}"), ""));
    for (line, exit, code) in [("jobs", 3, "E511"), ("up --listen 0.0.0.0:0", 2, "E501")] {
        let mut command = command(&line.split(' ').collect::<Vec<_>>());
        command.envs(empty.clone()).env("XDG_STATE_HOME", dir.path());
        Ended::from(command.output().unwrap()).refused(exit, code);
    }
}

#[test]
fn mistakes_at_the_keyboard_are_usage_errors() {
    let dir = folder();
    let state_dir = dir.path().to_str().unwrap();
    syncline(&["fly"]).refused(2, "E500");
    syncline(&["status"]).refused(2, "E500");
    syncline(&["status", "No Such Name"]).refused(2, "E001");
    syncline(&["up", "--state-dir", state_dir, "--workers", "2", "--slowdown", "1"]).refused(2, "E509");
    for service in [&["engine", "--redis", "redis://127.0.0.1:1/"][..], &["up"]] {
        let mut args = service.to_vec();
        args.extend(["--state-dir", state_dir, "--listen", "0.0.0.0:0"]);
        syncline(&args).refused(2, "E501");
    }
    syncline(&["ps", "--state-dir", state_dir, "--listen", "0.0.0.0:0"]).refused(2, "E418");
    for command in ["worker", "up", "doctor"] {
        syncline(&[command, "--state-dir", state_dir, "--device", "gpu"]).refused(2, "E490");
    }
    syncline(&["up", "--state-dir", state_dir, "--workers", "3", "--device", "cpu,cpu"]).refused(2, "E509");
    let engine = ["--engine", "nonsense"];
    for command in [&["worker"][..], &["ps"], &["jobs"], &["status", "a"], &["doctor"], &["submit", "a.toml"]]
    {
        syncline(&[command, &["--state-dir", state_dir], &engine].concat()).refused(2, "E127");
    }
    for wrong in ["a:1,b", "a:1,", "http://a:1", "a:0"] {
        syncline(&["jobs", "--state-dir", state_dir, "--engine", wrong]).refused(2, "E127");
    }
    let nothing = [
        &["chaos", "--minutes", "0"][..],
        &["chaos", "--every", "0ms"],
        &["worker", "--memory", "0B"],
        &["worker", "--gpu-memory", "0B"],
        &["worker", "--gpu-memory", "8GiB"],
        &["up", "--gpu-memory", "8GiB"],
    ];
    for args in nothing {
        syncline(args).refused(2, "E509");
    }
    let named = command(&["jobs", "--state-dir", state_dir]).env("SYNCLINE_ENGINE", "nonsense").output();
    Ended::from(named.unwrap()).refused(2, "E127");
    for few in [["--threads", "1"].as_slice(), &["--threads", "2", "--device", "cuda:0"]] {
        let args = ["worker", "--state-dir", state_dir, "--split-batch"];
        syncline(&[&args, few].concat()).refused(2, "E509");
    }
}

#[test]
fn a_folder_that_is_typed_names_the_cluster_whatever_the_environment_says() {
    let dir = folder();
    let state_dir = dir.path().to_str().unwrap();
    let jobs = |args: &[&str]| {
        let mut jobs = command(&[&["jobs", "--state-dir", state_dir], args].concat());
        jobs.env("SYNCLINE_ENGINE", "127.0.0.1:1").env("SYNCLINE_TOKEN_FILE", "no-such-token");
        Ended::from(jobs.output().unwrap())
    };
    jobs(&[]).refused(3, "E511");
    let told = jobs(&["--engine", "127.0.0.1:1"]).refused(2, "E505").err;
    assert!(
        told.contains("no-such-token"),
        "an engine that is typed leaves the token of the environment: {told}"
    );
}

#[test]
fn usage_is_that_of_the_command_whatever_the_environment_says() {
    for (words, usage) in [
        (&["status"][..], "syncline status [OPTIONS] [JOB]"),
        (&["jobs", "--nope"], "syncline jobs [OPTIONS]"),
        (&["worker", "--state-dirs", "d"], "syncline worker [OPTIONS]"),
        (&["model", "show"], "syncline model show [OPTIONS] <FILE>"),
        (&["nope"], "syncline <COMMAND>"),
    ] {
        let ended =
            command(words).env("SYNCLINE_STATE_DIR", "d").env("SYNCLINE_ENGINE", "a:1").output().unwrap();
        let said = Ended::from(ended).refused(2, "E500").err;
        assert!(said.contains(&format!("\nUsage: {usage}\n")), "{said}");
    }
}

#[test]
fn the_long_version_says_what_the_binary_speaks_and_the_short_one_is_a_line() {
    let short = syncline(&["-V"]).ok().out;
    assert_eq!(short, format!("syncline {}\n", env!("CARGO_PKG_VERSION")));
    let speaks = format!("protocol     {PROTOCOL_VERSION}\nredis schema {SCHEMA}\n");
    assert_eq!(syncline(&["--version"]).ok().out, short + &speaks);
}

#[test]
fn what_is_no_number_is_refused_with_the_unit_and_an_example() {
    #[rustfmt::skip]
    let cases = [
        (&["simulate", "--jitter", "5%"][..],                 "a share of the interval, such as 0.05 for 5 %"),
        (&["simulate", "--network-ms", "20ms"],               "milliseconds, such as 20 or 0.5"),
        (&["simulate", "--duration-s", "10m"],                "seconds, such as 600 or 0.5"),
        (&["chaos", "--minutes", "1m"],                       "minutes, such as 1, or 0.5 for half a minute"),
        (&["up", "--step-ms", "10ms"],                        "whole milliseconds, such as 10"),
        (&["worker", "--step-ms", "0.5"],                     "whole milliseconds, such as 10"),
        (&["worker", "--slowdown", "2x"],                     "a factor, such as 2.5"),
        (&["engine", "--redis", "u", "--silence", "500ms"],   "a time from 3s, such as 30s or 5m; a number alone is milliseconds"),
        (&["up", "--shard-silence", "2999"],                  "a time from 3s, such as 30s or 5m; a number alone is milliseconds"),
        (&["gc", "--older-than", "soon"],                     "a time, such as 500ms, 30s or 5m; a number alone is seconds"),
    ];
    for (args, expected) in cases {
        let said = syncline(args).refused(2, "E500").err;
        assert!(said.contains(&format!(": expected {expected}\n")), "{args:?}: {said}");
    }
}

#[test]
fn a_command_line_without_a_command_shows_what_there_is() {
    for (args, shown) in [(&[][..], "Usage: syncline"), (&["model"], "Usage: syncline model")] {
        let ended = syncline(args);
        assert_eq!((ended.code, ended.out.as_str()), (2, ""));
        assert!(ended.err.contains(shown) && !ended.err.contains("error"), "{ended:#?}");
    }
}

#[test]
fn with_json_an_error_is_one_json_object_in_the_last_line_of_stderr() {
    let dir = folder();
    let state_dir = dir.path().to_str().unwrap();
    for (args, exit, code) in [
        (&["jobs", "--json", "--state-dir", state_dir][..], 3, "E511"),
        (&["fly", "--json"], 2, "E500"),
        (&["status", "No Such Name", "--json"], 2, "E001"),
        (&["model", "show", "/no/such", "--json"], 2, "E360"),
    ] {
        let ended = syncline(args);
        assert_eq!((ended.code, ended.out.as_str()), (exit, ""), "{ended:#?}");
        let error: Value = serde_json::from_str(ended.err.lines().last().unwrap()).unwrap();
        let keys: Vec<&String> = error.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["code", "hint", "message"]);
        assert_eq!(error["code"], code);
        assert!(error["message"].as_str().is_some_and(|m| !m.is_empty() && !m.starts_with('[')), "{error}");
        assert!(error["hint"].as_str().is_some_and(|hint| !hint.is_empty()), "{error}");
    }
}

#[test]
fn what_is_no_file_is_refused_at_once_by_what_it_is() {
    let dir = folder();
    let pipe = dir.path().join("pipe.onnx");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let since = Instant::now();
    for (path, what) in
        [(dir.path(), "a folder"), (pipe.as_path(), "a pipe"), (Path::new("/dev/zero"), "a device")]
    {
        let path = path.to_str().unwrap();
        for args in [
            &["submit", path][..],
            &["model", "show", path],
            &["model", "train-graph", path, "--loss", "mse", "--out", "/dev/null"],
            &["simulate", "--scenario", path],
        ] {
            let ended = syncline(args);
            assert_eq!(ended.code, 2, "{args:?}: {ended:#?}");
            assert!(ended.err.contains(&format!("it is {what}, not a file")), "{args:?}: {ended:#?}");
        }
    }
    assert!(since.elapsed().as_secs() < 30, "took {:?}", since.elapsed());
}

/// No machine has so many GPUs; which of them it lacks first depends on the machine.
#[test]
fn a_gpu_that_is_not_there_is_said_at_once() {
    let dir = folder();
    let state_dir = dir.path().to_str().unwrap();
    let nobody = nobody();
    let token = dir.path().join("token");
    fs::write(&token, "5a".repeat(32)).unwrap();
    let worker = ["worker", "--engine", &nobody, "--token-file", token.to_str().unwrap()];
    let up = ["up", "--state-dir", state_dir, "--workers", "1", "--listen", "127.0.0.1:0"];
    for command in [&worker[..], &up] {
        let ended = syncline(&[command, &["--device", "cuda:255"]].concat());
        assert_eq!(ended.code, 5, "{}", ended.err);
        let refused = ["[E491] cuda:255 ", "[E492] cuda:255 ", "[E494] cannot compute on cuda:255"];
        assert!(refused.iter().any(|text| ended.err.contains(text)), "{}", ended.err);
        assert!(ended.err.contains("hint: "), "{}", ended.err);
    }
}

#[test]
fn a_bad_job_file_is_named_with_what_is_wrong() {
    let dir = folder();
    let file = dir.path().join("job.toml");
    fs::write(&file, "id = 'a'\nnod = 1").unwrap();
    let said = syncline(&["submit", file.to_str().unwrap()]).refused(2, "E361").err;
    assert!(said.contains("unknown field `nod`"), "{said}");
    syncline(&["submit", "/no/such/job.toml"]).refused(2, "E360");
    let model = dir.path().join("model.onnx");
    fs::write(&model, [8, 0xc8]).unwrap();
    let refused = syncline(&["submit", model.to_str().unwrap()]).refused(2, "E360");
    assert!(refused.err.contains("hint: name a job file"), "{refused:#?}");
}

#[test]
fn a_damaged_model_or_snapshot_is_refused() {
    let dir = folder();
    for (name, code) in [("a.onnx", "E302"), ("a.safetensors", "E380")] {
        let file = dir.path().join(name);
        fs::write(&file, "this is neither").unwrap();
        syncline(&["model", "show", file.to_str().unwrap()]).refused(2, code);
    }
}

#[test]
fn an_engine_that_is_not_there_is_said_at_once() {
    let dir = folder();
    let state_dir = dir.path().to_str().unwrap();
    syncline(&["jobs", "--state-dir", state_dir]).refused(3, "E511");
    fs::write(dir.path().join("token"), "0".repeat(64)).unwrap();
    let since = Instant::now();
    for args in [&["jobs"][..], &["status", "a"], &["watch", "a"], &["cancel", "a"]] {
        let mut args = args.to_vec();
        let address = nobody();
        args.extend(["--state-dir", state_dir, "--engine", &address]);
        syncline(&args).refused(3, "E300");
    }
    assert!(since.elapsed().as_secs() < 15, "took {:?}", since.elapsed());
    fs::write(dir.path().join("token"), "secret").unwrap();
    let damaged = syncline(&["jobs", "--state-dir", state_dir, "--engine", &nobody()]).refused(2, "E505");
    assert!(damaged.err.contains("[E120]") && !damaged.err.contains("secret"), "{}", damaged.err);
}

/// Two engines that greet nobody, with what the command line says of them.
fn mute_engines(dir: &TempDir) -> ([TcpListener; 2], [String; 4]) {
    fs::write(dir.path().join("token"), "0".repeat(64)).unwrap();
    let engines = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let addresses = engines.each_ref().map(|engine| engine.local_addr().unwrap().to_string());
    let state_dir = dir.path().to_str().unwrap().to_owned();
    (engines, ["--state-dir".to_owned(), state_dir, "--engine".to_owned(), addresses.join(",")])
}

#[test]
fn of_several_engines_of_which_none_answers_each_is_asked_once() {
    let dir = folder();
    let (engines, named) = mute_engines(&dir);
    let jobs = command(&["jobs"]).args(named).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    for engine in &engines {
        drop(engine.accept().unwrap());
    }
    Ended::from(jobs.wait_with_output().unwrap()).refused(3, "E300");
    for engine in engines {
        engine.set_nonblocking(true).unwrap();
        assert_eq!(engine.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}

#[test]
fn doctor_asks_all_engines_side_by_side() {
    let dir = folder();
    let (engines, named) = mute_engines(&dir);
    let doctor = command(&["doctor"]).args(named).stderr(Stdio::null()).stdout(Stdio::null()).spawn();
    let mut callers = engines.each_ref().map(|engine| engine.accept().unwrap().0);
    callers[0].set_nonblocking(true).unwrap();
    let heard = io::copy(&mut callers[0], &mut io::sink());
    assert_eq!(heard.unwrap_err().kind(), io::ErrorKind::WouldBlock, "the first one is still waited for");
    drop(callers);
    assert_eq!(doctor.unwrap().wait().unwrap().code(), Some(3));
}

#[test]
fn an_engine_without_redis_does_not_start() {
    let dir = folder();
    let url = format!("redis://:hidden@{}/", nobody());
    let state_dir = dir.path().to_str().unwrap();
    let args = ["engine", "--state-dir", state_dir, "--listen", "127.0.0.1:0", "--redis", &url];
    let ended = syncline(&[&args[..], &["--redis-wait-s", "0"]].concat()).refused(4, "E201");
    assert!(!ended.err.contains("hidden"), "{}", ended.err);
}

#[test]
fn what_the_engine_refuses_comes_with_its_code() {
    let dir = folder();
    let up = Up::start(&dir, &["--workers", "1", "--shards", "1"]);
    let state_dir = dir.path().to_str().unwrap();
    let unknown = syncline(&["status", "nope", "--state-dir", state_dir]).refused(1, "E131");
    assert!(unknown.err.contains("hint: `syncline jobs`"), "{}", unknown.err);
    syncline(&["watch", "nope", "--state-dir", state_dir]).refused(1, "E131");
    syncline(&["cancel", "nope", "--state-dir", state_dir]).refused(1, "E131");

    let other = folder();
    let wrong = other.path().join("token");
    fs::write(&wrong, "f".repeat(64)).unwrap();
    let (engine, wrong) = (up.about["engine"].as_str().unwrap(), wrong.to_str().unwrap());
    syncline(&["jobs", "--engine", engine, "--token-file", wrong]).refused(3, "E123");
    syncline(&["worker", "--threads", "1", "--engine", engine, "--token-file", wrong]).refused(3, "E123");

    let taken = syncline(&[
        "engine",
        "--state-dir",
        state_dir,
        "--listen",
        engine,
        "--redis",
        "redis://127.0.0.1:1/",
    ]);
    taken.refused(2, "E240");
}

#[test]
fn a_reader_that_went_away_is_no_failure() {
    let dir = folder();
    let _up = Up::start(&dir, &["--workers", "1", "--shards", "1"]);
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let state_dir = dir.path().to_str().unwrap();
    let status = command(&["jobs", "--json", "--state-dir", state_dir]).stdout(writer).status().unwrap();
    assert!(status.success());
}
