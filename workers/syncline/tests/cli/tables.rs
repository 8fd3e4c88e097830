//! Tables as other programs write them: semicolons, several files, columns of any scale; and samples from the
//! standard input.

use std::{
    fmt::Write as _,
    fs::{self, File},
    path::Path,
    process::Stdio,
};

use syncline_onnx::mlp;

use crate::{
    json::Page,
    rig::{Ended, Up, command, folder, syncline},
};

const JOB: &str = r#"id = "houses"

[[node]]
name = "train"
do = "train"
model.forward = { onnx = "houses.onnx", loss = "softmax-cross-entropy" }
settings = { batch = 10, epochs = 20, policy = "bsp", learning_rate = 0.5 }

[node.data]
source = { csv = { path = "part-*.csv", label_names = ["dear"] } }
test = { csv = { path = ["test.csv"] } }
standardize = true

[[node]]
name = "test"
do = "evaluate"
after = ["train"]
"#;

/// Three files: prices about 100,000 and shares about 0.5, of which only both together say what is dear; and
/// a column that is 7.
fn write_job(dir: &Path) {
    fs::write(dir.join("houses.onnx"), mlp(&[3, 8, 2], 1).to_bytes()).unwrap();
    let row = |n: u32, between: char| {
        let (price, share) = (100_000 + 1_000 * (n * 7 % 40), 0.4 + 0.005 * f64::from(n * 11 % 40));
        let dear = i32::from((n * 7 % 40) + (n * 11 % 40) > 39);
        format!("{price}{between}{share:.4}{between}7{between}{dear}\n")
    };
    for part in 0..3 {
        let mut text = "price;share;floors;dear\n".to_owned();
        (part * 40..part * 40 + 40).for_each(|n| text.push_str(&row(n, ';')));
        fs::write(dir.join(format!("part-{part}.csv")), text).unwrap();
    }
    let mut test = "price,share,floors,dear\n".to_owned();
    (200..230).for_each(|n| write!(test, "{}", row(n, ',')).unwrap());
    fs::write(dir.join("test.csv"), test).unwrap();
    fs::write(dir.join("houses.toml"), JOB).unwrap();
}

#[test]
fn tables_with_semicolons_in_several_files_are_standardized_alike_for_training_test_and_prediction() {
    let dir = folder();
    let _up = Up::start(&dir, &["--workers", "2"]);
    write_job(dir.path());
    let state_dir = dir.path().to_str().unwrap();
    let at = |args: &[&str]| -> Ended { syncline(&[args, &["--state-dir", state_dir]].concat()) };
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (job, page) = (file("houses.toml"), Page::read());

    let dry = at(&["submit", &job, "--dry-run"]).ok();
    assert!(dry.out.contains("columns     separated by semicolons"), "{}", dry.out);
    assert!(dry.out.contains("standardize = true") && dry.out.contains("mean = ["), "{}", dry.out);
    assert!(dry.err.contains("channel 3 (`floors`) is the same in all training samples"), "{}", dry.err);
    let json = at(&["submit", &job, "--dry-run", "--json"]).ok();
    page.holds("submit --dry-run", &json);
    assert_eq!((&json.json()["separator"], &json.json()["samples"]), (&";".into(), &120.into()));
    let said = at(&["submit", &job, "--watch"]).ok();
    assert!(said.err.contains("columns: separated by semicolons"), "{said:#?}");
    let view = at(&["status", "houses", "--json"]).ok().json();
    assert!(view["job"]["test_accuracy"].as_f64().unwrap() > 0.9, "{view:#}");
    assert!(
        view["job"]["settings"]["data.mean"].as_str().unwrap().starts_with("[119500, 0.4975"),
        "{view:#}"
    );

    // The same samples from the job's files, from files that a pattern means, and from the standard input,
    // plain and packed.
    let of_job = at(&["predict", "houses", "--json"]).ok().json();
    let [one, two] = ["new-1.csv", "new-2.csv"].map(file);
    let test = fs::read_to_string(file("test.csv")).unwrap();
    let (header, rows) = test.split_once('\n').unwrap();
    let (first, second) = rows.split_at(rows.len() / 2);
    let cut = second.find('\n').unwrap() + 1;
    fs::write(&one, format!("{header}\n{first}{}", &second[..cut])).unwrap();
    fs::write(&two, format!("{header}\n{}", &second[cut..]).replace(',', "\t")).unwrap();
    let both = at(&["predict", "houses", "--data", &file("new-*.csv"), "--json"]).ok().json();
    assert_eq!((&both["loss"], &both["samples"]), (&of_job["loss"], &30.into()));
    let given = |path: &str, more: &[&str]| -> Ended {
        let args = [&["predict", "houses", "--data", "-", "--state-dir", state_dir], more].concat();
        command(&args).stdin(Stdio::from(File::open(path).unwrap())).output().unwrap().into()
    };
    let from_input = given(&file("test.csv"), &["--json"]).ok();
    page.holds("predict", &from_input);
    assert_eq!(from_input.json()["loss"], of_job["loss"]);
    assert_eq!(from_input.json()["data"], "the standard input");
    let empty = given("/dev/null", &[]).refused(2, "E333").err;
    assert!(empty.contains("the standard input is not well formed: it has no samples"), "{empty}");
    let two_inputs = at(&["predict", "houses", "--data", "-", &one]).refused(2, "E509").err;
    assert!(two_inputs.contains("has to be the only file"), "{two_inputs}");
    fs::write(&one, "price;share;floors;dear\n100000;0,45;7;1\n").unwrap();
    let comma = given(&one, &[]).refused(2, "E589").err;
    assert!(comma.contains("the standard input line 2, column 2 (`share`): `0,45`"), "{comma}");

    let nothing = at(&["submit", &job, "--set", "data.source.csv.path=none-*.csv"]).refused(2, "E591").err;
    assert!(nothing.contains("none-*.csv means no file"), "{nothing}");
    at(&["submit", &job, "--set", "data.std=[2.0]"]).refused(2, "E480");
    let wrong = at(&["submit", &job, "--set", "data.source.csv.separator=|"]).refused(2, "E369").err;
    assert!(wrong.contains("unknown variant `|`, expected one of `,`, `;`"), "{wrong}");
}

