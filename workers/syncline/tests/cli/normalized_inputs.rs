//! A model of an image and a table, each of which is normalized by its own numbers: submitted, trained,
//! tested, predicted and exported.

use std::{
    fs,
    io::{Cursor, Write as _},
    path::Path,
};

use syncline_onnx::{ElementType, GraphBuilder, attr_int, parse};
use zip::{ZipWriter, write::SimpleFileOptions};

use crate::{
    json::Page,
    rig::{Ended, Up, folder, syncline},
};

const JOB: &str = r#"id = "houses"
model.forward = { onnx = "houses.onnx", loss = "softmax-cross-entropy" }
settings = { batch = 10, epochs = 60, policy = "bsp", learning_rate = 0.5 }

[data]
source = { npz = { path = "train.npz" } }
test = { npz = { path = "test.npz" } }

[data.normalize.image]
scale = 0.00392156862745098

[data.normalize.table]
standardize = true
"#;

/// Scores of two classes: those of the pixels, and of the columns of the table.
fn write_model(path: &Path) {
    let mut graph = GraphBuilder::new("houses");
    let image = graph.input("image", ElementType::F32, &["batch".into(), 1.into(), 2.into(), 2.into()]);
    let table = graph.input("table", ElementType::F32, &["batch".into(), 2.into()]);
    let pixels = graph.op("Flatten", &[&image], &[attr_int("axis", 1)]);
    let of_pixels = graph.weight("pixels.weight", &[4, 2], &[0.1, -0.1, 0.05, 0.0, -0.05, 0.1, 0.0, 0.05]);
    let of_table = graph.weight("table.weight", &[2, 2], &[0.1, -0.1, 0.05, 0.0]);
    let [pixels, table] =
        [(&pixels, &of_pixels), (&table, &of_table)].map(|(x, weight)| graph.op("MatMul", &[x, weight], &[]));
    let scores = graph.op("Add", &[&pixels, &table], &[]);
    graph.output(&scores);
    fs::write(path, graph.finish().to_bytes()).unwrap();
}

/// An array as numpy writes it.
fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let length = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), data].concat()
}

/// Bytes of an image, and prices about 100,000 beside shares about 0.5: dear is what lies above the mean of
/// both and of a pixel together.
fn write_arrays(path: &Path, samples: std::ops::Range<u32>) {
    let (mut image, mut table, mut label) = (Vec::new(), Vec::new(), Vec::new());
    for n in samples.clone() {
        let (price, share, pixel) = (n * 7 % 40, n * 11 % 40, n * 13 % 40);
        image.extend([(pixel * 6) as u8, 128, (n % 200) as u8, 7]);
        for number in [f64::from(100_000 + 1_000 * price), 0.4 + 0.005 * f64::from(share)] {
            table.extend(number.to_le_bytes());
        }
        label.push(u8::from(price + share + pixel > 58));
    }
    let count = samples.len();
    let arrays = [
        ("image.npy", npy("|u1", &format!("({count}, 1, 2, 2)"), &image)),
        ("table.npy", npy("<f8", &format!("({count}, 2)"), &table)),
        ("label.npy", npy("|u1", &format!("({count},)"), &label)),
    ];
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in arrays {
        archive.start_file(name, SimpleFileOptions::default()).unwrap();
        archive.write_all(&bytes).unwrap();
    }
    fs::write(path, archive.finish().unwrap().into_inner()).unwrap();
}

#[test]
fn an_image_is_scaled_and_a_table_standardized_for_training_test_prediction_and_export() {
    let dir = folder();
    let _up = Up::start(&dir, &["--workers", "2"]);
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    write_model(&dir.path().join("houses.onnx"));
    write_arrays(&dir.path().join("train.npz"), 0..120);
    write_arrays(&dir.path().join("test.npz"), 200..240);
    let (job, page) = (file("houses.toml"), Page::read());
    fs::write(&job, JOB).unwrap();
    let state_dir = dir.path().to_str().unwrap();
    let at = |args: &[&str]| -> Ended { syncline(&[args, &["--state-dir", state_dir]].concat()) };
    let with = |set: &[&str]| -> Ended {
        let set: Vec<&str> = set.iter().flat_map(|set| ["--set", set]).collect();
        at(&[&["submit", &job, "--dry-run"][..], &set].concat())
    };

    let misspelt = with(&["data.normalize.imag.scale=0.5"]).refused(2, "E667").err;
    assert!(misspelt.contains("the inputs `image`, `table`; did you mean `image`?"), "{misspelt}");
    let useless = with(&["data.scale=0.5"]).refused(2, "E480").err;
    assert!(useless.contains("`scale` must be left out"), "{useless}");
    let twice = with(&["data.normalize.table.std=[2.0]"]).refused(2, "E480").err;
    assert!(twice.contains("`normalize.table.standardize` computes `normalize.table.mean`"), "{twice}");
    let shared = with(&["data.normalize={}", "data.standardize=true"]).refused(2, "E593").err;
    assert!(shared.contains("[data.normalize.NAME]"), "{shared}");
    let doubted = with(&["data.normalize={}", "data.scale=0.5"]).ok().err;
    assert!(doubted.contains("`scale` of the data scales several inputs of floats alike"), "{doubted}");

    let dry = with(&[]).ok();
    assert!(dry.out.contains("normalize.image.scale = 0.003921569"), "{}", dry.out);
    assert!(dry.out.contains("normalize.table.mean = [119500, 0.4975"), "{}", dry.out);
    assert!(!dry.err.contains("alike"), "{}", dry.err);
    at(&["submit", &job, "--watch"]).ok();
    let view = at(&["status", "houses", "--json"]).ok().json();
    let settings = &view["job"]["settings"];
    assert_eq!(settings["data.normalize.image.scale"], "0.003921569", "{view:#}");
    assert_eq!(settings["data.normalize.table.standardize"], "true", "{view:#}");
    assert!(view["job"]["test_accuracy"].as_f64().unwrap() > 0.85, "{view:#}");

    // Other files are normalized as those that trained, and not by their own mean.
    let of_job = at(&["predict", "houses", "--json"]).ok().json();
    let of_file = at(&["predict", "houses", "--data", &file("test.npz"), "--json"]).ok().json();
    assert_eq!((&of_file["loss"], &of_file["samples"]), (&of_job["loss"], &40.into()));
    assert!(of_file["loss"].is_number(), "{of_file:#}");

    let said = at(&["model", "export", "houses", &file("plain.onnx")]).ok().out;
    assert!(
        said.contains("its input `image` is x * 0.003921569, its input `table` is (x - mean) / std of"),
        "{said}"
    );
    let json = at(&["model", "export", "houses", &file("again.onnx"), "--json"]).ok();
    page.holds("model export", &json);
    assert_eq!(json.json()["normalize"]["table"], "(x - mean) / std");
    let exported = file("trained.onnx");
    at(&["model", "export", "houses", &exported, "--with-normalization"]).ok();
    let model = parse(&fs::read(&exported).unwrap()).unwrap().graph.unwrap();
    let reads = |op: &str, input: &str| {
        model.node.iter().any(|node| node.op_type == op && node.input.iter().any(|read| read == input))
    };
    assert!(reads("Mul", "image") && reads("Sub", "table") && !reads("Sub", "image"), "{:?}", model.node);
}
