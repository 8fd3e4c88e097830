//! How the columns of a test or validation file are found.

use super::*;

const TRAINING: &str = "rooms,age,price\n1,2,0.5\n3,4,0.25\n";

/// A training file and a test file; `names`: those of the label, for each.
fn parts(folder: &TempDir, files: [&str; 2], names: [&[&str]; 2]) -> DataSpec {
    let [train, test] = ["train.csv", "test.csv"];
    let spec = |name, text: &str, names| named_csv_spec(&write(folder, name, text.as_bytes()), names);
    let test = spec(test, files[1], names[1]).source;
    DataSpec { test: Some(test), ..spec(train, files[0], names[0]) }
}

fn open(files: [&str; 2], names: [&[&str]; 2]) -> Result<Dataset, DataError> {
    let folder = TempDir::new().unwrap();
    let spec = parts(&folder, files, names);
    Dataset::open(&spec, &wants(Target::Values))
}

#[test]
fn columns_of_a_test_file_are_found_by_the_names_of_the_training_file() {
    let price: &[&str] = &["price"];
    for (test, names) in [
        ("rooms,age,price\n5,6,0.75\n", [price, price]),
        ("price,age,rooms\n0.75,6,5\n", [price, price]),
        ("age,price,rooms\n6,0.75,5\n", [&[], &[]]),
        ("\"age\", price ,rooms\r\n6,0.75,5\r\n", [price, &[]]),
        ("cost,age,rooms\n0.75,6,5\n", [price, &["cost"]]),
    ] {
        let data = open([TRAINING, test], names).unwrap();
        assert_eq!(samples(&data), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "{test}");
        assert_eq!(labels(&data), [0.5, 0.25, 0.75], "{test}");
    }
}

