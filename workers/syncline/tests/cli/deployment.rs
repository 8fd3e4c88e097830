//! The files in `deploy` name commands and flags that there are.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use crate::rig::syncline;

const UNITS: [&str; 4] = [
    "syncline-engine.service",
    "syncline-ps@.service",
    "syncline-worker@.service",
    "syncline-dashboard.service",
];

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name);
    fs::read_to_string(path).unwrap()
}

/// With what `--help` is asked for last, whatever comes before it is read first.
#[track_caller]
fn is_taken(words: &[&str]) {
    let asked = syncline(&[words, &["--help"]].concat());
    assert!(asked.code == 0 && asked.out.contains("Usage: "), "{words:?}: {asked:#?}");
}

/// What stands for an address, an index or a number.
fn filled_in(text: &str) -> String {
    let pairs = [
        ("${SYNCLINE_LISTEN_IP}", "127.0.0.1"),
        ("${SYNCLINE_SHARDS}", "2"),
        ("${SYNCLINE_PS_PORT}", "7471"),
        ("${SYNCLINE_DASHBOARD_LISTEN}", "127.0.0.1:8265"),
        ("${SYNCLINE_WORKER_THREADS}", "8"),
        ("$SYNCLINE_WORKER_ARGS", "--device cuda:0"),
        ("%i", "1"),
        ("%H", "host"),
        ("%S", "/var/lib"),
        ("$(POD_IP)", "127.0.0.1"),
        ("$(POD_INDEX)", "1"),
        ("$(POD_NAME)", "pod"),
        ("\"$ip:7461\"", "127.0.0.1:7461"),
        ("\"$SLURM_CPUS_PER_TASK\"", "8"),
        ("\"$(hostname)\"", "host"),
        ("\"$job_file\"", "job.toml"),
    ];
    pairs.into_iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
}

#[test]
fn every_command_of_the_units_is_taken() {
    for unit in UNITS {
        let text = filled_in(&file(&format!("systemd/{unit}")));
        let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/syncline "));
        let words: Vec<&str> = line.unwrap().split_whitespace().collect();
        is_taken(&words);
    }
}

#[test]
fn a_unit_is_started_again_however_often_it_has_ended_quickly() {
    for unit in UNITS {
        let text = file(&format!("systemd/{unit}"));
        let (before, _) = text.split_once("[Service]").unwrap();
        assert!(before.contains("\nStartLimitIntervalSec=0\n"), "{unit}: {text}");
    }
}

#[test]
fn a_worker_under_systemd_takes_further_flags_from_a_file_and_two_on_a_machine_have_different_names() {
    let unit = file("systemd/syncline-worker@.service");
    for line in [
        "Environment=SYNCLINE_WORKER_THREADS=%i SYNCLINE_WORKER_ARGS=\n",
        "EnvironmentFile=-/etc/syncline/worker-%i.env\n",
        "--threads ${SYNCLINE_WORKER_THREADS} --name %H-%i $SYNCLINE_WORKER_ARGS\n",
    ] {
        assert!(unit.contains(line), "{line} in {unit}");
    }
}

#[test]
fn a_shard_under_systemd_listens_on_the_port_of_the_table_whatever_its_number() {
    let unit = file("systemd/syncline-ps@.service");
    assert!(unit.contains("--listen ${SYNCLINE_LISTEN_IP}:${SYNCLINE_PS_PORT} "), "{unit}");
    assert!(unit.contains("Environment=SYNCLINE_PS_PORT=7471\n"), "{unit}");
}

#[test]
fn a_volume_that_is_mounted_again_is_not_opened_to_its_group() {
    let manifest = file("kubernetes/syncline.yaml");
    let volumes = manifest.lines().filter(|line| line.contains("fsGroup:"));
    let policies: Vec<bool> =
        volumes.map(|line| line.contains("fsGroupChangePolicy: OnRootMismatch")).collect();
    assert!(!policies.is_empty() && policies.iter().all(|policy| *policy), "{policies:?}");
}

/// Programs that stand for those of a machine, in a folder that comes first in `PATH`.
fn stand_ins(folder: &Path, programs: &[(&str, &str)]) {
    for (name, script) in programs {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/bash\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    }
}

