//! Readers from the file to the batch.

use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::{Compression, write::GzEncoder};
use syncline_scheduler::spec::{DataSpec, Source, Split};
use tempfile::TempDir;

use super::*;
use crate::backend::TensorView;

const CLASSES: Target = Target::Classes { count: 3 };

fn write(folder: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn spec(source: Source) -> DataSpec {
    DataSpec { source, scale: 1.0, split: Split::All, sample_shape: vec![], digest: None, train_samples: 0 }
}

fn csv_spec(path: &Path, label_columns: u32, skip_lines: u32) -> DataSpec {
    spec(Source::Csv { path: path.display().to_string(), label_columns, skip_lines })
}

fn idx_spec(images: &Path, labels: &Path) -> DataSpec {
    spec(Source::Idx { images: images.display().to_string(), labels: labels.display().to_string() })
}

/// An IDX file.
fn idx(kind: u8, dims: &[u32], data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, kind, dims.len() as u8];
    dims.iter().for_each(|size| bytes.extend(size.to_be_bytes()));
    bytes.extend(data);
    bytes
}

fn open_csv(text: &str, target: &Target) -> Result<Dataset, DataError> {
    let folder = TempDir::new().unwrap();
    Dataset::open(&csv_spec(&write(&folder, "data.csv", text.as_bytes()), 1, 0), target)
}

#[test]
fn csv_plain_and_packed() {
    let folder = TempDir::new().unwrap();
    let text = b"1,2,0\r\n 3, -4.5 ,2\n5e0,6,1.0\n\n";
    let plain = csv_spec(&write(&folder, "data.csv", text), 1, 0);
    let packed = csv_spec(&write(&folder, "data.csv.gz", &gzip(text)), 1, 0);
    let headed = csv_spec(&write(&folder, "head.csv", &[b"a,b,class\n".as_slice(), text].concat()), 1, 1);
    for spec in [plain, packed, headed] {
        let data = Dataset::open(&DataSpec { scale: 0.5, ..spec }, &CLASSES).unwrap();
        assert_eq!((data.len(), data.sample_shape()), (3, [2].as_slice()));
        assert_eq!(data.sample(1), [1.5, -2.25]);
        assert!(data.sample(3).is_empty());
        assert_eq!(*data.labels(), Labels::Classes(vec![0, 2, 1]));
    }
}

#[test]
fn csv_with_float_targets() {
    let folder = TempDir::new().unwrap();
    let spec = csv_spec(&write(&folder, "data.csv", b"1,0.5,-1\n2,0.25,3\n"), 2, 0);
    let data = Dataset::open(&spec, &Target::Values { shape: vec![2] }).unwrap();
    assert_eq!(*data.labels(), Labels::Values { shape: vec![2], data: vec![0.5, -1.0, 0.25, 3.0] });
    assert_eq!(data.sample_shape(), [1]);
}

#[test]
fn csv_refusals_say_where() {
    #[rustfmt::skip]
    let cases = [
        ("too few columns",  "1,2,0\n1,2\n",     "E334", "line 2: 2 columns, expected 3"),
        ("too many columns", "1,2,0\n1,2,3,0\n", "E334", "line 2: 4 columns, expected 3"),
        ("empty line",       "1,2,0\n\n1,2,0\n", "E334", "line 2: 0 columns, expected 3"),
        ("text",             "1,2,0\n1,two,0\n", "E335", "line 2, column 2: `two` is not a number"),
        ("empty field",      "1,,0\n",           "E335", "line 1, column 2: `` is not a number"),
        ("not a number",     "1,2,0\n1,NaN,0\n", "E336", "row 2, column 2: NaN is not finite"),
        ("infinite",         "1,2,0\n-inf,2,0\n","E336", "row 2, column 1: -inf is not finite"),
        ("too large",        "1e39,2,0\n",       "E336", "row 1, column 1: inf is not finite"),
        ("class too large",  "1,2,0\n1,2,3\n",   "E337", "row 2: label 3 is not one of the classes 0 to 2"),
        ("class negative",   "1,2,-1\n",         "E337", "row 1: label -1"),
        ("class broken",     "1,2,0.5\n",        "E337", "row 1: label 0.5"),
        ("class not finite", "1,2,nan\n",        "E337", "row 1: label NaN"),
        ("no features",      "1\n",              "E333", "1 columns leave no feature"),
        ("empty",            "",                 "E333", "it has no samples"),
        ("only newlines",    "\n\n\n",           "E333", "it has no samples"),
    ];
    for (name, text, code, message) in cases {
        let error = open_csv(text, &CLASSES).unwrap_err();
        assert_eq!(error.code(), code, "{name}: {error}");
        assert!(error.to_string().contains(message), "{name}: {error}");
    }
    let header = open_csv("a,b,c\n1,2,0\n", &CLASSES).unwrap_err();
    assert!(header.hint().unwrap().contains("skip_lines"));
}

