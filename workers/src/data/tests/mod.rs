//! Readers from the file to the batch.

mod augmentation;
mod csv;
mod csv_headers;
mod csv_inputs;
mod csv_on_disk;
mod csv_separators;
mod csv_texts;
mod label_counts;
mod named_arrays;
mod normalize;
mod numpy;
mod on_disk;
mod several_files;
mod standard;
mod tables;
mod text_and_images;

use std::io::Write;
use std::path::{Path, PathBuf};
use syncline_ps::content::digest_of;

use flate2::{Compression, write::GzEncoder};
use safetensors::Dtype;
use syncline_onnx::ElementType;
use syncline_onnx::TensorView;
use syncline_scheduler::{
    ids::ContentDigest,
    spec::{AxisOrder, ChannelAxis, CsvSource, DataElement, DataSpec, Files, Separator, Source, Split},
};

use super::{file::NPY_MARK, *};
use tempfile::TempDir;

const CLASSES: Target = Target::Classes { count: 3, ignored: None };

fn write(folder: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn csv_spec(path: &Path, label_columns: u32, skip_lines: u32) -> DataSpec {
    DataSpec::new(CsvSource::new(path).label_columns(label_columns).skip_lines(skip_lines))
}

/// A CSV file with a header that names the label.
fn named_csv_spec(path: &Path, label_names: &[&str]) -> DataSpec {
    DataSpec::new(CsvSource::new(path).label_names(label_names.iter().copied()))
}

fn idx_source(images: &Path, labels: &Path) -> Source {
    Source::idx(images, labels)
}

fn idx_spec(images: &Path, labels: &Path) -> DataSpec {
    DataSpec::new(idx_source(images, labels))
}

/// An IDX file.
fn idx(kind: u8, dims: &[u32], data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, kind, dims.len() as u8];
    dims.iter().for_each(|size| bytes.extend(size.to_be_bytes()));
    bytes.extend(data);
    bytes
}

fn input(name: &str, element: DataElement, shape: &[Option<usize>]) -> InputSignature {
    InputSignature { name: name.to_owned(), element, shape: shape.to_vec(), rows: Vec::new() }
}

fn label(target: Target, shape: &[Option<usize>]) -> LabelSignature {
    LabelSignature { name: "label".to_owned(), target, shape: shape.to_vec() }
}

/// One float input of any width, one label of this kind.
fn wants(target: Target) -> ModelSignature {
    ModelSignature { inputs: vec![input("x", DataElement::F32, &[None])], label: Some(label(target, &[])) }
}

/// The same with another input.
fn wants_input(element: DataElement, shape: &[Option<usize>]) -> ModelSignature {
    ModelSignature { inputs: vec![input("x", element, shape)], ..wants(CLASSES) }
}

fn open_csv(text: &str, target: Target) -> Result<Dataset, DataError> {
    let folder = TempDir::new().unwrap();
    Dataset::open(&csv_spec(&write(&folder, "data.csv", text.as_bytes()), 1, 0), &wants(target))
}

/// Numbers of a batch, whatever their type, and its shape.
fn numbers(view: TensorView<'_>) -> (Vec<usize>, Vec<f64>) {
    let data = match view {
        TensorView::F32 { data, .. } => data.iter().map(|&number| number.into()).collect(),
        TensorView::F64 { data, .. } => data.to_vec(),
        TensorView::I32 { data, .. } => data.iter().map(|&number| number.into()).collect(),
        TensorView::I64 { data, .. } => data.iter().map(|&number| number as f64).collect(),
        TensorView::Bool { data, .. } => data.iter().map(|&truth| f64::from(u8::from(truth))).collect(),
        TensorView::U8 { .. } => panic!("no source gives {}", view.element()),
    };
    (view.shape().to_vec(), data)
}

/// All samples of the first input.
fn samples(data: &Dataset) -> Vec<f64> {
    let mut batch = data.batch();
    data.gather(&(0..data.len() as u32).collect::<Vec<_>>(), &mut batch).unwrap();
    let first = batch.inputs().next().unwrap();
    numbers(first).1
}

