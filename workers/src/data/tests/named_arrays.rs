//! Safetensors files.

use super::*;

fn bytes_of<T: bytemuck::NoUninit>(numbers: &[T]) -> Vec<u8> {
    bytemuck::cast_slice(numbers).to_vec()
}

#[test]
fn named_arrays_feed_several_inputs() {
    let folder = TempDir::new().unwrap();
    let floats = bytes_of(&[0.5f32, -1.0, 2.0, 4.0]);
    let ids = bytes_of(&[7i32, 8, 9, 10, 11, 12]);
    let classes = bytes_of(&[2i64, -100, 0, 1]);
    let all: &[(&str, Dtype, &[usize], &[u8])] = &[
        ("x", Dtype::F32, &[2, 2], &floats),
        ("ids", Dtype::I32, &[2, 3], &ids),
        ("mask", Dtype::U8, &[2, 3], &[1, 1, 0, 1, 0, 0]),
        ("label", Dtype::I64, &[2, 2], &classes),
        ("more", Dtype::F8_E4M3, &[1], &[0]),
    ];
    let path = write(&folder, "data.safetensors", &tensors(all));
    let spec = DataSpec { scale: 2.0, ..DataSpec::new(Source::safetensors(&path)) };
    let target = Target::Classes { count: 3, ignored: Some(-100) };
    let wanted = ModelSignature {
        inputs: vec![
            input("ids", DataElement::I64, &[None]),
            input("x", DataElement::F32, &[Some(2)]),
            input("mask", DataElement::I32, &[Some(3)]),
        ],
        label: Some(label(target, &[None])),
    };
    let data = Dataset::open(&spec, &wanted).unwrap();
    let mut batch = data.batch();
    data.gather(&[1, 0], &mut batch).unwrap();
    let found: Vec<_> = batch.inputs().map(|view| (view.element(), numbers(view))).collect();
    assert_eq!(found[0], (ElementType::I64, (vec![2, 3], vec![10.0, 11.0, 12.0, 7.0, 8.0, 9.0])));
    assert_eq!(found[1], (ElementType::F32, (vec![2, 2], vec![4.0, 8.0, 1.0, -2.0])));
    assert_eq!(found[2], (ElementType::I32, (vec![2, 3], vec![1.0, 0.0, 0.0, 1.0, 1.0, 0.0])));
    assert_eq!(numbers(batch.label().unwrap()), (vec![2, 2], vec![0.0, 1.0, 2.0, -100.0]));

    let one =
        |name: &str, element| ModelSignature { inputs: vec![input(name, element, &[None])], label: None };
    let only = |name: &str, element| Dataset::open(&spec, &one(name, element)).map(|data| samples(&data));
    assert_eq!(only("mask", DataElement::F32).unwrap(), [2.0, 2.0, 0.0, 2.0, 0.0, 0.0]);
    refused(
        &spec,
        &one("nothing", DataElement::F32),
        "E482",
        "no array `nothing`, it has ids, label, mask, more, x",
    );
    refused(&spec, &one("more", DataElement::F32), "E481", "array `more` holds F8_E4M3");
    refused(&spec, &one("x", DataElement::I64), "E484", "row 1, column 1 of `x`: 0.5 is not an integer");
    let unknown = ModelSignature { label: Some(label(CLASSES, &[Some(2)])), ..wanted.clone() };
    refused(&spec, &unknown, "E337", "row 1: label -100");
    refused(&DataSpec { sample_shape: vec![2], ..spec.clone() }, &wanted, "E480", "`sample_shape`");
}

