//! docs/json.md says what every command prints with `--json`: here each runs, and its answer is held against
//! the tables.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;

use crate::{
    job::write_job,
    rig::{Ended, Up, folder, syncline, wait_until},
};

/// Fields and their types, by the heading of their table.
pub struct Page {
    shapes: BTreeMap<String, Vec<(String, String)>>,
    commands: Vec<(String, String)>,
}

impl Page {
    pub fn read() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
        let (mut shapes, mut commands): (BTreeMap<_, Vec<_>>, _) = (BTreeMap::new(), Vec::new());
        let mut shape = None;
        for line in fs::read_to_string(path).unwrap().lines() {
            if let Some(name) = line.strip_prefix("## ") {
                shape = Some(name.to_owned());
            }
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            match (&shape, cells.as_slice()) {
                _ if !line.starts_with('|') || line.starts_with("|---") => {}
                (None, [names, prints]) if names.starts_with('`') => {
                    let names = names.split(", ").map(|name| name.trim_matches('`').to_owned());
                    commands.extend(names.map(|name| (name, (*prints).to_owned())));
                }
                (Some(shape), [name, what, _]) if name.starts_with('`') => {
                    let field = (name.trim_matches('`').to_owned(), (*what).to_owned());
                    shapes.entry(shape.clone()).or_default().push(field);
                }
                _ => {}
            }
        }
        Self { shapes, commands }
    }

    fn printed_by(&self, command: &str) -> &str {
        let found = self.commands.iter().find(|(name, _)| name == command);
        &found.unwrap_or_else(|| panic!("docs/json.md has no `{command}`")).1
    }

    /// Panics if a value is not what its type says.
    #[track_caller]
    fn check(&self, at: &str, value: &Value, what: &str) {
        if let Some(inner) = what.strip_suffix(" or null") {
            if !value.is_null() {
                self.check(at, value, inner);
            }
            return;
        }
        if let Some(inner) = what.strip_prefix("list of ") {
            let all = value.as_array().unwrap_or_else(|| panic!("{at} is no list: {value}"));
            return all.iter().for_each(|one| self.check(&format!("{at}[]"), one, inner));
        }
        if let Some(inner) = what.strip_prefix("map of ") {
            let all = value.as_object().unwrap_or_else(|| panic!("{at} is no map: {value}"));
            return all.iter().for_each(|(name, one)| self.check(&format!("{at}.{name}"), one, inner));
        }
        match what {
            "string" => assert!(value.is_string(), "{at} is no string: {value}"),
            "number" => assert!(value.is_number(), "{at} is no number: {value}"),
            "number or string" => assert!(value.is_number() || value.is_string(), "{at}: {value}"),
            "true or false" => assert!(value.is_boolean(), "{at} is neither true nor false: {value}"),
            shape => {
                let fields = self.shapes.get(shape).unwrap_or_else(|| panic!("{at}: no table {shape}"));
                let found = value.as_object().unwrap_or_else(|| panic!("{at} is no object: {value}"));
                for name in found.keys() {
                    assert!(
                        fields.iter().any(|(field, _)| field == name),
                        "{at}.{name} is not in docs/json.md"
                    );
                }
                for (name, what) in fields {
                    let at = format!("{at}.{name}");
                    let value = found.get(name).unwrap_or_else(|| panic!("{at} is in docs/json.md only"));
                    self.check(&at, value, what);
                }
            }
        }
    }

    #[track_caller]
    pub fn holds(&self, command: &str, answer: &Ended) {
        self.check(command, &answer.json(), self.printed_by(command));
    }

    /// Of a command that prints one value a line.
    #[track_caller]
    pub fn holds_line(&self, command: &str, line: &str) {
        let value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let what = self.printed_by(command).trim_end_matches(", one a line");
        self.check(command, &value, what);
    }
}

