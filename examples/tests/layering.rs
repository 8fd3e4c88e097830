//! The crates depend on each other in one straight line, and two libraries stay in their folders.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const LINE: [&str; 12] = [
    "syncline-scheduler",
    "syncline-rpc",
    "syncline-ps",
    "syncline-kit",
    "syncline-engine",
    "syncline-onnx",
    "syncline-runtime",
    "syncline-autodiff",
    "syncline-workers",
    "syncline",
    "syncline-examples",
    "syncline-cluster-tests",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn crates_depend_only_on_those_before_them() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let position = |name: &str| LINE.iter().position(|c| *c == name);
    let packages = metadata["packages"].as_array().unwrap();
    assert_eq!(packages.len(), LINE.len());
    for package in packages {
        let name = package["name"].as_str().unwrap();
        let own = position(name).unwrap_or_else(|| panic!("{name} is not in the line"));
        // Tests may use what is built upon a crate.
        let needed = |dependency: &&serde_json::Value| dependency["kind"] != "dev";
        for dependency in package["dependencies"].as_array().unwrap().iter().filter(needed) {
            let on = dependency["name"].as_str().unwrap();
            assert!(position(on).is_none_or(|p| p < own), "{name} depends on {on}");
        }
    }
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// What a reader may copy: a program of his own depends on no other crate of ours.
#[test]
fn the_examples_know_the_crate_for_users_alone() {
    let mut files = Vec::new();
    for folder in ["examples/src", "examples/examples"] {
        sources(&root().join(folder), &mut files);
    }
    for file in files {
        let text = fs::read_to_string(&file).unwrap().replace("syncline_examples", "");
        assert!(!text.contains("syncline_"), "{} names an inner crate", file.display());
    }
}

#[test]
fn redis_and_onnx_runtime_are_imported_in_one_folder_each() {
    for (library, folder) in [("redis", "engine/src/store"), ("ort", "workers/runtime/src")] {
        for member in ["scheduler", "engine", "ps", "workers", "examples"] {
            let mut files = Vec::new();
            sources(&root().join(member), &mut files);
            files.retain(|file| file.components().any(|part| part.as_os_str() == "src"));
            for file in files {
                let inside = file.to_string_lossy().contains(folder);
                let text = fs::read_to_string(&file).unwrap();
                let imports = text.lines().any(|l| {
                    let l = l.trim_start();
                    !l.starts_with("//")
                        && (l.starts_with(&format!("use {library}::"))
                            || l.contains(&format!(" {library}::")))
                });
                assert!(inside || !imports, "{} uses {library}", file.display());
            }
        }
    }
}