/// Name, ids, rows of the tables, and what is refused.
type IdCase = (&'static str, [i64; 4], &'static [Option<usize>], Option<&'static str>);

#[test]
fn an_id_without_a_row_in_the_models_table_is_refused_wherever_it_stands() {
    #[rustfmt::skip]
    let cases: [IdCase; 10] = [
        ("first and last",     [0, 19, 3, 4],         &[Some(20)], None),
        ("behind the last",    [0, 1, 20, 3],         &[Some(20)], Some("row 2, column 1: 20 is not in the table of the model's input x, whose rows are 0 to 19")),
        ("from the end",       [0, -1, 2, 3],         &[Some(20)], Some("row 1, column 2: -1 is not")),
        ("far below",          [0, 1, 2, -21],        &[Some(20)], Some("row 2, column 2: -21 is not")),
        ("beyond every table", [i64::MAX, 1, 2, 3],   &[Some(20)], Some("row 1, column 1: 9223372036854775807 is not")),
        ("no table",           [-1, 20, i64::MIN, 3], &[],         None),
        ("two tables",         [4, 19, 0, 0],         &[Some(5), Some(20)], None),
        ("in the other table", [4, 19, 5, 0],         &[Some(5), Some(20)], Some("row 2, column 1: 5 is not in the table of the model's input x, whose rows are 0 to 4")),
        ("one column of two",  [-1, 19, 99, 0],       &[None, Some(20)], None),
        ("the other column",   [-1, 19, 99, -1],      &[None, Some(20)], Some("row 2, column 2: -1 is not")),
    ];
    for (name, ids, rows, words) in cases {
        let folder = TempDir::new().unwrap();
        let file =
            tensors(&[("x", Dtype::I64, &[2, 2], &bytes_of(&ids)), ("label", Dtype::U8, &[2], &[0, 1])]);
        let path = write(&folder, "data.safetensors", &file);
        let spec = DataSpec::new(Source::safetensors(&path));
        let mut wanted = wants_input(DataElement::I64, &[None]);
        wanted.inputs[0].rows = rows.to_vec();
        match words {
            Some(words) => refused(&spec, &wanted, "E488", words),
            None => assert!(Dataset::open(&spec, &wanted).is_ok(), "{name}"),
        }
    }
}

#[test]
fn named_arrays_that_make_no_samples_are_refused() {
    let big = bytes_of(&[i64::MAX, 0]);
    #[rustfmt::skip]
    let cases: &[(&str, &[usize], &[u8], &str)] = &[
        ("other counts",  &[2, 1], &big,      "`x` has 2 samples, `label` has 1"),
        ("no axis",       &[],     &big[..8], "array `x` of shape [] has no samples"),
        ("no sample",     &[0, 3], &[],       "has no samples"),
        ("empty samples", &[9, 0], &[],       "has no samples"),
        ("too large",     &[1, 2], &big,      "row 1, column 1 of `x`: 9223372036854775807 is not an integer"),
    ];
    for (name, shape, data, words) in cases {
        let folder = TempDir::new().unwrap();
        let file = tensors(&[("x", Dtype::I64, shape, data), ("label", Dtype::U8, &[1], &[0])]);
        let path = write(&folder, "data.safetensors", &file);
        let wanted = wants_input(DataElement::I32, &[None]);
        let error = Dataset::open(&DataSpec::new(Source::safetensors(&path)), &wanted).unwrap_err();
        assert!(error.to_string().contains(words), "{name}: {error}");
    }
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "data.safetensors", b"no tensors at all");
    let spec = DataSpec::new(Source::safetensors(&path));
    refused(&spec, &wants(CLASSES), "E333", "safetensors");
}

#[test]
fn several_inputs_need_named_arrays_or_names_of_columns() {
    let folder = TempDir::new().unwrap();
    let spec = csv_spec(&write(&folder, "data.csv", b"1,2,0\n"), 1, 0);
    let inputs = vec![input("x", DataElement::F32, &[None]), input("y", DataElement::F32, &[None])];
    let wanted = ModelSignature { inputs, ..wants(CLASSES) };
    refused(&spec, &wanted, "E363", "2 data inputs (x, y)");
    let named = Source::safetensors("named.safetensors");
    refused(&DataSpec { test: Some(spec.source), ..DataSpec::new(named) }, &wanted, "E363", "2 data inputs");
}