#[test]
fn commands_of_a_cluster_print_what_the_page_says() {
    let page = Page::read();
    let dir = folder();
    let up = Up::start(&dir, &["--workers", "2"]);
    page.check("up", &up.about, page.printed_by("up"));
    let state_dir = dir.path().to_str().unwrap();
    let at = |args: &[&str]| syncline(&[args, &["--state-dir", state_dir, "--json"]].concat());
    write_job(dir.path(), 3);
    let file = dir.path().join("points.toml");
    let file = file.to_str().unwrap();
    let groups = "settings.groups=[{ params = ['*.bias'], learning_rate_factor = 0.5 }]";
    page.holds("submit --dry-run", &at(&["submit", file, "--dry-run", "--set", groups]).ok());
    page.holds("submit --watch", &at(&["submit", file, "--watch"]).ok());
    page.holds("watch", &at(&["watch", "points"]).ok());
    page.holds("status", &at(&["status", "points"]).ok());
    let drawn = dir.path().join("loss.svg");
    page.holds("metrics JOB", &at(&["metrics", "points", "--plot", drawn.to_str().unwrap()]).ok());
    assert!(fs::read_to_string(drawn).unwrap().contains("<polyline"));
    let tests = at(&["metrics", "points", "--evaluations"]).ok();
    page.holds("metrics JOB --evaluations", &tests);
    assert_eq!(tests.json()[0]["samples"], 480, "{}", tests.json());
    assert_eq!(tests.json()[0]["best"], false, "nothing says which is the best: {}", tests.json());
    let nowhere = ["metrics", "points", "--plot", "/nowhere/loss.svg", "--state-dir", state_dir];
    syncline(&nowhere).refused(2, "E574");
    let picture = ["metrics", "points", "--plot", "loss.png", "--state-dir", state_dir];
    assert!(syncline(&picture).refused(2, "E500").err.contains("call it loss.svg"));
    page.holds("submit", &at(&["submit", file, "--id", "other"]).ok());
    page.holds("jobs", &at(&["jobs"]).ok());
    page.holds("workers", &at(&["workers"]).ok());
    page.holds("explain JOB", &at(&["explain", "points"]).ok());
    page.holds("explain JOB TASK", &at(&["explain", "points", "weights"]).ok());
    page.holds("explain JOB --barrier N", &at(&["explain", "points", "--barrier", "20"]).ok());
    at(&["watch", "other"]).ok();
    page.holds("delete", &at(&["delete", "other"]).ok());
    write_job(dir.path(), 100_000);
    let long =
        fs::read_to_string(file).unwrap().replace("epochs =", "checkpoint = { every_epochs = 1 }, epochs =");
    fs::write(file, long).unwrap();
    at(&["submit", file, "--id", "long"]).ok();
    wait_until("it has a checkpoint", || !at(&["status", "long"]).ok().json()["job"]["checkpoint"].is_null());
    let kept = dir.path().join("long.safetensors");
    page.holds("checkpoint", &at(&["checkpoint", "long", kept.to_str().unwrap()]).ok());
    let shown = syncline(&["model", "show", kept.to_str().unwrap(), "--json"]).ok().json();
    let about = shown["about"].as_object().unwrap();
    assert!(about["job"] == "long" && about["optimizer"] == "sgd" && about.len() == 5, "{about:?}");
    page.holds("cancel", &at(&["cancel", "long"]).ok());
    page.holds("gc", &at(&["gc"]).ok());
    page.holds("doctor", &at(&["doctor"]));
    let failed = at(&["status", "nobody"]);
    assert_eq!(failed.code, 1, "{failed:#?}");
    page.check("an error", &serde_json::from_str(failed.err.trim()).unwrap(), "Error");

    let snapshot = at(&["status", "points"]).ok().json()["job"]["snapshot"].as_str().unwrap().to_owned();
    let trained = dir.path().join("trained.onnx");
    page.holds("model export", &at(&["model", "export", "points", trained.to_str().unwrap()]).ok());
    page.holds("model show SNAPSHOT.safetensors", &syncline(&["model", "show", &snapshot, "--json"]).ok());
}

#[test]
fn commands_that_need_no_cluster_print_what_the_page_says() {
    let page = Page::read();
    let dir = folder();
    write_job(dir.path(), 3);
    let model = dir.path().join("points.onnx");
    let model = model.to_str().unwrap();
    let loss = ["--loss", "softmax-cross-entropy"];
    page.holds("model show MODEL.onnx", &syncline(&["model", "show", model, "--json"]).ok());
    page.holds("model check", &syncline(&[&["model", "check", model, "--json"], &loss[..]].concat()).ok());
    let out = dir.path().join("out.onnx");
    let out = ["--out", out.to_str().unwrap(), "--json", "--recompute"];
    page.holds(
        "model train-graph",
        &syncline(&[&["model", "train-graph", model], &loss[..], &out[..]].concat()).ok(),
    );
    let simulate = ["simulate", "--intervals-ms", "100x2,200", "--json"];
    page.holds("simulate", &syncline(&simulate).ok());
    let compare = ["--compare", "bsp,auto"];
    page.holds("simulate --compare", &syncline(&[&simulate[..], &compare[..]].concat()).ok());
    page.holds("bench plan", &syncline(&["bench", "plan", "--runs", "1", "--json"]).ok());
    let points = dir.path().join("points.json");
    fs::write(&points, r#"{"points": [[1, 2, 3], [1.5, 3, 4.5]]}"#).unwrap();
    page.holds("plan", &syncline(&["plan", points.to_str().unwrap(), "--json"]).ok());
}
