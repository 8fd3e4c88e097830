//! Programs of somebody else, who knows the crate `syncline` only.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::rig::{Up, folder};

/// A training, in a client.
const TRAINING: &str = include_str!("another_workspace/digits.rs");
/// A graph of calls, client and worker.
const CALLS: &str = include_str!("another_workspace/squares.rs");
/// With as many lines at most.
const PROGRAMS: [(&str, &str, usize); 2] = [("digits", TRAINING, 25), ("squares", CALLS, 30)];
/// What a client that derives training graphs depends on.
const MAX_PACKAGES: usize = 120;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// Runs cargo on the programs; whatever it needs has been fetched for the workspace.
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

/// Its manifest, in a workspace of its own.
fn manifest(features: &str) -> String {
    format!(
        "[package]\nname = \"outside\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n\
         syncline = {{ path = {:?}, features = [{features}] }}\n\
         tokio = {{ version = \"1\", features = [\"macros\", \"rt-multi-thread\"] }}\n\n\
         [profile.dev]\ndebug = false\nincremental = false\n",
        root().join("workers/syncline")
    )
}

#[test]
fn programs_outside_the_workspace_train_and_call_functions_in_few_lines_and_packages() {
    let (home, state) = (folder(), folder());
    fs::create_dir_all(home.path().join("src/bin")).unwrap();
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    for (name, program, max_lines) in PROGRAMS {
        assert!(program.lines().count() <= max_lines, "{name}");
        assert!(readme.contains(program.trim_end()), "README.md shows another `{name}`");
        fs::write(home.path().join(format!("src/bin/{name}.rs")), program).unwrap();
    }
    fs::copy(root().join("Cargo.lock"), home.path().join("Cargo.lock")).unwrap();
    let write_manifest =
        |features: &str| fs::write(home.path().join("Cargo.toml"), manifest(features)).unwrap();

    write_manifest("\"train\"");
    let tree =
        cargo(home.path(), &["tree", "--edges", "normal,build", "--prefix", "none", "--format", "{p}"]);
    let packages: BTreeSet<&str> = tree.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    assert!(packages.len() <= MAX_PACKAGES, "{} packages", packages.len());

    write_manifest("\"train\", \"worker\"");
    cargo(home.path(), &["build", "--quiet"]);
    for file in ["models/digits.onnx", "data/digits.csv.gz"] {
        let from = root().join("examples").join(file);
        fs::copy(&from, home.path().join(from.file_name().unwrap())).unwrap();
    }
    let built = |name: &str| root().join("target/outside/debug").join(name);
    let _up = Up::start(&state, &["--workers", "2", "--worker-bin", built("squares").to_str().unwrap()]);
    let run = |name: &str| {
        let mut command = Command::new(built(name));
        let ran = command.current_dir(home.path()).env("SYNCLINE_STATE_DIR", state.path()).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.success(), "{said}\n{}", String::from_utf8_lossy(&ran.stderr));
        said
    };
    assert_eq!(run("squares"), "333833500\n");
    let said = run("digits");
    let accuracy = said.lines().find_map(|line| line.strip_prefix("accuracy Some(0.")).unwrap();
    assert!(accuracy.starts_with('9'), "{said}");
    assert!(said.contains("loss Some("), "{said}");
    let weights = fs::read(home.path().join("digits.safetensors")).unwrap();
    assert!(safetensors::SafeTensors::deserialize(&weights).unwrap().tensor("fc1.weight").is_ok());
}
