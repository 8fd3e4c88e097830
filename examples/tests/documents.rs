//! What the documents name is there.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Folders at the root whose files are named by their whole path.
const FOLDERS: [&str; 10] =
    ["scheduler", "engine", "ps", "workers", "examples", "tests", "docs", "fuzz", "scripts", "deploy"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// README, CONTRIBUTING and the pages of `docs`. Decisions (`docs/adr`) speak of the code of their day.
fn documents() -> Vec<PathBuf> {
    let pages = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    [root().join("README.md"), root().join("CONTRIBUTING.md"), root().join("fuzz/README.md")]
        .into_iter()
        .chain(pages)
        .collect()
}

/// Every path from the root that stands between backticks.
fn named(text: &str) -> Vec<String> {
    let from_root = |word: &&str| FOLDERS.iter().any(|folder| word.starts_with(&format!("{folder}/")));
    let plain = |word: &&str| !word.contains(['*', '{', ' ']);
    text.split('`').skip(1).step_by(2).filter(from_root).filter(plain).map(str::to_owned).collect()
}

/// File and anchor of every relative link; the file is empty where it is the same one.
fn linked(text: &str) -> Vec<(String, String)> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let relative = targets.filter(|target| !target.contains("://"));
    relative
        .map(|target| target.split_once('#').unwrap_or((target, "")))
        .map(|(f, a)| (f.into(), a.into()))
        .collect()
}

/// What links may name on a page: its headings, as GitHub makes anchors of them. Lines of code begin with `#`
/// as well.
fn anchors(text: &str) -> Vec<String> {
    let prose = text.split("\n```").step_by(2).flat_map(str::lines);
    let headings = prose.filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let letters = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
    headings
        .map(|text| text.to_lowercase().chars().filter(letters).collect::<String>().replace(' ', "-"))
        .collect()
}

#[test]
fn every_file_that_a_document_names_or_links_to_is_there() {
    let mut missing = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        let named = named(&text).into_iter().map(|path| root().join(path));
        let beside = document.parent().unwrap();
        let linked = linked(&text).into_iter().map(|(file, _)| beside.join(file));
        missing.extend(
            named
                .chain(linked)
                .filter(|path| !path.exists())
                .map(|path| format!("{}: {}", document.display(), path.display())),
        );
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn every_anchor_that_a_document_links_to_is_a_heading_there() {
    let mut missing = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for (file, anchor) in linked(&text).into_iter().filter(|(_, anchor)| !anchor.is_empty()) {
            let page = if file.is_empty() { document.clone() } else { document.parent().unwrap().join(file) };
            if !anchors(&fs::read_to_string(&page).unwrap_or_default()).contains(&anchor) {
                missing.push(format!("{}: {}#{anchor}", document.display(), page.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// What a reader copies from the page is what was run.
#[test]
fn the_page_on_pytorch_shows_the_files_that_were_run() {
    let page = fs::read_to_string(root().join("docs/pytorch.md")).unwrap();
    for file in ["net.py", "data.py", "export.py", "digits-torch.toml", "back.py", "tune.py"] {
        let text = fs::read_to_string(root().join("examples/pytorch").join(file)).unwrap();
        assert!(page.contains(text.trim_end()), "docs/pytorch.md shows another {file}");
    }
}

/// All files and folders of the code, as paths from the root.
fn code() -> Vec<String> {
    let mut found: Vec<String> = FOLDERS.map(str::to_owned).to_vec();
    let mut folders: Vec<PathBuf> = FOLDERS.iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            found.push(entry.path().strip_prefix(root()).unwrap().display().to_string());
            if entry.file_type().unwrap().is_dir() && entry.file_name() != "target" {
                folders.push(entry.path());
            }
        }
    }
    found
}

#[test]
fn every_part_of_a_path_that_the_map_of_the_code_names_is_somewhere() {
    let code = code();
    let text = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let words = text.split('`').skip(1).step_by(2);
    let parts = words
        .filter(|word| word.ends_with(".rs") || word.ends_with('/'))
        .filter(|word| !word.contains(['*', ' ']));
    let nowhere: Vec<&str> = parts
        .filter(|part| {
            let end = format!("/{}", part.trim_end_matches('/'));
            !code.iter().any(|path| format!("/{path}").ends_with(&end))
        })
        .collect();
    assert!(nowhere.is_empty(), "{nowhere:?}");
}

/// The words in double quotes behind `start`, up to its closing bracket.
fn list_behind<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    let (_, rest) = text.split_once(start).unwrap_or_else(|| panic!("there is no {start}"));
    rest.split_once(']').unwrap().0.split('"').skip(1).step_by(2).collect()
}

/// It runs on machines with a GPU only, where a mistake in what it builds is found last.
#[test]
fn the_check_of_a_gpu_builds_as_the_pages_say_and_trains_every_job_of_the_examples() {
    let script = fs::read_to_string(root().join("scripts/gpu-check")).unwrap();
    let build = list_behind(&script, r#"["cargo", "#).join(" ");
    let page = fs::read_to_string(root().join("docs/pytorch.md")).unwrap();
    assert!(build == "build --release --bin syncline" && page.contains(&format!("cargo {build}")), "{build}");

    let (_, jobs) = script.split_once("EXAMPLES = {").unwrap();
    let (jobs, _) = jobs.split_once('}').unwrap();
    let names = jobs.split(',').map(|job| job.trim().split('"').nth(1).unwrap().to_owned());
    let mut listed: Vec<String> = names.collect();
    listed.sort_unstable();
    let files = fs::read_dir(root().join("examples/jobs")).unwrap().map(|entry| entry.unwrap().path());
    let mut there: Vec<String> = files.map(|path| path.file_stem().unwrap().display().to_string()).collect();
    there.sort_unstable();
    assert_eq!(listed, there);
}

#[test]
fn the_check_of_a_gpu_names_it_as_nvidia_smi_does_and_notes_whatever_fails() {
    let program = r#"
import importlib.machinery, importlib.util, os, sys
loader = importlib.machinery.SourceFileLoader("gpu_check", sys.argv[1])
check = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
loader.exec_module(check)
for visible, device, want in [(None, "cuda:1", "1"), ("", "cuda:0", "0"), ("3", "cuda:0", "3"), ("3, GPU-8f2a", "cuda:1", "GPU-8f2a")]:
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    if visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    assert check.smi_name(device) == want, (visible, device)
failures = []
assert check.attempt(failures, "digits", lambda: [][-1]) is None
assert check.attempt(failures, "mnist", lambda: 1 / 0) is None
assert check.attempt(failures, "cifar10", lambda: 7) == 7
assert failures == ["digits: IndexError: list index out of range", "mnist: ZeroDivisionError: division by zero"], failures
"#;
    let script = root().join("scripts/gpu-check");
    let ended = Command::new("python3").args(["-B", "-c", program]).arg(script).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}