#[test]
fn columns_of_a_validation_file_are_found_by_name_too() {
    let folder = TempDir::new().unwrap();
    let validation = csv_spec(&write(&folder, "v.csv", b"price,age,rooms\n0.75,6,5\n"), 1, 0).source;
    let train = csv_spec(&write(&folder, "t.csv", TRAINING.as_bytes()), 1, 0);
    let spec = DataSpec { validation: Some(validation), ..train };
    let data = Dataset::open(&spec, &wants(Target::Values)).unwrap();
    assert_eq!(samples(&data), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
}

#[test]
fn a_test_file_with_other_names_than_the_training_file_is_refused() {
    let price: &[&str] = &["price"];
    #[rustfmt::skip]
    let cases = [
        (TRAINING, "Rooms,age,price\n1,2,0\n",   price, "`rooms` is missing, and `Rooms` in its place"),
        (TRAINING, "age,price\n2,0\n",           price, "`rooms` is missing"),
        (TRAINING, ",rooms,age,price\n0,1,2,0\n", price, "`` is none of the latter"),
        (TRAINING, "age,age,price\n2,2,0\n",     price, "two are called `age` here"),
        ("a,a,price\n1,2,0\n", "price,a,a\n0,1,2\n", price, "two are called `a` there"),
        (TRAINING, "rooms,age,cost\n1,2,0\n",    &[],   "`price` is missing, and `cost` in its place"),
        (TRAINING, "rooms,age,price\n1,2,0\n",   &["age", "price"], "`label_names` has 1 there, and 2 here"),
    ];
    for (train, test, names, words) in cases {
        let error = open([train, test], [price, names]).unwrap_err();
        assert_eq!(error.code(), "E477", "{error}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(error.to_string().contains("test.csv are not those of"), "{error}");
    }
}

#[test]
fn names_that_stand_twice_do_no_harm_where_both_headers_are_the_same() {
    let data = open(["a,a,y\n1,2,0\n", "a,a,y\n3,4,1\n"], [&[], &[]]).unwrap();
    assert_eq!(samples(&data), [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn without_a_header_on_both_sides_columns_are_taken_in_their_order() {
    for files in [["1,2,0.5\n", TRAINING], [TRAINING, "1,2,0.5\n"], ["x,y,z\n1,2,0.5\n", "5,6,7\n"]] {
        let data = open(files, [&[], &[]]).unwrap();
        assert_eq!(data.input_shapes().next(), Some([2].as_slice()));
    }
    let folder = TempDir::new().unwrap();
    let mut spec = parts(&folder, [TRAINING, "price,age,rooms\n7,8,9\n"], [&[], &[]]);
    let path = text(&folder.path().join("test.csv"));
    spec.test = Some(csv_spec(Path::new(&path), 1, 1).source);
    let data = Dataset::open(&spec, &wants(Target::Values)).unwrap();
    assert_eq!(samples(&data)[4..], [7.0, 8.0], "whose header is left out");
}

#[test]
fn columns_without_names_are_in_the_order_of_the_training_file_wherever_its_label_stands() {
    let price: &[&str] = &["price"];
    let train = "price,age,rooms\n0.5,1,2\n";
    let data = open([train, "0.75,6,5\n"], [price, &[]]).unwrap();
    assert_eq!((samples(&data), labels(&data)), (vec![1.0, 2.0, 6.0, 5.0], vec![0.5, 0.75]));
    for (passes_over_label, labels_are) in [(false, Some(vec![0.75])), (true, None)] {
        let data = open_other([train, "0.75,6,5\n"], price, passes_over_label, |_, _| {}).unwrap();
        assert_eq!(samples(&data), [6.0, 5.0], "{passes_over_label}");
        assert_eq!(labels_are.as_ref().map(|_| labels(&data)), labels_are);
    }
    let data = open_other([train, "6,5\n"], price, true, |_, _| {}).unwrap();
    assert_eq!(samples(&data), [6.0, 5.0], "of which none is the label");
}

#[test]
fn an_error_names_the_column_of_the_file_that_it_is_in() {
    let error = open([TRAINING, "price,age,rooms\n1,inf,2\n"], [&[], &[]]).unwrap_err();
    assert!(error.to_string().contains("test.csv row 1, column 2 (`age`): inf is not a finite"), "{error}");
}

/// Opens another file as samples of a job with this training file, whose label has these names.
fn open_other(
    [train, other]: [&str; 2],
    names: &[&str],
    passes_over_label: bool,
    change: impl FnOnce(&TempDir, &mut DataSpec),
) -> Result<Dataset, DataError> {
    let folder = TempDir::new().unwrap();
    let spec = |name, text: &str| named_csv_spec(&write(&folder, name, text.as_bytes()), names);
    let (mut job, other) = (spec("train.csv", train), spec("other.csv", other));
    let features = Some(2);
    let labels = (!passes_over_label).then(|| label(Target::Values, &[]));
    let wanted = ModelSignature { inputs: vec![input("x", DataElement::F32, &[features])], label: labels };
    job.digest = Some(Dataset::open_hashed(&job, &wants(Target::Values)).unwrap().1.all);
    change(&folder, &mut job);
    let form = Form { like: Some(&job), passes_over_label, is_other: true, ..Form::default() };
    Dataset::open_as(&other, &wanted, form, &mut || Ok(())).map(|(set, _)| set)
}

#[test]
fn columns_of_another_file_are_found_as_those_of_a_test_part() {
    let price: &[&str] = &["price"];
    for (files, names) in [
        ([TRAINING, "price,age,rooms\n0.75,6,5\n"], price),
        ([TRAINING, "age,price,rooms\n6,0.75,5\n"], &[]),
        ([TRAINING, "5,6,0.75\n"], &[]),
        (["1,2,0\n", "age,rooms,price\n5,6,0.75\n"], &[]),
    ] {
        let data = open_other(files, names, false, |_, _| {}).unwrap();
        assert_eq!((samples(&data), labels(&data)), (vec![5.0, 6.0], vec![0.75]), "{files:?}");
    }
    for (other, words) in [
        ("rooms,price\n1,2\n", "`age` is missing"),
        ("rooms,age,price,id\n1,2,3,4\n", "`id` is none of the latter"),
        ("rooms,years,price\n1,2,3\n", "`age` is missing, and `years` in its place"),
    ] {
        let error = open_other([TRAINING, other], price, false, |_, _| {}).unwrap_err();
        assert!(error.code() == "E477" && error.to_string().contains(words), "{error}");
    }
}

#[test]
fn where_labels_are_not_read_their_column_may_be_there_or_not_and_hold_anything() {
    let price: &[&str] = &["price"];
    for (files, names) in [
        ([TRAINING, "price,age,rooms\n0.75,6,5\n"], price),
        ([TRAINING, "price,age,rooms\n,6,5\n"], &[]),
        ([TRAINING, "rooms,age,price\n5,6,unknown\n"], price),
        ([TRAINING, "age,rooms\n6,5\n"], price),
        ([TRAINING, "5,6\n"], price),
        ([TRAINING, "5,6,\n"], &[]),
        (["1,2,0\n", "5,6\n"], &[]),
        (["1,2,0\n", "5,6,9\n"], &[]),
        (["1,2,0\n", "a,b\n5,6\n"], &[]),
        (["1,2,0\n", "a,b,c\n5,6,?\n"], &[]),
    ] {
        let data = open_other(files, names, true, |_, _| {}).unwrap();
        assert_eq!((samples(&data), data.label_shape()), (vec![5.0, 6.0], None), "{files:?}");
    }
    let error = open_other([TRAINING, "price,age\n0,6\n"], price, true, |_, _| {}).unwrap_err();
    assert!(error.code() == "E477" && error.to_string().ends_with("`rooms` is missing"), "{error}");
    assert_eq!(open_other([TRAINING, "5,6,7,8\n"], &[], true, |_, _| {}).unwrap_err().code(), "E362");
}

#[test]
fn names_are_not_found_where_the_data_of_the_job_is_gone_or_another() {
    let gone =
        |folder: &TempDir, _: &mut DataSpec| std::fs::remove_file(folder.path().join("train.csv")).unwrap();
    let other =
        |folder: &TempDir, _: &mut DataSpec| drop(write(folder, "train.csv", b"age,rooms,price\n1,2,3\n"));
    let files = [TRAINING, "rooms,age,price\n5,6,0.75\n"];
    for (error, cause) in [
        (open_other(files, &[], false, gone).unwrap_err(), "E330"),
        (open_other(files, &[], false, other).unwrap_err(), "E331"),
    ] {
        let DataError::Table(TableError::UnknownColumns { path, source }) = &error else { panic!("{error}") };
        assert_eq!((error.code(), source.code()), ("E581", cause));
        assert!(path.ends_with("other.csv"), "{error}");
    }
    let data = open_other([TRAINING, "5,6,0.75\n"], &[], false, gone).unwrap();
    assert_eq!(samples(&data), [5.0, 6.0], "without names that data is not read");
}
