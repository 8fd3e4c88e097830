//! `syncline predict`: what it says of samples is what a job was evaluated on, and what can be counted by
//! hand from its file.

use std::{fs, path::Path, process::Command, thread};

use syncline_onnx::mlp;

use crate::{
    job::write_job,
    json::Page,
    rig::{Ended, Up, folder, syncline},
};

/// What a command with `--json` says where it is refused.
trait Refused {
    fn refused_as_json(self, exit: i32, code: &str) -> String;
}

impl Refused for Ended {
    #[track_caller]
    fn refused_as_json(self, exit: i32, code: &str) -> String {
        assert!(self.code == exit && self.err.contains(&format!("\"{code}\"")), "{self:#?}");
        self.err
    }
}

/// Rows of a CSV file of predictions, as numbers; and its header.
fn table(text: &str) -> (String, Vec<Vec<f64>>) {
    let (header, rows) = text.split_once('\n').unwrap();
    let row = |line: &str| line.split(',').map(|field| field.parse().unwrap()).collect();
    (header.to_owned(), rows.lines().map(row).collect())
}

#[test]
fn a_trained_model_is_tried_on_its_test_samples_and_on_other_files() {
    let dir = folder();
    let _up = Up::start(&dir, &["--workers", "1"]);
    let state_dir = dir.path().to_str().unwrap();
    let at = |args: &[&str]| -> Ended { syncline(&[args, &["--state-dir", state_dir]].concat()) };
    write_job(dir.path(), 5);
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    at(&["submit", &file("points.toml"), "--watch"]).ok();
    on_its_test_samples(&file, &at);
    on_other_files(&file, &at);
    what_cannot_be_predicted_is_refused(&file, &at);
    numbers_are_compared_with_numbers(&file, &at);
    scores_that_are_no_numbers_name_no_class(&file, &at);
    rows_go_to_whoever_reads_them_as_they_come(&file, &at);
    let page = Page::read();
    several_targets(&page, dir.path(), &at);
    several_labels(&page, dir.path(), &at);
}

/// The figures are those of the evaluation, and what the file says can be counted.
fn on_its_test_samples(file: &dyn Fn(&str) -> String, at: &dyn Fn(&[&str]) -> Ended) {
    let out = file("out.csv");
    let view = at(&["status", "points", "--json"]).ok().json();
    let answer = at(&["predict", "points", "--out", &out, "--json"]).ok();
    Page::read().holds("predict", &answer);
    let answer = answer.json();
    assert_eq!((&answer["part"], &answer["samples"]), (&"test".into(), &40.into()));
    for figure in ["loss", "accuracy"] {
        let [told, evaluated] =
            [&answer[figure], &view["job"][format!("test_{figure}")]].map(|figure| figure.as_f64().unwrap());
        assert!((told - evaluated).abs() <= 1e-6 * evaluated, "{figure}: {told}, evaluated {evaluated}");
    }
    let (header, rows) = table(&fs::read_to_string(&out).unwrap());
    assert!(header.starts_with("sample,label,predicted,") && rows.len() == 40, "{header}");
    assert!(rows.iter().zip((0..).step_by(5)).all(|(row, sample)| row[0] == f64::from(sample)), "{rows:?}");
    assert!(rows.iter().all(|row| row[2] == f64::from(u8::from(row[4] > row[3]))), "the highest score");
    let right = rows.iter().filter(|row| row[1] == row[2]).count() as f64;
    assert_eq!(answer["accuracy"].as_f64(), Some(right / 40.0));
    let counted: u64 =
        answer["classes"].as_array().unwrap().iter().map(|class| class["labels"].as_u64().unwrap()).sum();
    assert_eq!(counted, 40);
    let words = at(&["predict", "points"]).ok().out;
    assert!(words.contains("40, test samples of ") && words.contains("class  labels"), "{words}");
}

