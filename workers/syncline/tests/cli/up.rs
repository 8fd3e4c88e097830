//! `syncline up`: one cluster at a time, restarts, and nothing that outlives it.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    job::write_job,
    rig::{Killed, Up, command, folder, kill, processes, runs, syncline, wait_until},
};

const SMALL: &[&str] = &["--workers", "2", "--shards", "2"];

#[test]
fn it_says_where_everything_is() {
    let dir = folder();
    let state_dir = dir.path().to_str().unwrap();
    let mut up = command(&["up", "--state-dir", state_dir, "--listen", "127.0.0.1:0", "--workers", "1"]);
    up.stdout(fs::File::create(dir.path().join("said")).unwrap()).stderr(Stdio::null());
    let mut child = Killed::start(&mut up);
    let said = || fs::read_to_string(dir.path().join("said")).unwrap();
    wait_until("it is ready", || said().contains("\nnext "));
    for line in [
        "engine      127.0.0.1:",
        "token file  ",
        "redis       redis://127.0.0.1:",
        "redis-cli   REDISCLI_AUTH=$(cat '",
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
    let state_dir = dir.path().to_str().unwrap();
    syncline(&["up", "--state-dir", state_dir, "--listen", "127.0.0.1:0"]).refused(2, "E503");
}

/// First lines of the answers to inline commands.
fn ask_redis(port: u16, commands: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(commands.as_bytes()).unwrap();
    let mut said = [0; 256];
    let n = stream.read(&mut said).unwrap();
    String::from_utf8_lossy(&said[..n]).into_owned()
}

#[test]
fn its_redis_server_talks_to_nobody_without_the_password_which_shows_nowhere() {
    let dir = folder();
    let state = dir.path().join("state");
    fs::create_dir(&state).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).unwrap();
    let up = Up::start_in(&state, SMALL);
    let file = Path::new(up.about["redis_password_file"].as_str().unwrap());
    let password = fs::read_to_string(file).unwrap();
    let port = up.about["redis"].as_str().unwrap().trim_end_matches('/').rsplit_once(':').unwrap().1;
    let port = port.parse().unwrap();
    assert!(ask_redis(port, "ZRANGE syncline:jobs 0 -1\r\n").starts_with("-NOAUTH"));
    assert!(ask_redis(port, &format!("AUTH {password}\r\n")).starts_with("+OK"));

    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for inside in ["redis", "logs", "shard-0", "shard-1"] {
        assert_eq!(mode(&state.join(inside)), 0o700, "{inside}");
    }
    assert_eq!(mode(file), 0o600);
    for (name, pid) in processes(&state) {
        let arguments = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(!arguments.contains(&password), "{name}: {arguments}");
    }
    let state_dir = state.to_str().unwrap();
    let doctor = syncline(&["doctor", "--state-dir", state_dir]).ok();
    assert!(doctor.out.contains("appendonly    yes"), "doctor has the password: {doctor:#?}");
    let logs = fs::read_dir(state.join("logs")).unwrap().map(|log| fs::read_to_string(log.unwrap().path()));
    let shown = logs.map(Result::unwrap).chain([up.about.to_string(), up.said(), doctor.out, doctor.err]);
    for text in shown {
        assert!(!text.contains(&password), "{text}");
    }

    // The line for people hands the password to `redis-cli` in its environment.
    let tool = dir.path().join("redis-cli");
    fs::write(&tool, "#!/bin/sh\necho \"$REDISCLI_AUTH $*\"").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let line = format!("REDISCLI_AUTH=$(cat '{}') redis-cli -p {port}", file.display());
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let said = Command::new("sh").args(["-c", &line]).env("PATH", path).output().unwrap();
    assert_eq!(String::from_utf8(said.stdout).unwrap().trim(), format!("{password} -p {port}"));
}