#[test]
fn a_second_allocation_waits_for_its_own_cluster_and_not_for_what_the_first_one_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let (state, shared) = (folder.path().join("state"), folder.path().join("shared"));
    fs::create_dir(&state).unwrap();
    fs::create_dir(&shared).unwrap();
    fs::write(state.join("ready-1.json"), "{}").unwrap();
    fs::write(state.join("up-1.log"), "what the first one says").unwrap();
    // `up` is ready only after somebody has waited for it.
    let syncline = r#"case $1 in
        up) until [ -e "$SYNCLINE_STATE_DIR/waited" ]; do read -rt 0.01 <> <(:) || true; done
            touch "$SYNCLINE_STATE_DIR/ready"; echo '{}'; exec /bin/sleep 60 ;;
        submit) until [ -e "$SLURM_SUBMIT_DIR/srun" ]; do read -rt 0.01 <> <(:) || true; done
            [ -e "$SYNCLINE_STATE_DIR/ready" ] && touch "$SYNCLINE_STATE_DIR/submitted" ;;
    esac"#;
    let sleep = r#"touch "$SYNCLINE_STATE_DIR/waited"; exec /bin/sleep 0.01"#;
    let srun = r#"echo "$SYNCLINE_TOKEN_FILE $*" > "$SLURM_SUBMIT_DIR/srun.new"
        mv "$SLURM_SUBMIT_DIR/srun.new" "$SLURM_SUBMIT_DIR/srun"; exec /bin/sleep 60"#;
    let programs = [("syncline", syncline), ("sleep", sleep), ("srun", srun), ("openssl", "echo 00")];
    stand_ins(folder.path(), &programs);
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/slurm/train.sbatch");
    let mut batch = Command::new("bash");
    let ran = batch.arg(script).arg("job.toml").env("PATH", path).env_remove("SYNCLINE_TOKEN_FILE");
    let ran = ran.env("SLURM_JOB_ID", "2").env("SLURM_CPUS_PER_TASK", "8");
    // On a disk of the first machine, which the others do not see.
    let ran = ran.env("SYNCLINE_STATE_DIR", &state).env("SLURM_SUBMIT_DIR", &shared).output().unwrap();
    assert!(state.join("submitted").exists(), "{ran:?}");
    assert_eq!(fs::read_to_string(state.join("up-1.log")).unwrap(), "what the first one says");
    let left = ["ready-2.json", "up-2.log"].map(|name| state.join(name).exists());
    assert_eq!(left, [false, ran.status.code() != Some(0)], "{ran:?}");
    let token = shared.join("syncline-token");
    assert_eq!(fs::metadata(&token).unwrap().permissions().mode() & 0o777, 0o600);
    let started = fs::read_to_string(shared.join("srun")).unwrap();
    let begin = format!("{} --cpus-per-task=8 ", token.display());
    assert!(started.starts_with(&begin), "{started}");
}

#[test]
fn every_command_of_the_manifests_is_taken() {
    let text = filled_in(&file("kubernetes/syncline.yaml"));
    let lists = text.lines().filter_map(|line| line.trim().strip_prefix("args: [")?.strip_suffix(']'));
    let mut count = 0;
    for list in lists {
        let words: Vec<&str> = list.split(',').map(|word| word.trim().trim_matches('"')).collect();
        is_taken(&words);
        count += 1;
    }
    assert_eq!(count, 3, "engine, shard and worker");
}

#[test]
fn every_command_of_the_batch_script_is_taken() {
    let text = filled_in(&file("slurm/train.sbatch"));
    let mut count = 0;
    for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
        let Some((_, rest)) = line.split_once("syncline ").filter(|(before, _)| !before.ends_with('='))
        else {
            continue;
        };
        let words: Vec<&str> =
            rest.split_whitespace().take_while(|word| !word.starts_with(['>', '&', '2'])).collect();
        let words: Vec<&str> = words.iter().map(|word| word.trim_end_matches('\'')).collect();
        is_taken(&words);
        count += 1;
    }
    assert_eq!(count, 3, "up, worker and submit");
}
