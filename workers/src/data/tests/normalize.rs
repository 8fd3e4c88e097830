//! Inputs that are normalized each by its own settings.

use super::*;
use syncline_scheduler::spec::Normalization;

/// An image of one channel and a table of two columns, both of floats, ids, and a class.
fn wanted() -> ModelSignature {
    let inputs = vec![
        input("image", DataElement::F32, &[Some(1), Some(2), Some(2)]),
        input("table", DataElement::F32, &[Some(2)]),
        input("ids", DataElement::I64, &[Some(1)]),
        input("mask", DataElement::Bool, &[Some(1)]),
    ];
    ModelSignature { inputs, label: Some(label(CLASSES, &[])) }
}

/// Two samples: bytes of an image, and numbers of a table.
fn spec(folder: &TempDir) -> DataSpec {
    let table: Vec<u8> = [1.0_f64, 10.0, 3.0, 30.0].into_iter().flat_map(f64::to_le_bytes).collect();
    let arrays = [
        ("image", Dtype::U8, &[2, 1, 2, 2][..], &[0, 51, 102, 255, 255, 51, 0, 102][..]),
        ("table", Dtype::F64, &[2, 2], &table),
        ("ids", Dtype::U8, &[2, 1], &[7, 9]),
        ("mask", Dtype::U8, &[2, 1], &[0, 1]),
        ("label", Dtype::U8, &[2], &[0, 2]),
    ];
    DataSpec::new(Source::safetensors(write(folder, "data.safetensors", &tensors(&arrays))))
}

fn of(change: impl FnOnce(&mut Normalization)) -> Normalization {
    let mut by = Normalization::default();
    change(&mut by);
    by
}

/// All numbers of each input.
fn inputs(spec: &DataSpec) -> Vec<Vec<f64>> {
    let data = Dataset::open(spec, &wanted()).unwrap();
    let mut batch = data.batch();
    data.gather(&[0, 1], &mut batch).unwrap();
    batch.inputs().map(|view| numbers(view).1).collect()
}

#[test]
fn each_input_of_floats_is_normalized_by_its_own_numbers_and_others_by_the_shared_ones_table() {
    let folder = TempDir::new().unwrap();
    let (image, table) = ([0.0, 51.0, 102.0, 255.0, 255.0, 51.0, 0.0, 102.0], [1.0, 10.0, 3.0, 30.0]);
    let scaled = of(|by| (by.scale, by.mean) = (2.0, vec![2.0]));
    let columns = of(|by| (by.mean, by.std) = (vec![2.0, 20.0], vec![1.0, 10.0]));
    let shared = || spec(&folder).with(|d| d.scale = 0.5);
    let times = |numbers: &[f64], factor: f64, mean: f64| -> Vec<f64> {
        numbers.iter().map(|number| number * factor - mean).collect()
    };
    let standardized = vec![-1.0, -1.0, 1.0, 1.0];
    #[rustfmt::skip]
    let cases = [
        ("shared by both",         shared(),                                                                     times(&image, 0.5, 0.0), times(&table, 0.5, 0.0)),
        ("the image has its own",  shared().normalize("image", scaled.clone()),                                  times(&image, 2.0, 2.0), times(&table, 0.5, 0.0)),
        ("the table has its own",  shared().normalize("table", columns.clone()),                                 times(&image, 0.5, 0.0), standardized.clone()),
        ("the table stays",        shared().normalize("table", Normalization::default()),                        times(&image, 0.5, 0.0), table.to_vec()),
        ("both have their own",    spec(&folder).normalize("image", scaled).normalize("table", columns),         times(&image, 2.0, 2.0), standardized),
    ];
    for (name, spec, image, table) in cases {
        let found = inputs(&spec);
        assert_eq!(found[..2], [image, table], "{name}");
        // Integers and truth values are fed as they are.
        assert_eq!(found[2..], [vec![7.0, 9.0], vec![0.0, 1.0]], "{name}");
    }
}