/// An IDX file of bytes.
fn idx(sizes: &[u32], bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![0, 0, 8, sizes.len() as u8];
    sizes.iter().for_each(|size| file.extend(size.to_be_bytes()));
    file.extend(bytes);
    file
}

#[test]
fn files_of_labels_come_with_files_of_samples() {
    let dir = folder();
    let _up = Up::start(&dir, &["--workers", "1"]);
    let state_dir = dir.path().to_str().unwrap();
    let at = |args: &[&str]| -> Ended { syncline(&[args, &["--state-dir", state_dir]].concat()) };
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(file("m.onnx"), mlp(&[2, 4, 2], 1).to_bytes()).unwrap();
    for (part, classes) in [("a", [0, 1]), ("b", [1, 0])] {
        fs::write(file(&format!("x-{part}")), idx(&[2, 2], &[1, 2, 3, 4])).unwrap();
        fs::write(file(&format!("y-{part}")), idx(&[2], &classes)).unwrap();
    }
    let data = "data = { source = { idx = { images = 'x-*', labels = 'y-*' } } }";
    let text = JOB
        .split("[node.data]")
        .next()
        .unwrap()
        .replace("houses", "pairs")
        .replace("pairs.onnx", "m.onnx")
        .replace("batch = 10", "batch = 2");
    fs::write(file("pairs.toml"), format!("{text}{data}\n")).unwrap();
    at(&["submit", &file("pairs.toml"), "--watch"]).ok();
    let [xa, xb, ya, yb] = ["x-a", "x-b", "y-a", "y-b"].map(file);
    let pairs = at(&["predict", "pairs", "--data", &xa, &xb, &ya, &yb, "--json"]).ok().json();
    let own = at(&["predict", "pairs", "--json"]).ok().json();
    assert_eq!((&pairs["loss"], &pairs["samples"]), (&own["loss"], &4.into()));
    let odd = at(&["predict", "pairs", "--data", &xa, &xb, &ya]).refused(2, "E577").err;
    assert!(odd.contains("as many files of labels as of samples, and 3 came"), "{odd}");
    let mut input = command(&["predict", "pairs", "--data", "-", "--state-dir", state_dir]);
    let input: Ended = input.stdin(Stdio::from(File::open(&xa).unwrap())).output().unwrap().into();
    assert!(input.refused(2, "E577").err.contains("and the standard input is one"));
}
