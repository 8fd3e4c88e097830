//! The files in `deploy` name commands and flags that there are.

use std::{fs, path::Path};

use crate::rig::syncline;

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
    for unit in ["syncline-engine.service", "syncline-ps@.service", "syncline-worker@.service"] {
        let text = filled_in(&file(&format!("systemd/{unit}")));
        let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/syncline "));
        let words: Vec<&str> = line.unwrap().split_whitespace().collect();
        is_taken(&words);
    }
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