#[test]
fn targets_that_do_not_fit_are_refused() {
    let error = open_csv("1,2,0\n", &Target::Values { shape: vec![2] }).unwrap_err();
    assert_eq!(error.to_string(), "[E338] a target of shape [2] needs 2 label columns, the data has 1");
    let infinite = open_csv("1,2,inf\n", &Target::Values { shape: vec![] }).unwrap_err();
    assert_eq!(infinite.code(), "E336");
}

#[test]
fn idx_plain_and_packed() {
    let folder = TempDir::new().unwrap();
    let (images, labels) = (idx(8, &[2, 2, 3], &(0..12).collect::<Vec<u8>>()), idx(8, &[2], &[2, 0]));
    let plain = idx_spec(&write(&folder, "images", &images), &write(&folder, "labels", &labels));
    let packed =
        idx_spec(&write(&folder, "images.gz", &gzip(&images)), &write(&folder, "labels.gz", &gzip(&labels)));
    for spec in [plain, packed] {
        let spec = DataSpec { sample_shape: vec![1, 2, 3], scale: 2.0, ..spec };
        let data = Dataset::open(&spec, &CLASSES).unwrap();
        assert_eq!((data.len(), data.sample_shape()), (2, [1, 2, 3].as_slice()));
        assert_eq!(data.sample(1), [12.0, 14.0, 16.0, 18.0, 20.0, 22.0]);
        assert_eq!(*data.labels(), Labels::Classes(vec![2, 0]));
    }
}

#[test]
fn idx_of_other_number_types() {
    let folder = TempDir::new().unwrap();
    let floats: Vec<u8> = [0.5f32, -2.0].iter().flat_map(|x| x.to_be_bytes()).collect();
    let shorts: Vec<u8> = [-7i16, 300].iter().flat_map(|x| x.to_be_bytes()).collect();
    let spec = idx_spec(
        &write(&folder, "images", &idx(0x0d, &[2, 1], &floats)),
        &write(&folder, "labels", &idx(0x0b, &[2], &shorts)),
    );
    let data = Dataset::open(&spec, &Target::Values { shape: vec![1] }).unwrap();
    assert_eq!((data.sample(0), data.sample(1)), ([0.5].as_slice(), [-2.0].as_slice()));
    assert_eq!(*data.labels(), Labels::Values { shape: vec![1], data: vec![-7.0, 300.0] });
}

#[test]
fn idx_refusals() {
    let good = idx(8, &[2, 2], &[1, 2, 3, 4]);
    let labels = idx(8, &[2], &[0, 1]);
    #[rustfmt::skip]
    let cases = [
        ("no header",        vec![0, 0],                            labels.clone(),              "E333", "does not begin like"),
        ("other magic",      vec![1, 0, 8, 1, 0, 0, 0, 0],          labels.clone(),              "E333", "does not begin like"),
        ("unknown type",     idx(0x0a, &[2, 2], &[1, 2, 3, 4]),     labels.clone(),              "E333", "element type 0x0a"),
        ("header cut",       vec![0, 0, 8, 200, 1],                 labels.clone(),              "E333", "ends inside its header"),
        ("no dimension",     idx(8, &[], &[]),                      labels.clone(),              "E333", "ends inside its header"),
        ("data cut",         idx(8, &[2, 2], &[1, 2, 3]),           labels.clone(),              "E333", "need 4 bytes of data, found 3"),
        ("data too long",    idx(8, &[2, 2], &[1, 2, 3, 4, 5]),     labels.clone(),              "E333", "need 4 bytes of data, found 5"),
        ("overflowing size", idx(8, &[u32::MAX; 3], &[]),           labels.clone(),              "E332", "holds more than"),
        ("empty",            idx(8, &[0, 5], &[]),                  labels.clone(),              "E333", "no samples"),
        ("label count",      good.clone(),                          idx(8, &[3], &[0, 1, 2]),    "E333", "3 labels for 2 samples"),
        ("label range",      good.clone(),                          idx(8, &[2], &[0, 9]),       "E337", "row 2: label 9"),
        ("label shape",      good.clone(),                          idx(8, &[2, 2], &[0; 4]),    "E338", "a class needs 1"),
    ];
    for (name, images, labels, code, message) in cases {
        let folder = TempDir::new().unwrap();
        let spec = idx_spec(&write(&folder, "images", &images), &write(&folder, "labels", &labels));
        let error = Dataset::open(&spec, &CLASSES).unwrap_err();
        assert_eq!(error.code(), code, "{name}: {error}");
        assert!(error.to_string().contains(message), "{name}: {error}");
    }
}

