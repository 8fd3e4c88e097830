//! A table whose columns go to two inputs of a model: ids, which it looks up, and numbers, which are
//! standardized.

use std::{fs, path::Path};

use syncline_onnx::{ElementType, GraphBuilder, attr_int, parse, proto::TensorProto};

use crate::rig::{Ended, Up, folder, syncline};

const CITIES: usize = 4;
const JOBS: usize = 3;

const JOB: &str = r#"id = "people"
model.forward = { onnx = "people.onnx", loss = "softmax-cross-entropy" }
settings = { batch = 10, epochs = 30, policy = "bsp", learning_rate = 0.5, evaluate = { every_epochs = 10 } }

[data]
source = { csv = { path = "people.csv", label_names = ["bought"] } }
test = { csv = { path = "test.csv" } }
validation_percent = 10
standardize = true

[data.inputs]
categories = ["city", "job"]
numbers = ["age", "income"]
"#;

/// Scores of two classes: those of the city, of the job, and of the numbers.
fn write_model(path: &Path) {
    let mut graph = GraphBuilder::new("people");
    let ids = graph.input("categories", ElementType::I64, &["batch".into(), 2.into()]);
    let numbers = graph.input("numbers", ElementType::F32, &["batch".into(), 2.into()]);
    let [city, job] = [(0, CITIES), (1, JOBS)].map(|(at, rows)| {
        let first: Vec<f32> = (0..rows * 2).map(|i| (i % 5) as f32 / 50.0).collect();
        let table = graph.weight(&format!("table_{at}.weight"), &[rows, 2], &first);
        let at = graph.constant(TensorProto::from_i64(&format!("at_{at}"), &[], &[at]));
        let column = graph.op("Gather", &[&ids, &at], &[attr_int("axis", 1)]);
        graph.op("Gather", &[&table, &column], &[])
    });
    let weight = graph.weight("numbers.weight", &[2, 2], &[0.1, -0.1, 0.05, 0.0]);
    let of_numbers = graph.op("MatMul", &[&numbers, &weight], &[]);
    let of_ids = graph.op("Add", &[&city, &job], &[]);
    let scores = graph.op("Add", &[&of_ids, &of_numbers], &[]);
    graph.output(&scores);
    fs::write(path, graph.finish().to_bytes()).unwrap();
}

/// Age and city as floats, of which the model casts the city and looks it up.
fn write_model_of_floats(path: &Path) {
    let mut graph = GraphBuilder::new("floats");
    let x = graph.input("x", ElementType::F32, &["batch".into(), 2.into()]);
    let at = graph.constant(TensorProto::from_i64("at", &[], &[1]));
    let city = graph.op("Gather", &[&x, &at], &[attr_int("axis", 1)]);
    let city = graph.op("Cast", &[&city], &[attr_int("to", 7)]);
    let table = graph.weight("table.weight", &[CITIES, 2], &[0.1; 2 * CITIES]);
    let city = graph.op("Gather", &[&table, &city], &[]);
    let weight = graph.weight("x.weight", &[2, 2], &[0.1, -0.1, 0.05, 0.0]);
    let of_numbers = graph.op("MatMul", &[&x, &weight], &[]);
    let scores = graph.op("Add", &[&city, &of_numbers], &[]);
    graph.output(&scores);
    fs::write(path, graph.finish().to_bytes()).unwrap();
}

/// City, age, job, income and whether something was bought, which city and age say together.
fn row(n: u32) -> [u32; 5] {
    let (city, age) = (n % 4, 20 + n * 7 % 50);
    [city, age, n % 3, 20_000 + n * 911 % 9_000, u32::from(age / 10 + 2 * city > 7)]
}

/// Samples with and without what is no input, the columns in an order of their own.
fn write_tables(dir: &Path) {
    let named = |n: u32| {
        let [city, age, job, income, bought] = row(n);
        format!("P. {n},{city},{age},{job},{income}.5,{bought}\n")
    };
    let people: String = (0..200).map(named).collect();
    fs::write(dir.join("people.csv"), format!("name,city,age,job,income,bought\n{people}")).unwrap();
    let samples = || (500..540).map(row);
    let test =
        samples().map(|[city, age, job, income, bought]| format!("{bought},{income}.5,{job},{age},{city}\n"));
    fs::write(dir.join("test.csv"), format!("bought,income,job,age,city\n{}", test.collect::<String>()))
        .unwrap();
    let new = samples().map(|[city, age, job, income, _]| format!("new;{job};{age};{city};{income}.5\n"));
    fs::write(dir.join("new.csv"), format!("note;job;age;city;income\n{}", new.collect::<String>())).unwrap();
}