fn labels(data: &Dataset) -> Vec<f64> {
    let mut batch = data.batch();
    data.gather(&(0..data.len() as u32).collect::<Vec<_>>(), &mut batch).unwrap();
    let label = batch.label().unwrap();
    numbers(label).1
}

fn refused(spec: &DataSpec, wanted: &ModelSignature, code: &str, words: &str) {
    let error = Dataset::open(spec, wanted).unwrap_err();
    assert!(error.code() == code && error.to_string().starts_with(&format!("[{code}]")), "{code}: {error}");
    assert!(error.to_string().contains(words), "`{words}` is not in: {error}");
}

#[test]
fn hints_name_what_the_page_on_data_allows() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "data.csv", b"1,2,9\n");
    let hint = |spec: &DataSpec, code| {
        let error = Dataset::open(spec, &wants(CLASSES)).unwrap_err();
        assert_eq!(error.code(), code);
        error.hint().unwrap()
    };
    let spec = csv_spec(&path, 1, 0);
    assert!(hint(&spec, "E337").contains("`ignore_index`"));
    assert!(hint(&spec, "E337").contains("`label_columns`"));
    let wide = csv_spec(&write(&folder, "wide.csv", b"1,2,3,0\n"), 1, 0);
    let narrow = Dataset::open(&wide, &wants_input(DataElement::F32, &[Some(2)])).unwrap_err();
    assert_eq!(narrow.code(), "E362");
    assert!(narrow.hint().unwrap().contains("`label_columns`"));
    assert!(hint(&DataSpec { sample_shape: vec![3], ..spec.clone() }, "E338").contains("`sample_shape`"));
    assert!(hint(&DataSpec { scale: f32::NAN, ..spec }, "E480").contains("docs/data.md"));
}

fn digest(spec: &DataSpec) -> Result<ContentDigest, DataError> {
    Dataset::open_hashed(spec, &wants(CLASSES)).map(|(_, digests)| digests.all)
}

#[test]
fn other_bytes_than_the_digest_says_are_refused() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "data.csv", b"1,2,0\n");
    let mut spec = csv_spec(&path, 1, 0);
    spec.digest = Some(digest(&spec).unwrap());
    assert_eq!(spec.digest, Some(digest_of(b"1,2,0\n")));
    assert!(Dataset::open(&spec, &wants(CLASSES)).is_ok());
    write(&folder, "data.csv", b"1,2,1\n");
    assert_eq!(Dataset::open(&spec, &wants(CLASSES)).unwrap_err().code(), "E331");
}

#[test]
fn missing_and_broken_files_are_refused() {
    let folder = TempDir::new().unwrap();
    let missing = csv_spec(&folder.path().join("nowhere.csv"), 1, 0);
    assert_eq!(Dataset::open(&missing, &wants(CLASSES)).unwrap_err().code(), "E330");
    assert_eq!(digest(&missing).unwrap_err().code(), "E330");
    let broken = csv_spec(&write(&folder, "data.csv.gz", b"1,2,0\n"), 1, 0);
    assert_eq!(Dataset::open(&broken, &wants(CLASSES)).unwrap_err().code(), "E330");
    for endless in [Path::new("/dev/zero"), folder.path()] {
        let error = Dataset::open(&csv_spec(endless, 1, 0), &wants(CLASSES)).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(error.code() == "E330" && cause.ends_with(", not a file"), "{error}: {cause}");
    }
}

