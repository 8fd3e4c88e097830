//! Trainings side by side, and as files for other programs.

use std::{fs, path::Path};

use crate::{
    job::write_job,
    json::Page,
    rig::{Ended, Up, folder, syncline},
};

/// Names of the files of events in the folder of a job.
fn event_files(dir: &Path, job: &str) -> Vec<String> {
    let files = fs::read_dir(dir.join(job)).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains("tfevents")).collect()
}

#[test]
fn trainings_are_compared_and_written_for_other_programs() {
    let dir = folder();
    let up = Up::start(&dir, &["--workers", "2"]);
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let at = |args: &[&str]| syncline(&[args, &["--state-dir", dir.path().to_str().unwrap()]].concat());
    write_job(dir.path(), 3);
    let file = path("points.toml");
    at(&["submit", &file, "--watch"]).ok();
    at(&["submit", &file, "--id", "free", "--set", "settings.policy=asp", "--watch"]).ok();

    they_stand_side_by_side(&at);
    their_points_are_rows_for_other_programs(&path, &at);
    they_are_followed_as_events_and_as_a_picture(&path, &at);
    one_of_a_file_stands_beside_those_of_the_cluster(&path, &at);
    let exported = path("free.export");
    drop(up);
    let alone = syncline(&["metrics", "free", "--from", &exported]).ok().out;
    assert!(alone.contains("480"), "{alone}");
    assert_eq!(
        syncline(&["metrics", "--from", &exported]).ok().out,
        alone,
        "the file says which job it is of"
    );
}

fn they_stand_side_by_side(at: &dyn Fn(&[&str]) -> Ended) {
    let table = at(&["metrics", "free", "points"]).ok().out;
    let words: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        (&words[1][..4], &words[2][..4]),
        (&["free", "asp", "done", "480"][..], &["points", "bsp", "done", "480"][..])
    );
    let both = at(&["metrics", "free", "points", "--json"]).ok();
    Page::read().holds("metrics JOB JOB ...", &both);
    let points = at(&["metrics", "points", "--json"]).ok().json();
    assert_eq!(both.json()[1]["points"], points);
    let partly = at(&["metrics", "nobody", "free", "no-one"]);
    assert!(
        partly.code == 1 && partly.out.lines().count() == 2 && partly.out.contains("free "),
        "{partly:#?}"
    );
    assert!(
        partly.err.contains("there is no job nobody") && partly.err.contains("error: [E131]"),
        "{partly:#?}"
    );
    at(&["metrics", "nobody"]).refused(1, "E131");
    at(&["metrics", "free", "free"]).refused(2, "E509");
    assert!(at(&["metrics", "free", "--csv", "-", "--json"]).err.contains("both take stdout"));
    for more in
        [&[][..], &["--plot", "a.svg", "--csv", "a.csv"], &["--plot", "a.svg", "--from", "free.export"]]
    {
        let said = at(&[&["metrics", "free", "--follow"], more].concat()).refused(2, "E509").err;
        assert!(said.contains("--follow goes with --plot, with --tensorboard, or with both"), "{said}");
    }
    at(&["metrics"]).refused(2, "E500");
}

fn their_points_are_rows_for_other_programs(path: &dyn Fn(&str) -> String, at: &dyn Fn(&[&str]) -> Ended) {
    let points = at(&["metrics", "points", "--json"]).ok().json();
    let rows = at(&["metrics", "points", "free", "--csv", "-"]).ok().out;
    let of = |job: &str| rows.lines().filter(|row| row.starts_with(&format!("{job},"))).count();
    assert_eq!((of("job"), of("points")), (1, points.as_array().unwrap().len()), "{rows}");
    assert_eq!(of("free") + of("points") + 1, rows.lines().count());
    at(&["metrics", "points", "free", "--csv", &path("points.csv.out")]).ok();
    assert_eq!(fs::read_to_string(path("points.csv.out")).unwrap(), rows);
    let evaluations = at(&["metrics", "points", "--evaluations", "--csv", "-"]).ok().out;
    assert_eq!(evaluations.lines().count(), 2, "{evaluations}");
}

fn they_are_followed_as_events_and_as_a_picture(
    path: &dyn Fn(&str) -> String,
    at: &dyn Fn(&[&str]) -> Ended,
) {
    let (runs, drawn) = (path("runs"), path("both.svg"));
    let write =
        ["metrics", "points", "free", "--tensorboard", &runs, "--plot", &drawn, "--over", "time", "--follow"];
    at(&write).ok();
    let first = event_files(Path::new(&runs), "points");
    at(&write).ok();
    let second = event_files(Path::new(&runs), "points");
    assert!(first.len() == 1 && second.len() == 1 && first < second, "{first:?} {second:?}");
    let drawn = fs::read_to_string(drawn).unwrap();
    assert!(drawn.contains(">points (bsp)<") && drawn.contains(">free (asp)<"), "{drawn}");
    at(&["metrics", "points", "--tensorboard", "/dev/null"]).refused(2, "E574");
}