#[test]
fn a_table_of_ids_and_numbers_trains_a_model_of_two_inputs_which_predicts_and_is_exported() {
    let dir = folder();
    let _up = Up::start(&dir, &["--workers", "2"]);
    write_model(&dir.path().join("people.onnx"));
    write_tables(dir.path());
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let job = file("people.toml");
    fs::write(&job, JOB).unwrap();
    let state_dir = dir.path().to_str().unwrap();
    let at = |args: &[&str]| -> Ended { syncline(&[args, &["--state-dir", state_dir]].concat()) };
    let refused = |set: &str, code: &str| at(&["submit", &job, "--set", set]).refused(2, code).err;

    let missing = refused("data.inputs.numbers=['age', 'wage']", "E636");
    assert!(
        missing.contains("`numbers` takes `wage`, and the file names `name`, `city`, `age`"),
        "{missing}"
    );
    let unknown = refused("data.inputs.cats=['name']", "E637");
    assert!(
        unknown.contains("it names `cats`, and the model has the inputs `categories`, `numbers`"),
        "{unknown}"
    );
    refused("data.inputs={}", "E363");

    write_model_of_floats(&dir.path().join("floats.onnx"));
    let of_floats = |more: &[&str]| {
        let model = ["submit", &job, "--dry-run", "--set", "model.forward.onnx=floats.onnx"];
        at(&[&model[..], &["--set", "data.inputs={ x = ['age', 'city'] }"], more].concat())
    };
    let ids = of_floats(&[]).refused(2, "E639").err;
    assert!(
        ids.contains("column 2, `city`, of the model's input x is looked up in a table of 4 rows"),
        "{ids}"
    );
    of_floats(&["--set", "data.standardize=false"]).ok();
    let floats = ["--id", "floats", "--set", "model.forward.onnx=floats.onnx", "--watch"];
    let inputs = ["--set", "data.inputs={ x = ['age', 'city'] }", "--set", "data.standardize=false"];
    at(&[&["submit", &job][..], &floats, &inputs].concat()).ok();
    fs::write(file("city.csv"), "age,city\n30,3\n30,4\n").unwrap();
    let unknown =
        at(&["predict", "floats", "--data", &file("city.csv"), "--unlabeled"]).refused(2, "E488").err;
    assert!(
        unknown.contains("4 is not in the table of the model's input x, whose rows are 0 to 3"),
        "{unknown}"
    );

    let dry = at(&["submit", &job, "--dry-run"]).ok().out;
    assert!(dry.contains("inputs.categories = ['city', 'job']"), "{dry}");
    at(&["submit", &job, "--watch"]).ok();
    let view = at(&["status", "people", "--json"]).ok().json();
    assert!(view["job"]["test_accuracy"].as_f64().unwrap() > 0.85, "{view:#}");

    // The same samples from another file, with names in another order and without labels.
    let [of_job, of_file] = [file("of-job.csv"), file("of-file.csv")];
    at(&["predict", "people", "--out", &of_job]).ok();
    at(&["predict", "people", "--data", &file("new.csv"), "--unlabeled", "--out", &of_file]).ok();
    let scores = |path: &str, columns: usize| -> Vec<String> {
        let text = fs::read_to_string(path).unwrap();
        let scores = |line: &str| line.splitn(columns + 1, ',').last().unwrap().to_owned();
        text.lines().skip(1).map(scores).collect()
    };
    let found = scores(&of_file, 1);
    assert_eq!((found.len(), &found), (40, &scores(&of_job, 2)));

    let exported = file("trained.onnx");
    at(&["model", "export", "people", &exported, "--with-normalization"]).ok();
    let model = parse(&fs::read(&exported).unwrap()).unwrap().graph.unwrap();
    let reads = |op: &str, input: &str| {
        model.node.iter().any(|node| node.op_type == op && node.input.iter().any(|read| read == input))
    };
    assert!(reads("Sub", "numbers") && reads("Gather", "categories"), "{:?}", model.node);
}