#[test]
fn batches_are_gathered_into_the_same_buffers() {
    let data = open_csv("1,2,0\n3,4,1\n5,6,2\n", CLASSES).unwrap();
    let mut batch = data.batch();
    assert!(batch.is_empty());
    data.gather(&[2, 0, 2], &mut batch).unwrap();
    let address = |batch: &Batch| match batch.inputs().next() {
        Some(TensorView::F32 { data, .. }) => data.as_ptr(),
        _ => unreachable!("the input is float32"),
    };
    let before = address(&batch);
    match (batch.inputs().next().unwrap(), batch.label().unwrap()) {
        (TensorView::F32 { shape, data }, TensorView::I64 { shape: label_shape, data: label }) => {
            assert_eq!((shape, data), ([3, 2].as_slice(), [5.0, 6.0, 1.0, 2.0, 5.0, 6.0].as_slice()));
            assert_eq!((label_shape, label), ([3].as_slice(), [2, 0, 2].as_slice()));
        }
        other => panic!("unexpected views {other:?}"),
    }
    data.gather(&[1], &mut batch).unwrap();
    assert_eq!((batch.len(), batch.label().unwrap().shape()), (1, [1].as_slice()));
    assert_eq!(address(&batch), before, "no new allocation");
    assert_eq!(
        data.gather(&[0, 3], &mut batch).unwrap_err().to_string(),
        "[E339] row 3 was asked for, the data set has 3 rows"
    );
}

#[test]
fn a_split_is_a_partition() {
    let data = open_csv("1,0\n2,0\n3,0\n4,0\n5,0\n", CLASSES).unwrap();
    assert_eq!(data.split(Split::All, 0).unwrap(), (vec![0, 1, 2, 3, 4], vec![]));
    assert_eq!(data.split(Split::TestEvery(2), 0).unwrap(), (vec![1, 3], vec![0, 2, 4]));
}

#[test]
fn test_samples_that_are_drawn_have_each_class_by_its_share_whatever_the_seed_of_the_training() {
    // Sorted by class, as a file that is split by place would lack one.
    let text: String = (0..100).map(|i| format!("{i},{}\n", u8::from(i >= 80))).collect();
    let data = open_csv(&text, CLASSES).unwrap();
    let spec = DataSpec { split: Split::TestPercent(10), ..DataSpec::new(Source::csv("d")) };
    let parts = data.parts(&spec, 7).unwrap();
    let counts = data.label_counts(&parts.test).unwrap().unwrap();
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), [(0, 8), (1, 2)]);
    let mut all = [parts.train.clone(), parts.test.clone()].concat();
    all.sort_unstable();
    assert_eq!(all, (0..100).collect::<Vec<u32>>());
    assert_eq!(data.parts(&spec, 8).unwrap(), parts);
    let drawn = DataSpec { hold_out_seed: Some(1), ..spec.clone() };
    assert_ne!(data.parts(&drawn, 7).unwrap().test, parts.test);
    let validated = data.parts(&DataSpec { validation_percent: Some(10), ..spec }, 7).unwrap();
    assert_eq!((validated.test, validated.validation.len()), (parts.test, 9));
}

#[test]
fn samples_that_are_held_out_are_drawn_by_the_seed_and_train_nothing() {
    let text: String = (0..100).map(|i| format!("{i},0\n")).collect();
    let data = open_csv(&text, CLASSES).unwrap();
    let spec = |percent| DataSpec {
        validation_percent: Some(percent),
        split: Split::TestEvery(5),
        ..DataSpec::new(Source::csv("d"))
    };
    for percent in [1, 10, 33, 99] {
        let parts = data.parts(&spec(percent), 7).unwrap();
        assert_eq!(parts.validation.len(), (80 * percent as usize).div_ceil(100), "of what would train");
        assert_eq!(parts.test, data.split(Split::TestEvery(5), 0).unwrap().1);
        let mut all = [parts.train, parts.validation, parts.test].concat();
        all.sort_unstable();
        assert_eq!(all, (0..100).collect::<Vec<u32>>());
    }
    let held = |seed| data.parts(&spec(10), seed).unwrap().validation;
    assert_eq!(held(7), held(7));
    assert_ne!(held(7), held(8));
    let by_its_own = DataSpec { hold_out_seed: Some(7), ..spec(10) };
    assert_eq!(data.parts(&by_its_own, 8).unwrap().validation, held(7));
    assert!(held(7).is_sorted() && held(7).windows(2).any(|pair| pair[1] - pair[0] > 2), "{:?}", held(7));
}

