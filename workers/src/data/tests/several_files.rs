//! Several files that are one data set.

use super::*;
use crate::data::expand;
use syncline_ps::content::digest_of;

fn files(folder: &TempDir, contents: &[(&str, &[u8])]) -> Files {
    Files::of(contents.iter().map(|(name, bytes)| write(folder, name, bytes)))
}

fn tables(path: Files, label_names: &[&str]) -> DataSpec {
    DataSpec::new(CsvSource::new(path).label_names(label_names.iter().copied()))
}

#[test]
fn samples_of_several_tables_count_in_the_order_of_the_files() {
    let folder = TempDir::new().unwrap();
    let parts = files(
        &folder,
        &[("b.csv", b"1,2,0\n"), ("a.csv.gz", &gzip(b"3,4,1\n5,6,2\n")), ("c.csv", b"7,8,0\n")],
    );
    let spec = DataSpec { split: Split::TestEvery(2), ..tables(parts, &[]) };
    let data = Dataset::open(&spec, &wants(CLASSES)).unwrap();
    assert_eq!(samples(&data), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    assert_eq!((labels(&data), data.parts(&spec, 0).unwrap().test), (vec![0.0, 1.0, 2.0, 0.0], vec![0, 2]));
}

#[test]
fn a_pattern_is_the_same_as_the_list_of_its_files() {
    let folder = TempDir::new().unwrap();
    let parts = files(&folder, &[("part-1.csv", b"1,2,0\n"), ("part-2.csv", b"3,4,1\n")]);
    let mut pattern = tables(Files::one(folder.path().join("part-*.csv")), &[]);
    expand(&mut pattern).unwrap();
    assert_eq!(pattern, tables(parts, &[]));
}

#[test]
fn the_columns_of_every_file_are_found_by_the_names_of_the_first_one() {
    let folder = TempDir::new().unwrap();
    let parts =
        files(&folder, &[("1.csv", b"a,y,b\n1,0,2\n"), ("2.csv", b"y;b;a\n1;4;3\n"), ("3.csv", b"5,2,6\n")]);
    let data = Dataset::open(&tables(parts, &["y"]), &wants(CLASSES)).unwrap();
    assert_eq!(samples(&data), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(labels(&data), [0.0, 1.0, 2.0]);
    let parts = files(&folder, &[("1.csv", b"a,b,y\n1,2,0\n"), ("2.csv", b"a,c,y\n1,2,0\n")]);
    let error = Dataset::open(&tables(parts, &["y"]), &wants(CLASSES)).unwrap_err();
    let (code, text) = (error.code(), error.to_string());
    assert!(code == "E477" && text.contains("2.csv are not those of") && text.contains("`c`"), "{text}");
}

#[test]
fn texts_of_all_files_are_classes() {
    let folder = TempDir::new().unwrap();
    let parts = files(&folder, &[("1.csv", b"1,2,tulip\n"), ("2.csv", b"3,4,aster\n5,6,rose\n")]);
    let data = Dataset::open(&tables(parts.clone(), &[]), &wants(CLASSES)).unwrap();
    assert_eq!(
        (data.class_names(), labels(&data)),
        (&["aster", "rose", "tulip"].map(str::to_owned)[..], vec![2.0, 0.0, 1.0])
    );
    let mixed = files(&folder, &[("1.csv", b"1,2,tulip\n"), ("2.csv", b"3,4,1\n")]);
    refused(
        &tables(mixed, &[]),
        &wants(CLASSES),
        "E582",
        "2.csv line 1, column 3: label `1` is a number, and those before are strings",
    );
    // A file of `test` is read by the texts of all of them.
    let test = tables(files(&folder, &[("test.csv", b"9,9,rose\n")]), &[]).source;
    let spec = DataSpec {
        test: Some(test),
        ..tables(files(&folder, &[("1.csv", b"1,2,tulip\n"), ("2.csv", b"3,4,rose\n")]), &[])
    };
    assert_eq!(labels(&Dataset::open(&spec, &wants(CLASSES)).unwrap()), [1.0, 0.0, 0.0]);
}

#[test]
fn what_is_wrong_with_one_of_several_files_is_said_with_its_name_and_its_own_row() {
    #[rustfmt::skip]
    let cases: [(&str, &[u8], &str, &str); 7] = [
        ("a text",         b"3,4,0\n5,x,0\n",  "E335", "2.csv line 2, column 2: `x`"),
        ("not finite",     b"3,4,0\n5,inf,0\n","E336", "2.csv row 2, column 2: inf"),
        ("no class",       b"3,4,0\n5,6,9\n",  "E337", "2.csv row 2, column 3: label 9"),
        ("another width",  b"3,4,5,0\n",       "E334", "2.csv line 1: 4 columns, expected 3"),
        ("no samples",     b"a,b,c\n",         "E333", "2.csv is not well formed: it has no samples"),
        ("empty",          b"",                "E333", "2.csv is not well formed: it has no samples"),
        ("ragged",         b"3,4,0\n5,6\n",    "E334", "2.csv line 2: 2 columns, expected 3"),
    ];
    let folder = TempDir::new().unwrap();
    for (name, second, code, words) in cases {
        let parts = files(&folder, &[("1.csv", b"1,2,0\n"), ("2.csv", second), ("3.csv", b"1,2,0\n")]);
        let error = Dataset::open(&tables(parts, &[]), &wants(CLASSES)).unwrap_err();
        assert!(error.code() == code && error.to_string().contains(words), "{name}: {error}");
    }
    let missing = Files::of([folder.path().join("1.csv"), folder.path().join("gone.csv")]);
    refused(&tables(missing, &[]), &wants(CLASSES), "E330", "gone.csv");
    refused(&tables(Files::default(), &[]), &wants(CLASSES), "E480", "a source must name at least one file");
}

#[test]
fn a_file_that_is_another_one_now_is_named_among_several() {
    let folder = TempDir::new().unwrap();
    let parts = files(&folder, &[("1.csv", b"1,2,0\n"), ("2.csv", b"3,4,1\n"), ("3.csv", b"5,6,2\n")]);
    let mut spec = tables(parts, &[]);
    let (_, FileDigests { all, each }) = Dataset::open_hashed(&spec, &wants(CLASSES)).unwrap();
    assert_eq!(all, digest_of(b"1,2,0\n3,4,1\n5,6,2\n"));
    assert_eq!(each[1], digest_of(b"3,4,1\n"));
    (spec.digest, spec.file_digests) = (Some(all), each);
    Dataset::open(&spec, &wants(CLASSES)).unwrap();
    write(&folder, "2.csv", b"3,4,2\n");
    let error = Dataset::open(&spec, &wants(CLASSES)).unwrap_err().to_string();
    assert!(
        error.starts_with("[E331]") && error.contains("2.csv holds") && !error.contains("1.csv"),
        "{error}"
    );
}

#[test]
fn bytes_that_moved_from_one_file_to_the_next_are_others() {
    let folder = TempDir::new().unwrap();
    let two =
        |first: &[u8], second: &[u8]| tables(files(&folder, &[("1.csv", first), ("2.csv", second)]), &[]);
    let mut spec = two(b"1,2,0\n3,4,1\n", b"5,6,2\n");
    let (_, FileDigests { all, each }) = Dataset::open_hashed(&spec, &wants(CLASSES)).unwrap();
    (spec.digest, spec.file_digests) = (Some(all), each);
    two(b"1,2,0\n", b"3,4,1\n5,6,2\n");
    refused(&spec, &wants(CLASSES), "E331", "1.csv");
}

#[test]
fn one_file_has_one_digest() {
    let folder = TempDir::new().unwrap();
    let spec = csv_spec(&write(&folder, "1.csv", b"1,2,0\n"), 1, 0);
    let (_, FileDigests { all, each }) = Dataset::open_hashed(&spec, &wants(CLASSES)).unwrap();
    assert_eq!((all, each.len()), (digest_of(b"1,2,0\n"), 0));
}

#[test]
fn pairs_of_idx_files_follow_each_other() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str, bytes: &[u8]| write(&folder, name, bytes);
    let images = Files::of([at("x1", &idx(8, &[1, 2], &[1, 2])), at("x2", &idx(8, &[2, 2], &[3, 4, 5, 6]))]);
    let labels_of = |second: &[u8]| Files::of([at("y1", &idx(8, &[1], &[0])), at("y2", second)]);
    let good = Source::Idx { images: images.clone(), labels: labels_of(&idx(8, &[2], &[1, 2])) };
    let data = Dataset::open(&DataSpec::new(good), &wants(CLASSES)).unwrap();
    assert_eq!((samples(&data), labels(&data)), (vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], vec![0.0, 1.0, 2.0]));
    let short = Source::Idx { images: images.clone(), labels: labels_of(&idx(8, &[1], &[1])) };
    refused(&DataSpec::new(short), &wants(CLASSES), "E333", "y2 is not well formed: 1 labels for 2 samples");
    let one = Source::Idx { images, labels: Files::one(at("y1", &idx(8, &[1], &[0]))) };
    refused(&DataSpec::new(one), &wants(CLASSES), "E480", "a file of labels for each file of samples");
}