#[test]
fn its_redis_server_has_another_password_after_each_start_and_the_same_engine_goes_on() {
    let dir = folder();
    let up = Up::start(&dir, SMALL);
    let pid = |name| processes(dir.path()).into_iter().find(|(running, _)| *running == name).unwrap().1;
    let (before, engine) = (up.redis_password(), pid("engine"));
    kill("KILL", pid("redis"));
    wait_until("it has another password", || up.redis_password() != before);
    assert!(up.redis_as(&before, "PING").starts_with("-WRONGPASS"));
    assert!(up.redis("PING").contains("+PONG"));
    let state_dir = dir.path().to_str().unwrap();
    wait_until("all is well", || syncline(&["doctor", "--state-dir", state_dir]).code == 0);
    assert_eq!(pid("engine"), engine);
}

#[test]
fn an_engine_says_at_its_start_that_redis_may_lose_jobs_and_doctor_says_the_same() {
    let dir = folder();
    let up = Up::start(&dir, SMALL);
    let log = || fs::read_to_string(dir.path().join("logs/engine.log")).unwrap();
    assert!(!log().contains("[E660]"), "the server of `up` loses nothing");
    for setting in ["maxmemory 1gb", "maxmemory-policy allkeys-lru"] {
        assert!(up.redis(&format!("CONFIG SET {setting}")).contains("+OK"));
    }
    let engine = processes(dir.path()).into_iter().find(|(name, _)| *name == "engine").unwrap().1;
    kill("KILL", engine);
    wait_until("the next one says so", || {
        log().contains("[E660]") && log().contains("maxmemory-policy noeviction")
    });
    let doctor = syncline(&["doctor", "--state-dir", dir.path().to_str().unwrap()]).out;
    assert!(doctor.contains("warn  eviction      [E660] redis may lose jobs"), "{doctor}");
}

#[test]
fn a_state_directory_into_which_others_may_write_is_refused_and_stays_as_it_is() {
    let dir = folder();
    let state = dir.path().join("state");
    fs::create_dir(&state).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o1777)).unwrap();
    for command in ["up", "engine", "ps"] {
        let mut args = vec![command, "--state-dir", state.to_str().unwrap(), "--listen", "127.0.0.1:0"];
        args.extend(match command {
            "up" => &[][..],
            "engine" => &["--redis", "redis://127.0.0.1:1/"],
            _ => &["--engine", "127.0.0.1:1", "--shard", "0/1"],
        });
        let refused = syncline(&args);
        assert!(refused.code != 0 && refused.err.contains("[E129]"), "{command}: {refused:#?}");
    }
    assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o7777, 0o1777);
    assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
}

#[test]
fn a_refused_token_is_in_the_log_with_its_sender_and_only_once_in_a_while() {
    let dir = folder();
    let up = Up::start(&dir, SMALL);
    let wrong = dir.path().join("wrong");
    let token = "ab".repeat(32);
    fs::write(&wrong, &token).unwrap();
    let engine = up.about["engine"].as_str().unwrap();
    for _ in 0..3 {
        syncline(&["jobs", "--engine", engine, "--token-file", wrong.to_str().unwrap()]).refused(3, "E123");
    }
    let log = || fs::read_to_string(dir.path().join("logs/engine.log")).unwrap();
    wait_until("it is in the log", || log().contains("caller refused"));
    let log = log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("caller refused")).collect();
    // One line for all of them, unless the commands took longer than the log waits.
    assert!(lines.len() < 3, "{log}");
    for part in ["WARN", "peer=127.0.0.1:", "[E123]"] {
        assert!(lines[0].contains(part), "{part} is not in {}", lines[0]);
    }
    assert!(!log.contains(&token));
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
fn a_second_stop_kills_the_children_that_cannot_end() {
    let dir = folder();
    let mut up = Up::start(&dir, SMALL);
    let all = processes(dir.path());
    let of = |name: &str| all.iter().find(|(other, _)| other == name).unwrap().1;
    kill("STOP", of("ps-0"));
    kill("TERM", up.pid());
    wait_until("the engine has ended", || !runs(of("engine")));
    assert!(runs(of("ps-0")));
    kill("TERM", up.pid());
    assert_eq!(up.wait().code(), Some(130), "{}", up.said());
    let left: Vec<_> = all.iter().filter(|(_, pid)| runs(*pid)).collect();
    assert!(left.is_empty(), "still there: {left:?}");
}