#[test]
fn samples_that_validate_are_of_each_class_its_share() {
    let text: String = (0..100).map(|i| format!("{i},{}\n", u32::from(i % 5 == 1))).collect();
    let data = open_csv(&text, CLASSES).unwrap();
    let spec = DataSpec { validation_percent: Some(10), ..DataSpec::new(Source::csv("d")) };
    for seed in 0..20 {
        let validation = data.parts(&spec, seed).unwrap().validation;
        let rare = validation.iter().filter(|&&row| row % 5 == 1).count();
        assert_eq!((validation.len(), rare), (10, 2), "seed {seed}: {validation:?}");
    }
}

#[test]
fn a_validation_part_of_its_own_comes_behind_the_test_part() {
    let folder = TempDir::new().unwrap();
    let [train, test, validation] = ["1,0\n2,1\n", "3,2\n", "4,0\n5,1\n"].map(|text| text.as_bytes());
    let source = |name: &str, bytes: &[u8]| csv_spec(&write(&folder, name, bytes), 1, 0).source;
    let spec = DataSpec {
        test: Some(source("b", test)),
        validation: Some(source("c", validation)),
        ..DataSpec::new(source("a", train))
    };
    let wanted = wants(CLASSES);
    let data = Dataset::open(&spec, &wanted).unwrap();
    assert_eq!(samples(&data), [1.0, 2.0, 3.0, 4.0, 5.0]);
    let parts = Parts { train: vec![0, 1], validation: vec![3, 4], test: vec![2] };
    assert_eq!(data.parts(&spec, 0).unwrap(), parts);
    let whole = [train, test, validation].concat();
    assert_eq!(digest(&spec).unwrap(), digest_of(&whole));
    let both = DataSpec { validation_percent: Some(10), ..spec };
    refused(&both, &wanted, "E480", "the validation set must come from");
}

/// A safetensors file.
fn tensors(all: &[(&str, Dtype, &[usize], &[u8])]) -> Vec<u8> {
    let views = all.iter().map(|&(name, dtype, shape, data)| {
        (name, safetensors::tensor::TensorView::new(dtype, shape.to_vec(), data).unwrap())
    });
    safetensors::serialize(views, None).unwrap()
}

#[test]
fn a_test_part_of_its_own_comes_behind_the_training_samples() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str, kind, dims: &[u32], data: &[u8]| write(&folder, name, &idx(kind, dims, data));
    let train = idx_source(&file("a", 8, &[2, 1], &[10, 20]), &file("b", 8, &[2], &[0, 1]));
    let test = idx_source(&file("c", 8, &[1, 1], &[30]), &file("d", 8, &[1], &[2]));
    let spec = DataSpec { test: Some(test), scale: 0.5, ..DataSpec::new(train) };
    let data = Dataset::open(&spec, &wants(CLASSES)).unwrap();
    assert_eq!((samples(&data), labels(&data)), (vec![5.0, 10.0, 15.0], vec![0.0, 1.0, 2.0]));
    assert_eq!(data.split(Split::All, 0).unwrap(), (vec![0, 1], vec![2]));
    let whole = ["a", "b", "c", "d"].map(|name| std::fs::read(folder.path().join(name)).unwrap()).concat();
    assert_eq!(digest(&spec).unwrap(), digest_of(&whole));

    let both = DataSpec { split: Split::TestEvery(2), ..spec.clone() };
    refused(&both, &wants(CLASSES), "E480", "not from both");
    let floats = file("f", 0x0d, &[1, 1], &1.0f32.to_be_bytes());
    let other_type = idx_source(&floats, &folder.path().join("d"));
    refused(
        &DataSpec { test: Some(other_type), ..spec.clone() },
        &wants(CLASSES),
        "E480",
        "`x` is uint8 [1] a sample in `source` and float32 [1] in `test`",
    );
    let wider = idx_source(&file("w", 8, &[1, 2], &[1, 2]), &folder.path().join("d"));
    refused(
        &DataSpec { test: Some(wider), ..spec.clone() },
        &wants(CLASSES),
        "E480",
        "and uint8 [2] in `test`",
    );
    let bad_label = idx_source(&folder.path().join("c"), &file("e", 8, &[1], &[9]));
    refused(&DataSpec { test: Some(bad_label), ..spec }, &wants(CLASSES), "E337", "e row 1: label 9");
}

