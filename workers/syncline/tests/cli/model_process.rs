//! The process of its own in which a model is loaded: it belongs to its parent, and to nobody else.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use crate::rig::{Ended, Killed, command, kill, runs, wait_until};

/// What makes the program such a process, of the parent that the variable names.
const ARGUMENT: &str = "syncline-model-process";
const VARIABLE: &str = "SYNCLINE_MODEL_PROCESS";

/// Whether the process ignores SIGHUP, SIGINT and SIGTERM.
fn ignores_what_ends_others(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or_default();
    let wanted = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM].map(|signal| 1 << (signal - 1));
    let ignored = u64::from_str_radix(mask.trim(), 16).unwrap_or_default();
    wanted.iter().all(|bit| ignored & bit != 0)
}

#[test]
fn a_stop_of_all_processes_leaves_a_models_to_its_parent() {
    let mut child = command(&[ARGUMENT]);
    child.env(VARIABLE, std::process::id().to_string()).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = Killed::start(&mut child);
    wait_until("it waits for what it is to do", || ignores_what_ends_others(child.id()));
    for signal in ["HUP", "INT", "TERM"] {
        kill(signal, child.id());
    }
    // The parent wants nothing more.
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_models_process_ends_with_a_parent_that_is_killed() {
    let start = format!("exec 3<&0; {VARIABLE}=$$ \"$0\" {ARGUMENT} <&3 & echo $!; wait");
    let mut parent = Command::new("sh");
    parent.args(["-c", &start, crate::BINARY]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut parent = Killed::start(&mut parent);
    let mut pid = String::new();
    BufReader::new(parent.stdout.take().unwrap()).read_line(&mut pid).unwrap();
    let pid = pid.trim().parse().unwrap();
    wait_until("it waits for what it is to do", || ignores_what_ends_others(pid));
    parent.kill().unwrap();
    // Its stdin stays open.
    wait_until("it has ended, too", || !runs(pid));
}

#[test]
fn a_models_process_whose_parent_is_gone_does_nothing_and_what_inherits_its_variable_is_none() {
    let of = |parent: u32, args: &[&str]| {
        Ended::from(command(args).env(VARIABLE, parent.to_string()).output().unwrap())
    };
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let orphan = of(gone.id(), &[ARGUMENT]);
    assert_eq!((orphan.code, &*orphan.out, &*orphan.err), (1, "", ""));
    assert!(of(std::process::id(), &["--version"]).ok().out.starts_with("syncline "));
}