#[test]
fn other_bytes_than_the_digest_says_are_refused() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "data.csv", b"1,2,0\n");
    let mut spec = csv_spec(&path, 1, 0);
    spec.digest = Some(digest(&spec.source).unwrap());
    assert_eq!(spec.digest, Some(blake3::hash(b"1,2,0\n").to_hex().to_string()));
    assert!(Dataset::open(&spec, &CLASSES).is_ok());
    write(&folder, "data.csv", b"1,2,1\n");
    assert_eq!(Dataset::open(&spec, &CLASSES).unwrap_err().code(), "E331");
}

#[test]
fn missing_and_broken_files_are_refused() {
    let folder = TempDir::new().unwrap();
    let missing = csv_spec(&folder.path().join("nowhere.csv"), 1, 0);
    assert_eq!(Dataset::open(&missing, &CLASSES).unwrap_err().code(), "E330");
    assert_eq!(digest(&missing.source).unwrap_err().code(), "E330");
    let broken = csv_spec(&write(&folder, "data.csv.gz", b"1,2,0\n"), 1, 0);
    assert_eq!(Dataset::open(&broken, &CLASSES).unwrap_err().code(), "E330");
}

#[test]
fn a_sample_shape_has_to_hold_the_sample() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "data.csv", b"1,2,3,4,0\n");
    let shaped = |shape: &[u32]| DataSpec { sample_shape: shape.to_vec(), ..csv_spec(&path, 1, 0) };
    assert_eq!(Dataset::open(&shaped(&[1, 2, 2]), &CLASSES).unwrap().sample_shape(), [1, 2, 2]);
    let error = Dataset::open(&shaped(&[3, 2]), &CLASSES).unwrap_err();
    assert_eq!(error.to_string(), "[E338] sample shape [3, 2] does not hold the 4 numbers of a sample");
    assert_eq!(Dataset::open(&shaped(&[u32::MAX; 4]), &CLASSES).unwrap_err().code(), "E338");
}

#[test]
fn batches_are_gathered_into_the_same_buffers() {
    let data = open_csv("1,2,0\n3,4,1\n5,6,2\n", &CLASSES).unwrap();
    let mut batch = data.batch();
    assert!(batch.is_empty());
    data.gather(&[2, 0, 2], &mut batch).unwrap();
    let address = |batch: &Batch| match batch.features() {
        TensorView::F32 { data, .. } => data.as_ptr(),
        _ => unreachable!("features are float32"),
    };
    let before = address(&batch);
    match (batch.features(), batch.label()) {
        (TensorView::F32 { shape, data }, TensorView::I64 { shape: label_shape, data: label }) => {
            assert_eq!((shape, data), ([3, 2].as_slice(), [5.0, 6.0, 1.0, 2.0, 5.0, 6.0].as_slice()));
            assert_eq!((label_shape, label), ([3].as_slice(), [2, 0, 2].as_slice()));
        }
        other => panic!("unexpected views {other:?}"),
    }
    data.gather(&[1], &mut batch).unwrap();
    assert_eq!((batch.len(), batch.label().shape()), (1, [1].as_slice()));
    assert_eq!(address(&batch), before, "no new allocation");
    assert_eq!(
        data.gather(&[0, 3], &mut batch).unwrap_err().to_string(),
        "[E339] row 3 was asked for, the data set has 3 rows"
    );
}

#[test]
fn a_split_is_a_partition() {
    let data = open_csv("1,0\n2,0\n3,0\n4,0\n5,0\n", &CLASSES).unwrap();
    assert_eq!(data.split(Split::All), (vec![0, 1, 2, 3, 4], vec![]));
    assert_eq!(data.split(Split::TestEvery(2)), (vec![1, 3], vec![0, 2, 4]));
}

proptest::proptest! {
    #[test]
    fn random_files_never_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..80), packed: bool) {
        let folder = TempDir::new().unwrap();
        let name = if packed { "data.gz" } else { "data" };
        let path = write(&folder, name, &bytes);
        let _ = Dataset::open(&csv_spec(&path, 1, 0), &CLASSES);
        let _ = Dataset::open(&idx_spec(&path, &path), &CLASSES);
    }

    #[test]
    fn a_table_comes_back_as_it_was_written(rows in proptest::collection::vec((-1e6f32..1e6, -1.0f32..1.0, 0i64..3), 1..20)) {
        let text: String = rows.iter().map(|(a, b, class)| format!("{a},{b},{class}\n")).collect();
        let data = open_csv(&text, &CLASSES).unwrap();
        for (row, (a, b, _)) in rows.iter().enumerate() {
            proptest::prop_assert_eq!(data.sample(row), [*a, *b]);
        }
        proptest::prop_assert_eq!(data.labels(), &Labels::Classes(rows.iter().map(|row| row.2).collect()));
    }
}