#[test]
fn an_image_is_augmented_beside_a_table_whose_channels_come_last() {
    let folder = TempDir::new().unwrap();
    let last = of(|by| (by.mean, by.channel_axis) = (vec![2.0, 20.0], ChannelAxis::Last));
    let flipped = |d: &mut DataSpec| d.augment.flip = true;
    let data = spec(&folder).normalize("table", last.clone()).with(flipped);
    assert_eq!(inputs(&data)[1], [-1.0, -10.0, 1.0, 10.0]);
    for (data, words) in [
        (spec(&folder).normalize("image", last), "`normalize.image.channel_axis = \"last\"` does not go"),
        (spec(&folder).with(|d| d.channel_axis = ChannelAxis::Last), "`channel_axis = \"last\"` does not go"),
    ] {
        refused(&data.with(flipped), &wanted(), "E480", words);
    }
}

#[test]
fn tables_that_do_not_go_with_the_model_or_hold_no_numbers_are_refused_by_their_names() {
    let folder = TempDir::new().unwrap();
    let with = |input: &str, by: Normalization| spec(&folder).normalize(input, by);
    let plain = Normalization::default;
    let both = with("image", plain()).normalize("table", plain());
    #[rustfmt::skip]
    let cases = [
        ("unknown",          with("sound", plain()),                             "E667", "it names `sound`, and the model has the inputs `image`, `table`, `ids`, `mask`"),
        ("misspelt",         with("imag", plain()),                              "E667", "`mask`; did you mean `image`?"),
        ("integers",         with("ids", plain()),                               "E667", "`ids` takes integers"),
        ("truth values",     with("mask", plain()),                              "E667", "`mask` takes truth values"),
        ("no scale",         with("image", of(|by| by.scale = 0.0)),             "E480", "`normalize.image.scale` must not be 0"),
        ("an infinite scale", with("image", of(|by| by.scale = f32::INFINITY)),  "E480", "`normalize.image.scale` must be a finite number"),
        ("an infinite mean", with("table", of(|by| by.mean = vec![f64::NAN])),   "E480", "`normalize.table.mean` must hold finite numbers"),
        ("no deviation",     with("table", of(|by| by.std = vec![0.0])),         "E480", "`normalize.table.std` must be above 0"),
        ("too many numbers", with("table", of(|by| by.std = vec![1.0; 3])),      "E480", "`normalize.table.std` has 3 numbers, `table` has 2 channels"),
        ("for no input",     both.clone().with(|d| d.scale = 0.5),               "E480", "`scale` must be left out: it holds for inputs of floats without a table"),
        ("likewise",         both.with(|d| d.standardize = true),                "E480", "`standardize` must be left out"),
    ];
    for (name, spec, code, words) in cases {
        let error = Dataset::open(&spec, &wanted()).unwrap_err();
        assert!(error.code() == code && error.to_string().contains(words), "{name}: {error}");
        assert!(error.hint().is_some(), "{name}");
    }
    let text = write(&folder, "a.txt", b"abcabc");
    let text = DataSpec::new(Source::text(text.display().to_string(), 2)).normalize("x", plain());
    refused(&text, &wants_input(DataElement::F32, &[Some(2)]), "E480", "`normalize` must be left out where");
}

#[test]
fn a_mean_beside_standardize_is_refused_with_the_names_of_both_table() {
    let folder = TempDir::new().unwrap();
    let own = |mean: &[f64]| of(|by| (by.standardize, by.mean) = (true, mean.to_vec()));
    #[rustfmt::skip]
    let cases = [
        (spec(&folder).normalize("table", own(&[])),                                         None),
        (spec(&folder).normalize("table", own(&[1.0])),                                      Some("`normalize.table.standardize` computes `normalize.table.mean` and `normalize.table.std`: leave")),
        (spec(&folder).with(|d| (d.standardize, d.std) = (true, vec![1.0])),                 Some("`standardize` computes `mean` and `std`: leave")),
        (spec(&folder).with(|d| d.mean = vec![1.0]).normalize("table", own(&[])),            None),
    ];
    for (spec, words) in cases {
        let said = check_standardized(&spec).err().map(|error| error.to_string());
        assert_eq!(said.is_some(), words.is_some(), "{said:?}");
        assert!(said.unwrap_or_default().contains(words.unwrap_or_default()));
    }
}