/// The same numbers in another file, with labels and without.
fn on_other_files(file: &dyn Fn(&str) -> String, at: &dyn Fn(&[&str]) -> Ended) {
    let (_, rows) = table(&fs::read_to_string(file("out.csv")).unwrap());
    let points = fs::read_to_string(file("points.csv")).unwrap();
    let bare: String =
        points.lines().map(|line| line.rsplit_once(',').unwrap().0.to_owned() + "\n").collect();
    fs::write(file("bare.csv"), bare).unwrap();
    fs::copy(file("points.csv"), file("more.csv")).unwrap();
    let all = at(&["predict", "points", "--samples", "all", "--json"]).ok().json();
    let more = at(&["predict", "points", "--data", &file("more.csv"), "--json"]).ok().json();
    assert_eq!((&more["loss"], &more["classes"]), (&all["loss"], &all["classes"]));
    assert_eq!((&more["part"], &more["samples"]), (&serde_json::Value::Null, &200.into()));
    let unlabeled = file("unlabeled.csv");
    let said =
        at(&["predict", "points", "--data", &file("bare.csv"), "--unlabeled", "--out", &unlabeled]).ok();
    assert!(!said.out.contains("loss"), "{said:#?}");
    let (header, bare) = table(&fs::read_to_string(&unlabeled).unwrap());
    assert!(header.starts_with("sample,predicted,"), "{header}");
    assert!(
        rows.iter().all(|row| bare[row[0] as usize][1..] == row[2..]),
        "the same scores for the same numbers"
    );
}

fn what_cannot_be_predicted_is_refused(file: &dyn Fn(&str) -> String, at: &dyn Fn(&[&str]) -> Ended) {
    let (out, unlabeled) = (file("out.csv"), file("unlabeled.csv"));
    at(&["predict", "points", "--out", &out]).refused(2, "E536");
    at(&["predict", "points", "--samples", "validation"]).refused(2, "E578");
    at(&["predict", "points", "--data", &file("bare.csv")]).refused(2, "E362");
    // Several files are one data set, whose columns have the names of the first.
    at(&["predict", "points", "--data", &out, &unlabeled]).refused(2, "E477");
    let away = at(&["predict", "points", "--data", "nowhere.csv"]).refused(2, "E330");
    assert!(away.err.contains("read on this machine"), "{away:#?}");
    at(&["predict", "nobody"]).refused(1, "E131");
}

fn numbers_are_compared_with_numbers(file: &dyn Fn(&str) -> String, at: &dyn Fn(&[&str]) -> Ended) {
    let out = file("out.csv");
    fs::write(file("points.onnx"), mlp(&[2, 8, 1], 1).to_bytes()).unwrap();
    let job = fs::read_to_string(file("points.toml")).unwrap().replace("softmax-cross-entropy", "mse");
    fs::write(file("points.toml"), job).unwrap();
    at(&["submit", &file("points.toml"), "--id", "numbers", "--watch"]).ok();
    let answer = at(&["predict", "numbers", "--out", &out, "--force", "--json"]).ok().json();
    let (header, rows) = table(&fs::read_to_string(&out).unwrap());
    assert!(header.starts_with("sample,label,") && !header.contains("predicted"), "{header}");
    let off: Vec<f64> = rows.iter().map(|row| row[2] - row[1]).collect();
    let near = |figure: &str, want: f64| {
        let told = answer[figure].as_f64().unwrap();
        assert!((told - want).abs() <= 1e-5 * want.abs().max(1.0), "{figure}: {told}, by hand {want}");
    };
    let squares = off.iter().map(|off| off * off).sum::<f64>();
    near("mean_absolute_error", off.iter().map(|off| off.abs()).sum::<f64>() / 40.0);
    near("root_mean_square_error", (squares / 40.0).sqrt());
    let mean = rows.iter().map(|row| row[1]).sum::<f64>() / 40.0;
    near("r_squared", 1.0 - squares / rows.iter().map(|row| (row[1] - mean).powi(2)).sum::<f64>());
    near("loss", squares / 40.0);
    assert_eq!(answer["classes"].as_array().map(Vec::len), Some(0));
}

/// So large numbers become infinite on their way, of both signs.
fn scores_that_are_no_numbers_name_no_class(file: &dyn Fn(&str) -> String, at: &dyn Fn(&[&str]) -> Ended) {
    fs::write(file("large.csv"), "1,1,1\n3e38,-3e38,0\n-3e38,3e38,1\n").unwrap();
    let large = at(&["predict", "points", "--data", &file("large.csv"), "--out", "-"]).ok();
    let nan: Vec<&str> = large.out.lines().filter(|line| line.contains("NaN")).collect();
    assert!(!nan.is_empty() && nan.iter().all(|row| row.split(',').nth(2) == Some("")), "{large:#?}");
    assert!(large.err.contains("NaN scores"), "{large:#?}");
    let answer = at(&["predict", "points", "--data", &file("large.csv"), "--json"]).ok().json();
    assert_eq!(answer["nan_samples"].as_u64(), Some(nan.len() as u64), "{answer:#}");
    assert!(answer["accuracy"].as_f64().unwrap() <= (3 - nan.len()) as f64 / 3.0, "{answer:#}");
}