#[test]
fn nothing_outlives_a_killed_one_and_its_successor_takes_the_same_ports() {
    let dir = folder();
    let mut first = Up::start(&dir, &[SMALL, &["--engines", "2"]].concat());
    let all = processes(dir.path());
    assert!(all.iter().any(|(name, _)| name == "engine-b"), "{all:?}");
    kill("KILL", first.pid());
    first.wait();
    wait_until("all children have ended", || all.iter().all(|(_, pid)| !runs(*pid)));

    let token = fs::read_to_string(dir.path().join("token")).unwrap();
    let second = Up::start(&dir, SMALL);
    for same in ["engine", "second_engine", "redis", "token_file"] {
        assert_eq!(first.about[same], second.about[same]);
    }
    let state_dir = dir.path().to_str().unwrap();
    let doctor = syncline(&["doctor", "--state-dir", state_dir]).ok();
    for part in ["it leads", "on standby"] {
        assert_eq!(doctor.out.matches(part).count(), 1, "{part}: {doctor:#?}");
    }
    assert_eq!(token, fs::read_to_string(dir.path().join("token")).unwrap());
}

#[test]
fn a_job_does_not_wait_for_workers_that_were_killed_with_their_engine() {
    let dir = folder();
    let mut first = Up::start(&dir, &[SMALL, &["--step-ms", "20"]].concat());
    write_job(dir.path(), 100_000);
    let (file, state_dir) = (dir.path().join("points.toml"), dir.path().to_str().unwrap().to_owned());
    let at = |args: &[&str]| syncline(&[args, &["--state-dir", &state_dir]].concat());
    at(&["submit", file.to_str().unwrap()]).ok();
    wait_until("it trains", || {
        at(&["status", "points", "--json"]).ok().json()["job"]["iterations_done"].as_u64() > Some(0)
    });
    // Whoever starts them again stands still, and nobody takes leave.
    kill("STOP", first.pid());
    let all = processes(dir.path());
    let is_killed = |name: &str| name == "engine" || name.starts_with("worker-");
    all.iter().filter(|(name, _)| is_killed(name)).for_each(|(_, pid)| kill("KILL", *pid));
    kill("KILL", first.pid());
    first.wait();
    wait_until("all children have ended", || all.iter().all(|(_, pid)| !runs(*pid)));
    let _second = Up::start(&dir, SMALL);
    wait_until("the worker of before is given up", || {
        let events = at(&["events", "points"]).ok().out;
        events.lines().any(|event| event.contains("has ended, and worker-0 is process"))
    });
}

