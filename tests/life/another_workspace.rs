//! A program of somebody else, who knows the crate `syncline` only.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::rig::{Up, folder};

const PROGRAM: &str = include_str!("another_workspace/main.rs");
const MAX_LINES: usize = 25;
const MAX_PACKAGES: usize = 120;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// Runs cargo on the program; whatever it needs has been fetched for the workspace.
fn cargo(home: &Path, args: &[&str]) -> String {
    let ended = Command::new(env!("CARGO"))
        .args(args)
        .current_dir(home)
        .env("CARGO_TARGET_DIR", root().join("target/outside"))
        .env("CARGO_NET_OFFLINE", "true")
        .output()
        .unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).unwrap()
}

#[test]
fn a_program_outside_the_workspace_submits_follows_and_fetches_weights_in_25_lines() {
    assert!(PROGRAM.lines().count() <= MAX_LINES);
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.contains(PROGRAM.trim_end()), "README.md shows another program");

    let (home, state) = (folder(), folder());
    fs::create_dir(home.path().join("src")).unwrap();
    fs::write(home.path().join("src/main.rs"), PROGRAM).unwrap();
    fs::copy(root().join("Cargo.lock"), home.path().join("Cargo.lock")).unwrap();
    let manifest = format!(
        "[package]\nname = \"outside\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n\
         syncline = {{ path = {:?}, features = [\"train\"] }}\n\
         tokio = {{ version = \"1\", features = [\"macros\", \"rt-multi-thread\"] }}\n\n\
         [profile.dev]\ndebug = false\nincremental = false\n",
        root().join("workers/syncline")
    );
    fs::write(home.path().join("Cargo.toml"), manifest).unwrap();
    cargo(home.path(), &["build", "--quiet"]);

    let tree =
        cargo(home.path(), &["tree", "--edges", "normal,build", "--prefix", "none", "--format", "{p}"]);
    let packages: BTreeSet<&str> = tree.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    assert!(packages.len() <= MAX_PACKAGES, "{} packages", packages.len());

    for file in ["models/digits.onnx", "data/digits.csv.gz"] {
        let from = root().join("examples").join(file);
        fs::copy(&from, home.path().join(from.file_name().unwrap())).unwrap();
    }
    let _up = Up::start(&state, &["--workers", "2"]);
    let ran = Command::new(root().join("target/outside/debug/outside"))
        .current_dir(home.path())
        .env("SYNCLINE_STATE_DIR", state.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}\n{}", String::from_utf8_lossy(&ran.stderr));
    let accuracy = said.lines().find_map(|line| line.strip_prefix("accuracy Some(0.")).unwrap();
    assert!(accuracy.starts_with('9'), "{said}");
    assert!(said.contains("loss Some("), "{said}");
    let weights = fs::read(home.path().join("digits.safetensors")).unwrap();
    assert!(safetensors::SafeTensors::deserialize(&weights).unwrap().tensor("fc1.weight").is_ok());
}