fn one_of_a_file_stands_beside_those_of_the_cluster(
    path: &dyn Fn(&str) -> String,
    at: &dyn Fn(&[&str]) -> Ended,
) {
    let (file, rows) = (path("points.toml"), fs::read_to_string(path("points.csv.out")).unwrap());
    let exported = path("free.export");
    at(&["export", "free", &exported]).ok();
    let beside = at(&["metrics", "free", "free", "--from", &exported]).ok().out;
    let names: Vec<_> = beside.lines().skip(1).map(|row| row.split("  ").next().unwrap()).collect();
    assert_eq!(names, ["free", &*format!("free ({exported})")], "{beside}");
    at(&["metrics", "free", "free", "--from", &exported, "--tensorboard", &path("beside")]).ok();
    let folders: Vec<_> =
        fs::read_dir(path("beside")).unwrap().map(|folder| folder.unwrap().file_name()).collect();
    assert_eq!(folders.len(), 2, "{folders:?}");
    at(&["submit", &file, "--id", "third", "--watch"]).ok();
    let deleted = at(&["delete", "free", "nowhere", "third", "nobody", "--json"]);
    let lines: Vec<&str> = deleted.out.lines().collect();
    let refused = deleted.err.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let refused: Vec<String> = refused.map(|error| error["message"].to_string()).collect();
    assert!(deleted.code == 1 && lines.len() == 2 && refused.len() == 2, "{deleted:#?}");
    assert!(refused[0].contains("nowhere") && refused[1].contains("nobody"), "{refused:?}");
    Page::read().holds_line("delete JOB JOB ...", lines[1]);
    let mixed = at(&["metrics", "points", "free", "--from", &exported, "--csv", "-"]).ok().out;
    assert_eq!(mixed, rows, "one of the cluster, one of a file");
    at(&["metrics", "points", "--from", &exported]).refused(2, "E534");
}

#[test]
fn settings_are_told_the_same_before_and_after_and_compared() {
    let dir = folder();
    let _up = Up::start(&dir, &["--workers", "1"]);
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let at = |args: &[&str]| syncline(&[args, &["--state-dir", dir.path().to_str().unwrap()]].concat());
    write_job(dir.path(), 2);
    let file = path("points.toml");
    let changed = ["data.scale=0.5", "data.validation_percent=10", "settings.learning_rate=0.2"];
    let evaluated = ["--set", "settings.evaluate={ every_epochs = 1, keep_best = true }"];
    let set: Vec<&str> = changed.iter().flat_map(|change| ["--set", change]).chain(evaluated).collect();
    at(&["submit", &file, "--watch"]).ok();
    at(&[&["submit", &file, "--id", "other", "--watch"], &set[..]].concat()).ok();

    let falling = ["--id", "falling", "--set", "settings.decay=linear", "--watch"];
    at(&[&["submit", &file][..], &falling].concat()).ok();
    let rates = |job: &str| -> Vec<f64> {
        let points = at(&["metrics", job, "--json"]).ok().json();
        points.as_array().unwrap().iter().map(|point| point["learning_rate"].as_f64().unwrap()).collect()
    };
    assert!(rates("points").iter().all(|rate| *rate == 0.1), "{:?}", rates("points"));
    let rates = rates("falling");
    assert!(rates.is_sorted_by(|a, b| a >= b) && rates.last() == Some(&0.0), "{rates:?}");

    let planned =
        at(&[&["submit", &file, "--id", "third", "--dry-run", "--json"], &set[..]].concat()).ok().json();
    let status = at(&["status", "other", "--json"]).ok().json();
    assert_eq!(status["job"]["settings"], planned["settings"]);
    for (name, value) in [
        ("data.scale", "0.5"),
        ("model.forward.loss", "softmax-cross-entropy"),
        ("settings.evaluate.keep_best", "true"),
        ("settings.policy", "bsp"),
    ] {
        assert_eq!(planned["settings"][name], value, "{planned:#}");
    }
    at(&["export", "other", &path("other.export")]).ok();
    let kept = syncline(&["status", "other", "--from", &path("other.export"), "--json"]).ok().json();
    assert_eq!(kept["job"]["settings"], planned["settings"]);
    let told = at(&["status", "other"]).ok().out;
    for part in [
        "seed 0, evaluate.every_epochs = 1, evaluate.keep_best = true\n",
        "\ndata          source.csv.path = ",
    ] {
        assert!(told.contains(part), "{part} is not in {told}");
    }
    assert!(told.contains(", validation_percent = 10, scale = 0.5, split = { test_every = 5 }"), "{told}");

    let both = at(&["metrics", "points", "other"]).ok();
    let head: Vec<&str> = both.out.lines().next().unwrap().split_whitespace().collect();
    let columns = [
        "policy",
        "learning_rate",
        "evaluate.every_epochs",
        "evaluate.keep_best",
        "data.validation_percent",
        "data.scale",
        "state",
    ];
    assert_eq!(head[1..8], columns, "{}", both.out);
    assert!(
        both.out.lines().next().unwrap().ends_with("evaluated on  test loss  test accuracy"),
        "{}",
        both.out
    );
    let tables = at(&["metrics", "points", "other", "--evaluations"]).ok().out;
    let (first, second) = tables.split_once("\n\nother\n").unwrap();
    assert!(first.starts_with("points\n") && second.contains("validation"), "{tables}");
}
