//! `syncline predict`: what it says of samples is what a job was evaluated on, and what can be counted by hand from its file.

use std::fs;

use syncline_onnx::mlp;

use crate::{
    job::write_job,
    json::Page,
    rig::{Ended, Up, folder, syncline},
};

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
    let view = at(&["status", "points", "--json"]).ok().json();

    let page = Page::read();
    let out = file("out.csv");
    let answer = at(&["predict", "points", "--out", &out, "--json"]).ok();
    page.holds("predict", &answer);
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

    // The same numbers in another file, with labels and without.
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

    at(&["predict", "points", "--out", &out]).refused(2, "E536");
    at(&["predict", "points", "--samples", "validation"]).refused(2, "E578");
    at(&["predict", "points", "--data", &file("bare.csv")]).refused(2, "E362");
    at(&["predict", "points", "--data", &out, &unlabeled]).refused(2, "E577");
    let away = at(&["predict", "points", "--data", "nowhere.csv"]).refused(2, "E330");
    assert!(away.err.contains("read on this machine"), "{away:#?}");
    at(&["predict", "nobody"]).refused(1, "E131");

    // Numbers are compared with numbers.
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