#[test]
fn a_token_file_that_everybody_may_read_is_warned_of_and_an_empty_one_stays_as_it_is() {
    let (dir, token) = (folder(), "0123456789abcdef".repeat(4));
    let file = dir.path().join("secret");
    fs::write(&file, &token).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let up = Up::start(&dir, &[SMALL, &["--token-file", file.to_str().unwrap()]].concat());
    let mended_by = format!("chmod 600 {}", file.display());
    assert_eq!(up.said().matches(&mended_by).count(), 1, "{}", up.said());
    assert!(!up.said().contains(&token));
    drop(up);
    let empty = dir.path().join("token");
    fs::write(&empty, "").unwrap();
    let refused = syncline(&["up", "--state-dir", dir.path().to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    assert!(refused.refused(2, "E505").err.contains("copy it from a machine that has it"));
    assert_eq!(fs::read_to_string(empty).unwrap(), "");
}

#[test]
fn a_dead_child_is_started_again() {
    let dir = folder();
    let up = Up::start(&dir, SMALL);
    let state_dir = dir.path().to_str().unwrap();
    for (name, pid) in processes(dir.path()) {
        kill("KILL", pid);
        wait_until(&format!("{name} runs again"), || up.said().contains(&format!("{name} runs again")));
    }
    assert!(
        up.said()
            .contains("ps-1 ended with signal: 9 (SIGKILL); running jobs go back to their last checkpoint"),
        "{}",
        up.said()
    );
    wait_until("the cluster is whole again", || {
        let report = syncline(&["doctor", "--state-dir", state_dir]);
        report.code == 0 && report.out.contains("workers       2")
    });
}

#[test]
fn it_is_ready_also_where_the_second_engine_led_before() {
    let dir = folder();
    let options = ["--workers", "1", "--shards", "1", "--engines", "2"];
    let mut first = Up::start(&dir, &options);
    let all = processes(dir.path());
    let pid = |of: &str| all.iter().find(|(name, _)| name == of).unwrap().1;
    let [leader, other] = leader_and_other(&first, dir.path());
    kill("STOP", pid(leader));
    wait_until("the lead has moved", || first.said().contains(&format!("{other} leads now")));
    kill("KILL", first.pid());
    kill("KILL", pid(leader));
    first.wait();
    wait_until("all children have ended", || all.iter().all(|(_, pid)| !runs(*pid)));
    // The lease of the second one lasts, and it takes its own lead back.
    let second = Up::start(&dir, &options);
    assert_eq!(second.about["second_engine"], first.about["second_engine"]);
    syncline(&["jobs", "--state-dir", dir.path().to_str().unwrap()]).ok();
}

#[test]
fn it_says_that_an_engine_was_stopped_and_that_the_lead_has_moved_to_the_other_one() {
    let dir = folder();
    let up = Up::start(&dir, &["--workers", "0", "--shards", "1", "--engines", "2"]);
    let pid = |of: &str| processes(dir.path()).into_iter().find(|(name, _)| name == of).unwrap().1;
    let leads = |name, other| {
        wait_until("the lead has moved", || {
            up.said().contains(&format!("{name} leads now, in place of {other}"))
        });
    };
    assert!(!up.said().contains("leads now"), "{}", up.said());
    let [leader, other] = leader_and_other(&up, dir.path());
    kill("STOP", pid(leader));
    let says = |what: &str| {
        let line = format!("{leader} (process {}) {what}", pid(leader));
        wait_until(what, || up.said().contains(&line));
    };
    says("was stopped from outside");
    leads(other, leader);
    kill("CONT", pid(leader));
    says("goes on");
    kill("STOP", pid(other));
    leads(leader, other);
    kill("CONT", pid(other));
}

/// The names of two engines. Either may lead at first: that is between them, and on a busy machine the second
/// may be quicker.
fn leader_and_other(up: &Up, state_dir: &Path) -> [&'static str; 2] {
    let doctor = syncline(&["doctor", "--state-dir", state_dir.to_str().unwrap()]).ok();
    let leads = doctor.out.lines().find(|line| line.contains("it leads")).unwrap();
    match leads.contains(up.about["second_engine"].as_str().unwrap()) {
        true => ["engine-b", "engine"],
        false => ["engine", "engine-b"],
    }
}

#[test]
fn its_workers_have_the_slots_that_it_is_told() {
    let dir = folder();
    let _up = Up::start(&dir, &["--workers", "1", "--shards", "1", "--slots", "300"]);
    let workers = syncline(&["workers", "--json", "--state-dir", dir.path().to_str().unwrap()]).ok().json();
    assert_eq!(workers[0]["slots"], 300, "{workers:#}");
}

#[test]
fn a_child_that_cannot_start_ends_it_with_the_reason() {
    let dir = folder();
    let (state_dir, worker) = (dir.path().to_str().unwrap(), dir.path().join("worker"));
    fs::write(&worker, "#!/bin/sh\necho no library of ours >&2\nexit 5\n").unwrap();
    fs::set_permissions(&worker, fs::Permissions::from_mode(0o700)).unwrap();
    let worker = ["--worker-bin", worker.to_str().unwrap()];
    let ended =
        syncline(&[&["up", "--state-dir", state_dir, "--listen", "127.0.0.1:0"][..], &worker].concat());
    let ended = ended.refused(5, "E504");
    assert!(ended.err.contains("no library of ours"), "{}", ended.err);
    // What was locked and started is free again.
    drop(Up::start(&dir, SMALL));
}

#[test]
fn a_named_redis_server_is_waited_for_as_long_as_it_is_told_to() {
    let dir = folder();
    let state_dir = dir.path().to_str().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("redis://127.0.0.1:{port}/");
    let args = ["up", "--state-dir", state_dir, "--listen", "127.0.0.1:0", "--workers", "1", "--redis", &url];
    let refused = syncline(&[&args[..], &["--redis-wait", "0"]].concat()).refused(4, "E201");
    assert!(!refused.err.contains("waiting"), "{}", refused.err);

    let (said, told) = (dir.path().join("said"), dir.path().join("told"));
    let mut up = command(&args);
    up.stdout(fs::File::create(&said).unwrap()).stderr(fs::File::create(&told).unwrap());
    let _up = Killed::start(&mut up);
    let holds = |file: &Path, text: &str| fs::read_to_string(file).unwrap().contains(text);
    wait_until("it says what it waits for", || {
        holds(&told, "waiting up to 60 s for the Redis server: [E201]")
    });
    let mut server = Command::new(syncline_kit::redis_server(&|_| {}).unwrap().path);
    server.args(["--port", &port.to_string(), "--save", "", "--dir", state_dir]);
    let _server = Killed::start(server.stdout(Stdio::null()));
    wait_until("it is ready", || holds(&said, "\nnext "));
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
    const OF_THIS_MACHINE: [&str; 3] = ["state", "open files", "temporary"];
    for (check, verdict) in verdicts.filter(|(check, _)| !OF_THIS_MACHINE.contains(check)) {
        assert_eq!(verdict, "ok", "{check}: {report:#}");
    }
}

#[test]
fn doctor_says_that_the_token_file_of_a_running_cluster_was_removed() {
    let dir = folder();
    let _up = Up::start(&dir, SMALL);
    fs::remove_file(dir.path().join("token")).unwrap();
    let told = syncline(&["doctor", "--state-dir", dir.path().to_str().unwrap()]);
    assert_eq!(told.code, 2, "{told:#?}");
    assert!(told.out.contains("token was removed while the cluster runs with it"), "{told:#?}");
}

#[test]
fn doctor_says_what_a_user_of_redis_lacks() {
    let dir = folder();
    let up = Up::start(&dir, SMALL);
    let url = up.about["redis"].as_str().unwrap().replace("redis://", "redis://trainer:secret@");
    let told = |keys: &str, rights: &str| {
        let rights = format!("+@all -@dangerous -@admin {rights}");
        assert!(up.redis(&format!("ACL SETUSER trainer reset on >secret ~{keys} {rights}")).contains("+OK"));
        syncline(&["doctor", "--state-dir", dir.path().to_str().unwrap(), "--redis", &url])
    };
    let doctor = |keys: &str| told(keys, "+info +config|get");
    let refused = doctor("other:*");
    assert!(refused.code == 4 && refused.out.contains("fail  access"), "{refused:#?}");
    assert!(refused.out.contains("[E203] redis refused `write`"), "{refused:#?}");
    assert!(refused.out.contains("ACL SETUSER USER '~syncline:*'"), "{refused:#?}");
    // The password may lie in a file, as that of an engine.
    let (apart, file) = (url.replace("trainer:secret@", "trainer@"), dir.path().join("password"));
    fs::write(&file, "secret\n").unwrap();
    let state_dir = dir.path().to_str().unwrap();
    let from_file = ["doctor", "--state-dir", state_dir, "--redis", &apart, "--redis-password-file"];
    let from_file = syncline(&[&from_file[..], &[file.to_str().unwrap()]].concat());
    assert!(from_file.out.contains("fail  access") && !from_file.out.contains("secret"), "{from_file:#?}");
    // Those of docs/operations.md are enough, and nothing is left behind.
    let allowed = doctor("syncline:*").ok();
    assert!(allowed.out.contains("ok    access"), "{allowed:#?}");
    assert!(up.redis("KEYS syncline:probe:*").contains("*0"));
    // An engine loads its scripts.
    let refused = told("syncline:*", "+info +config|get -script");
    assert!(refused.out.contains("[E203] redis refused `load a script`"), "{refused:#?}");
    // It does without INFO, and so does what is checked after it.
    let blind = told("syncline:*", "").ok();
    assert!(blind.out.contains("not known: [E203] redis refused `info`"), "{blind:#?}");
    assert!(blind.out.contains("+info") && blind.out.contains("ok    access"), "{blind:#?}");
}