#[test]
fn arrays_of_several_files_are_joined_if_they_are_alike() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str, dtype: Dtype, sizes: &[usize], bytes: &[u8]| {
        let view = |dtype, sizes: &[usize], bytes| {
            safetensors::tensor::TensorView::new(dtype, sizes.to_vec(), bytes).unwrap()
        };
        let class = vec![1; sizes[0]];
        let arrays = [("x", view(dtype, sizes, bytes)), ("label", view(Dtype::U8, &sizes[..1], &class))];
        write(&folder, name, &safetensors::serialize(arrays, None).unwrap())
    };
    let first = file("1.safetensors", Dtype::U8, &[1, 2], &[1, 2]);
    let second = file("2.safetensors", Dtype::U8, &[2, 2], &[3, 4, 5, 6]);
    let spec = |second: &Path| DataSpec::new(Source::safetensors([first.as_path(), second]));
    let data = Dataset::open(&spec(&second), &wants(CLASSES)).unwrap();
    assert_eq!((samples(&data), labels(&data)), (vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], vec![1.0; 3]));
    let wide = file("wide.safetensors", Dtype::U8, &[1, 3], &[1, 2, 3]);
    let floats = file("floats.safetensors", Dtype::F32, &[1, 2], &[0; 8]);
    for (other, words) in
        [(wide, "`x` is uint8 [3] a sample, and uint8 [2] there"), (floats, "`x` is float32 [2] a sample")]
    {
        refused(&spec(&other), &wants(CLASSES), "E592", words);
    }
}