fn rows_go_to_whoever_reads_them_as_they_come(file: &dyn Fn(&str) -> String, at: &dyn Fn(&[&str]) -> Ended) {
    let rows = fs::read_to_string(file("out.csv")).unwrap();
    for to in ["-", "/dev/stdout"] {
        let piped = at(&["predict", "numbers", "--out", to]).ok();
        assert!(piped.out == rows && piped.err.contains("RMSE"), "{piped:#?}");
    }
    let pipe = file("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = thread::spawn({
        let pipe = pipe.clone();
        move || fs::read_to_string(pipe).unwrap()
    });
    let answer = at(&["predict", "numbers", "--out", &pipe, "--json"]).ok().json();
    assert_eq!((reader.join().unwrap(), answer["file"].as_str()), (rows, Some(pipe.as_str())));
    at(&["predict", "numbers", "--out", "/dev/full"]).refused(2, "E537");
    at(&["predict", "numbers", "--out", "-", "--json"]).refused_as_json(2, "E509");
}

/// The points with a header, and with what `columns` of `x` and `y` say beside them; `order`: how the columns
/// stand.
fn named_points(dir: &Path, to: &str, order: &[&str]) -> String {
    let points = fs::read_to_string(dir.join("points.csv")).unwrap();
    let mut text = order.join(",") + "\n";
    for line in points.lines() {
        let numbers: Vec<f64> = line.split(',').map(|field| field.parse().unwrap()).collect();
        let (x, y) = (numbers[0], numbers[1]);
        let column = |name: &&str| match *name {
            "x" => x,
            "y" => y,
            "sum" => 1.0 + x + y,
            "product" => x * y,
            "right" => f64::from(u8::from(x > 0.5)),
            "above" => f64::from(u8::from(x + y > 0.0)),
            other => unreachable!("{other}"),
        };
        let fields: Vec<String> = order.iter().map(|name| column(name).to_string()).collect();
        text += &(fields.join(",") + "\n");
    }
    let path = dir.join(to);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A job on the points with these labels.
fn submit(dir: &Path, at: &dyn Fn(&[&str]) -> Ended, id: &str, loss: &str, labels: [&str; 2]) {
    named_points(dir, &format!("{id}.csv"), &["x", "y", labels[0], labels[1]]);
    fs::write(dir.join("points.onnx"), mlp(&[2, 8, 2], 1).to_bytes()).unwrap();
    let [first, second] = labels;
    let csv = format!(r#"csv = {{ path = "{id}.csv", label_names = ["{first}", "{second}"] }}"#);
    let job = fs::read_to_string(dir.join("points.toml")).unwrap();
    let job =
        job.replace(r#"csv = { path = "points.csv" }"#, &csv).replace(r#""mse""#, &format!(r#""{loss}""#));
    let path = dir.join(format!("{id}.toml"));
    fs::write(&path, job).unwrap();
    at(&["submit", path.to_str().unwrap(), "--id", id, "--watch"]).ok();
}

/// Columns are found by their names, and each target has its figures.
fn several_targets(page: &Page, dir: &Path, at: &dyn Fn(&[&str]) -> Ended) {
    submit(dir, at, "targets", "mse", ["sum", "product"]);
    let out = dir.join("targets.out.csv").to_str().unwrap().to_owned();
    let predict =
        |data: &str, more: &[&str]| at(&[&["predict", "targets", "--data", data, "--json"], more].concat());
    let as_trained = dir.join("targets.csv").to_str().unwrap().to_owned();
    let answer = predict(&as_trained, &["--out", &out]).ok();
    page.holds("predict", &answer);
    let answer = answer.json();
    let (header, rows) = table(&fs::read_to_string(&out).unwrap());
    assert!(header.starts_with("sample,label[0],label[1],") && rows.len() == 200, "{header}");
    let mut r_squared = Vec::new();
    for target in 0..2 {
        let figures = &answer["targets"][target];
        let mean = rows.iter().map(|row| row[1 + target]).sum::<f64>() / 200.0;
        let spread: f64 = rows.iter().map(|row| (row[1 + target] - mean).powi(2)).sum();
        let off: Vec<f64> = rows.iter().map(|row| row[3 + target] - row[1 + target]).collect();
        let squares: f64 = off.iter().map(|off| off * off).sum();
        r_squared.push(1.0 - squares / spread);
        for (figure, want) in [
            ("mean_absolute_error", off.iter().map(|off| off.abs()).sum::<f64>() / 200.0),
            ("root_mean_square_error", (squares / 200.0).sqrt()),
            ("r_squared", r_squared[target]),
        ] {
            let told = figures[figure].as_f64().unwrap();
            assert!(
                (told - want).abs() <= 1e-5 * want.abs().max(1.0),
                "{figure} of {target}: {told}, {want}"
            );
        }
    }
    let (told, mean) = (answer["r_squared"].as_f64().unwrap(), r_squared.iter().sum::<f64>() / 2.0);
    assert!((told - mean).abs() <= 1e-5 * mean.abs().max(1.0), "{told}, the mean is {mean}");
    let words = at(&["predict", "targets"]).ok().out;
    assert!(words.contains("target") && words.contains("R²"), "{words}");

    let moved = named_points(dir, "moved.csv", &["product", "y", "sum", "x"]);
    assert_eq!(predict(&moved, &[]).ok().json()["targets"], answer["targets"]);
    let unlabeled = |data: &str, more: &[&str]| {
        predict(data, &[&["--unlabeled", "--force", "--out", &out], more].concat()).ok();
        table(&fs::read_to_string(&out).unwrap()).1
    };
    let scores: Vec<Vec<f64>> = rows.iter().map(|row| vec![row[0], row[3], row[4]]).collect();
    let bare = named_points(dir, "unlabeled.csv", &["y", "x"]);
    for data in [&as_trained, &moved, &bare] {
        assert_eq!(unlabeled(data, &[]), scores, "{data}");
    }
    assert_ne!(unlabeled(&bare, &["--by-place"]), scores, "x is taken for y");
    let lacks = predict(&bare, &[]).refused_as_json(2, "E477");
    assert!(lacks.contains("`sum`, `product` is missing") && lacks.contains("--unlabeled"), "{lacks}");
    let more = named_points(dir, "more.csv", &["x", "y", "sum", "product", "above"]);
    assert!(predict(&more, &[]).refused_as_json(2, "E477").contains("`above` is none of the latter"));

    // Another machine has no data of the job.
    fs::rename(&as_trained, dir.join("away.csv")).unwrap();
    let unknown = predict(&moved, &[]).refused_as_json(2, "E581");
    assert!(unknown.contains("--by-place") && unknown.contains("E330"), "{unknown}");
    let away = dir.join("away.csv").to_str().unwrap().to_owned();
    assert_eq!(predict(&away, &["--by-place"]).ok().json()["targets"], answer["targets"]);
}

/// Labels of which a sample has any number.
fn several_labels(page: &Page, dir: &Path, at: &dyn Fn(&[&str]) -> Ended) {
    submit(dir, at, "labels", "bce-with-logits", ["right", "above"]);
    let out = dir.join("labels.out.csv").to_str().unwrap().to_owned();
    let answer = at(&["predict", "labels", "--out", &out, "--json"]).ok();
    page.holds("predict", &answer);
    let answer = answer.json();
    let (header, rows) = table(&fs::read_to_string(&out).unwrap());
    assert!(header.starts_with("sample,label[0],label[1],predicted[0],predicted[1],"), "{header}");
    let count = |holds: &dyn Fn(&Vec<f64>) -> bool| rows.iter().filter(|row| holds(row)).count() as u64;
    for label in 0..2 {
        let given = |row: &Vec<f64>| row[3 + label] == 1.0;
        assert!(rows.iter().all(|row| given(row) == (row[5 + label] > 0.0)), "a score above zero");
        let figures = &answer["labels"][label];
        for (figure, want) in [
            ("support", count(&|row| row[1 + label] == 1.0)),
            ("predicted", count(&given)),
            ("right", count(&|row| given(row) && row[1 + label] == 1.0)),
        ] {
            assert_eq!(figures[figure].as_u64(), Some(want), "{figure} of {label}");
        }
    }
    let near = |figure: &str, want: f64| {
        assert!(
            (answer[figure].as_f64().unwrap() - want).abs() < 1e-6,
            "{figure}: {}, {want}",
            answer[figure]
        );
    };
    let elements = count(&|row| row[1] == row[3]) + count(&|row| row[2] == row[4]);
    near("accuracy", elements as f64 / 80.0);
    near("subset_accuracy", count(&|row| row[1..3] == row[3..5]) as f64 / 40.0);
    let words = at(&["predict", "labels"]).ok().out;
    assert!(words.contains("subset ") && words.contains("label  support"), "{words}");
}