proptest::proptest! {
    #[test]
    fn random_files_never_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..80), packed: bool) {
        let folder = TempDir::new().unwrap();
        let name = if packed { "data.gz" } else { "data" };
        let path = write(&folder, name, &bytes);
        let _ = Dataset::open(&csv_spec(&path, 1, 0), &wants(CLASSES));
        let _ = Dataset::open(&idx_spec(&path, &path), &wants(CLASSES));
        let text_source = Source::Text { path: text(&path), context: 2, stride: 1 };
        let _ = Dataset::open(&DataSpec::new(text_source), &wants(CLASSES));
        let _ = Dataset::open(&DataSpec::new(Source::safetensors(&path)), &wants(CLASSES));
    }

    #[test]
    fn damaged_tensors_never_panic(at in 0usize..300, byte: u8, cut in 0usize..300) {
        let folder = TempDir::new().unwrap();
        let mut bytes = tensors(&[("x", Dtype::I64, &[2, 2], &[0; 32]), ("label", Dtype::U8, &[2], &[0, 1])]);
        let length = bytes.len();
        bytes[at % length] = byte;
        bytes.truncate(length - cut % length);
        let path = write(&folder, "data.safetensors", &bytes);
        let wanted = wants_input(DataElement::I64, &[None]);
        let _ = Dataset::open(&DataSpec::new(Source::safetensors(&path)), &wanted);
    }

    #[test]
    fn a_table_comes_back_as_it_was_written(rows in proptest::collection::vec((-1e6f32..1e6, -1.0f32..1.0, 0i64..3), 1..20)) {
        let text: String = rows.iter().map(|(a, b, class)| format!("{a},{b},{class}\n")).collect();
        let data = open_csv(&text, CLASSES).unwrap();
        let written: Vec<f64> = rows.iter().flat_map(|&(a, b, _)| [a.into(), b.into()]).collect();
        proptest::prop_assert_eq!(samples(&data), written);
        proptest::prop_assert_eq!(labels(&data), rows.iter().map(|row| row.2 as f64).collect::<Vec<_>>());
    }
}

#[test]
fn who_follows_the_opening_is_called_as_it_goes_on_and_can_end_it_in_every_part() {
    let folder = TempDir::new().unwrap();
    let table = write(&folder, "data.csv", "1,2,0\n".repeat(10_000).as_bytes());
    let packed = write(&folder, "text.txt.gz", &gzip(&b"abc".repeat(3_000_000)));
    let characters = DataSpec::new(Source::Text { path: text(&packed), context: 4, stride: 0 });
    let wants_characters = ModelSignature {
        label: Some(label(CLASSES, &[Some(4)])),
        ..wants_input(DataElement::I64, &[Some(4)])
    };
    let cases = [
        // The file and its end, the hash, and every 4,096 rows.
        (csv_spec(&table, 1, 0), wants(CLASSES), 3 + 10_000 / 4_096),
        // Little is read, much is unpacked, in three pieces and the end, and every Mi characters.
        (characters, wants_characters, 3 + 4 + 9),
    ];
    for (spec, wanted, want) in cases {
        let open = |end_at: usize| {
            let mut calls = 0;
            let mut step = || {
                calls += 1;
                if calls == end_at { Err(std::io::Error::other("ended")) } else { Ok(()) }
            };
            let opened = Dataset::open_in_steps(&spec, &wanted, &mut step);
            (opened.map(|(set, _)| set.len()), calls)
        };
        let (all, calls) = open(usize::MAX);
        assert!(all.unwrap() > 0);
        assert_eq!(calls, want, "{spec:?}");
        for end_at in [1, 2, 3, calls - 1, calls] {
            let (ended, called) = open(end_at);
            assert!(ended.unwrap_err().to_string().contains("ended") && called == end_at, "{end_at}");
        }
    }
}
