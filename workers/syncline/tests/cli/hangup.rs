//! The end of the terminal: a service ends cleanly, unless it was started to outlive it.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::Stdio,
};

use crate::rig::{Killed, Up, command_by, folder, kill, wait_until};

/// Starts a shard, and waits until it listens.
fn shard(dir: &Path) -> Killed {
    // These tests may have been started to outlive their own terminal.
    let starter = ["env", "--default-signal=HUP"];
    let mut ps = command_by(&starter, &["ps", "--state-dir", dir.to_str().unwrap()]);
    let mut ps = Killed::start(ps.stdout(Stdio::piped()).stderr(Stdio::null()));
    let mut said = String::new();
    BufReader::new(ps.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.starts_with("listening "), "{said}");
    ps
}

/// Whether the process ignores SIGHUP.
fn ignores_hangup(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & 1 == 1
}

#[test]
fn a_shard_whose_terminal_goes_ends_cleanly() {
    let dir = folder();
    let mut ps = shard(dir.path());
    kill("HUP", ps.id());
    let mut ended = None;
    wait_until("the shard ends", || {
        ended = ps.try_wait().unwrap();
        ended.is_some()
    });
    assert!(ended.unwrap().success(), "it has kept its jobs: {ended:?}");
}

#[test]
fn what_is_started_to_outlive_its_terminal_does() {
    let dir = folder();
    let starter = ["sh", "-c", "trap '' HUP; exec \"$0\" \"$@\""];
    let mut up = Up::start_by(&starter, dir.path(), &["--workers", "1", "--shards", "1"]);
    assert!(ignores_hangup(up.pid()), "a signal that is ignored cannot end it");
    kill("HUP", up.pid());
    kill("TERM", up.pid());
    assert!(up.wait().success());
}

#[test]
fn a_shell_that_passes_on_the_end_of_its_terminal_does_not_ask_a_second_time() {
    let dir = folder();
    let starter = ["env", "--default-signal=HUP"];
    let mut up = Up::start_by(&starter, dir.path(), &["--workers", "1", "--shards", "1"]);
    // The terminal's, and the shell's.
    kill("HUP", up.pid());
    kill("HUP", up.pid());
    assert!(up.wait().success(), "it stops cleanly");
}
