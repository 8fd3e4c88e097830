//! Texts as characters, and CIFAR-10.

use super::*;

#[test]
fn cifar_10_records_in_several_files() {
    let folder = TempDir::new().unwrap();
    let record = |label: u8, pixel: u8| [vec![label], vec![pixel; 3 * 32 * 32 - 1], vec![255]].concat();
    let first = write(&folder, "data_batch_1.bin", &[record(0, 1), record(9, 2)].concat());
    let second = write(&folder, "data_batch_2.bin.gz", &gzip(&record(3, 4)));
    let cifar = |paths: &[&Path]| Source::cifar10(paths);
    let target = Target::Classes { count: 10, ignored: None };
    let inputs = vec![input("x", DataElement::F32, &[Some(3), Some(32), Some(32)])];
    let wanted = ModelSignature { inputs, ..wants(target) };
    let spec = DataSpec::new(cifar(&[&first, &second]));
    let data = Dataset::open(&spec, &wanted).unwrap();
    assert_eq!((data.len(), labels(&data)), (3, vec![0.0, 9.0, 3.0]));
    let pixels = samples(&data);
    assert_eq!(
        (pixels.len(), pixels[0], pixels[3071], pixels[3072], pixels[6144]),
        (9216, 1.0, 255.0, 2.0, 4.0)
    );

    let cut = write(&folder, "cut.bin", &record(0, 1)[1..]);
    refused(
        &DataSpec::new(cifar(&[&first, &cut])),
        &wanted,
        "E333",
        "cut.bin is not well formed: 3072 bytes",
    );
    let label = write(&folder, "label.bin", &[record(0, 1), record(10, 1)].concat());
    refused(&DataSpec::new(cifar(&[&label])), &wanted, "E337", "label.bin row 2: label 10");
    refused(&DataSpec::new(cifar(&[&write(&folder, "empty.bin", b"")])), &wanted, "E333", "0 bytes");
    refused(&DataSpec::new(cifar(&[])), &wanted, "E480", "must name at least one file");
    // A hole: takes no room, and would take this machine's memory if it were read.
    let hole = folder.path().join("hole.bin");
    std::fs::File::create_new(&hole).unwrap().set_len(MAX_ELEMENTS).unwrap();
    refused(
        &DataSpec::new(cifar(&[&first, &hole])),
        &wanted,
        "E332",
        "hole.bin holds more than 2147483648 bytes",
    );
}

fn text_spec(path: &Path, context: u32, stride: u32) -> DataSpec {
    DataSpec::new(Source::Text { path: text(path), context, stride })
}

/// What a language model with an open context wants.
fn wants_text(element: DataElement, classes: usize) -> ModelSignature {
    let target = Target::Classes { count: classes, ignored: None };
    ModelSignature { inputs: vec![input("x", element, &[None])], label: Some(label(target, &[None])) }
}

#[test]
fn a_text_gives_each_character_with_the_one_that_follows() {
    let folder = TempDir::new().unwrap();
    // Ascending: 'a' is 0, 'b' 1, 'é' 2.
    let path = write(&folder, "text", "abéab".as_bytes());
    for element in [DataElement::I64, DataElement::I32] {
        let data = Dataset::open(&text_spec(&path, 2, 0), &wants_text(element, 3)).unwrap();
        assert_eq!(samples(&data), [0.0, 1.0, 2.0, 0.0]);
        assert_eq!(labels(&data), [1.0, 2.0, 0.0, 1.0]);
        assert_eq!(
            (data.input_shapes().next(), data.label_shape()),
            (Some([2].as_slice()), Some([2].as_slice()))
        );
    }
    let every = Dataset::open(&text_spec(&path, 2, 1), &wants_text(DataElement::I64, 4)).unwrap();
    assert_eq!(samples(&every), [0.0, 1.0, 1.0, 2.0, 2.0, 0.0]);
    assert_eq!(every.len(), 3);

    let wanted = wants_text(DataElement::I64, 3);
    refused(&text_spec(&path, 5, 0), &wanted, "E333", "5 characters are no sample of 5");
    refused(&text_spec(&path, 0, 0), &wanted, "E480", "`context`");
    refused(&text_spec(&path, 2, 0), &wants_text(DataElement::I64, 2), "E483", "3 different characters");
    let mut few_rows = wanted.clone();
    few_rows.inputs[0].rows = vec![Some(2)];
    refused(&text_spec(&path, 2, 0), &few_rows, "E483", "3 different characters, the model tells 2 apart");
    refused(&text_spec(&write(&folder, "latin", b"ab\xe9"), 1, 0), &wanted, "E333", "byte 3 is not UTF-8");
    refused(
        &DataSpec { test: Some(text_spec(&path, 2, 0).source), ..text_spec(&path, 2, 0) },
        &wanted,
        "E480",
        "a text must be one file",
    );
    let fixed = ModelSignature { inputs: vec![input("x", DataElement::I64, &[Some(3)])], ..wanted };
    refused(&text_spec(&path, 2, 0), &fixed, "E362", "[3], the data has [2]");
    let longer = Dataset::open(&text_spec(&path, 2, 0), &fixed).unwrap_err();
    assert!(longer.hint().unwrap().contains("an axis that the model leaves open"), "{longer}");
}

#[test]
fn texts_of_many_characters_are_read_as_well() {
    let folder = TempDir::new().unwrap();
    let all: String = ('\u{400}'..'\u{600}').collect();
    let data = Dataset::open(
        &text_spec(&write(&folder, "text", all.as_bytes()), 511, 0),
        &wants_text(DataElement::I64, 512),
    )
    .unwrap();
    assert_eq!((samples(&data)[510], labels(&data)[510]), (510.0, 511.0));
}

#[test]
fn one_mean_for_each_place_of_a_text_does_not_go_with_samples_that_overlap() {
    let folder = TempDir::new().unwrap();
    let all: String = ('\u{400}'..'\u{600}').collect();
    let path = write(&folder, "text", all.as_bytes());
    let wanted = wants_text(DataElement::F32, 512);
    let spec = |stride| DataSpec { mean: vec![0.0, 100.0], ..text_spec(&path, 2, stride) };
    assert_eq!(samples(&Dataset::open(&spec(0), &wanted).unwrap())[..4], [0.0, -99.0, 2.0, -97.0]);
    for stride in [1, 3] {
        refused(&spec(stride), &wanted, "E480", "do not go with samples that overlap");
    }
}

#[test]
fn the_last_percent_tests_and_overlapping_samples_of_a_text_are_left_out() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "text", "abcabcabcabca".as_bytes());
    let split = |stride| {
        let data = Dataset::open(&text_spec(&path, 3, stride), &wants_text(DataElement::I64, 3)).unwrap();
        data.split(Split::TestLastPercent(25), 0).unwrap()
    };
    assert_eq!(split(3), (vec![0, 1, 2], vec![3]), "12 characters in 4 samples side by side");
    assert_eq!(split(1), ((0..5).collect(), vec![7, 8, 9]), "samples 5 and 6 reach into 7");
    let data = open_csv("1,0\n2,0\n3,0\n4,0\n5,0\n", CLASSES).unwrap();
    assert_eq!(data.split(Split::TestLastPercent(1), 0).unwrap(), (vec![0, 1, 2, 3], vec![4]));
    assert_eq!(data.split(Split::TestLastPercent(50), 0).unwrap(), (vec![0, 1], vec![2, 3, 4]));
}

#[test]
fn the_last_samples_of_a_text_that_overlap_are_held_out_and_those_that_reach_into_them_are_left_out() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "text", "abcabcabcabca".as_bytes());
    let parts = |stride, split| {
        let spec = DataSpec { validation_percent: Some(25), split, ..text_spec(&path, 3, stride) };
        Dataset::open(&spec, &wants_text(DataElement::I64, 3)).unwrap().parts(&spec, 1).unwrap()
    };
    let last = parts(1, Split::All);
    assert_eq!((last.train, last.validation), ((0..5).collect(), vec![7, 8, 9]));
    let between = parts(1, Split::TestLastPercent(25));
    assert_eq!((between.train, between.validation, between.test), (vec![0], vec![3, 4], vec![7, 8, 9]));
    let side_by_side = parts(3, Split::All);
    assert_eq!((side_by_side.train.len(), side_by_side.validation.len()), (3, 1));
}

#[test]
fn samples_of_a_text_that_overlap_are_not_tested_one_by_one() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "text", "abcabcabcabca".as_bytes());
    let every = |stride| DataSpec { split: Split::TestEvery(2), ..text_spec(&path, 3, stride) };
    let wanted = wants_text(DataElement::I64, 3);
    let words = "`test_every = 2` does not go with samples of a text that overlap";
    for stride in [1, 2] {
        refused(&every(stride), &wanted, "E480", words);
    }
    // Side by side, or with characters between them that belong to none.
    for (stride, parts) in
        [(0, (vec![1, 3], vec![0, 2])), (3, (vec![1, 3], vec![0, 2])), (4, (vec![1], vec![0, 2]))]
    {
        let spec = every(stride);
        let data = Dataset::open(&spec, &wanted).unwrap();
        assert_eq!(data.split(spec.split, 0).unwrap(), parts, "stride {stride}");
    }
}

/// One image of height 2, width 2 and two channels, whose second channel is the first plus 100.
fn channels_last(folder: &TempDir, kind: u8) -> DataSpec {
    let numbers = [1u8, 101, 2, 102, 3, 103, 4, 104];
    let bytes = match kind {
        8 => numbers.to_vec(),
        _ => numbers.iter().flat_map(|&number| f32::from(number).to_be_bytes()).collect(),
    };
    let images = write(folder, "images", &idx(kind, &[1, 2, 2, 2], &bytes));
    idx_spec(&images, &write(folder, "labels", &idx(8, &[1], &[0])))
}

#[test]
fn images_whose_channels_come_last_are_transposed_and_never_read_in_another_order() {
    let folder = TempDir::new().unwrap();
    let nhwc = |spec: DataSpec| DataSpec { layout: Some(AxisOrder::Nhwc), ..spec };
    let want = [1.0, 2.0, 3.0, 4.0, 101.0, 102.0, 103.0, 104.0];
    let wanted = wants_input(DataElement::F32, &[Some(2), Some(2), Some(2)]);
    for kind in [8, 0x0d] {
        let data = Dataset::open(&nhwc(channels_last(&folder, kind)), &wanted).unwrap();
        assert_eq!(samples(&data), want, "element type {kind}");
    }
    // A mean for each channel goes with the channels as the model has them.
    let shifted = DataSpec { mean: vec![0.0, 100.0], ..nhwc(channels_last(&folder, 8)) };
    assert_eq!(samples(&Dataset::open(&shifted, &wanted).unwrap()), [&want[..4], &want[..4]].concat());
    // What is wrong is named by its place in the file: the second channel of the second point.
    let bytes: Vec<u8> = [1.0, 2.0, 3.0, f32::NAN, 5.0, 6.0, 7.0, 8.0].map(f32::to_be_bytes).concat();
    let images = write(&folder, "nan", &idx(0x0d, &[1, 2, 2, 2], &bytes));
    let spec = nhwc(idx_spec(&images, &write(&folder, "nan-labels", &idx(8, &[1], &[0]))));
    refused(&spec, &wanted, "E336", "row 1, column 4 of `x`: NaN is not a finite");
}

#[test]
fn the_hint_for_a_shape_that_does_not_fit_never_reads_the_numbers_in_another_order() {
    let folder = TempDir::new().unwrap();
    let images = |dims: &[u32]| {
        let count = dims.iter().product::<u32>() as usize;
        let images = write(&folder, "images", &idx(8, &[&[1], dims].concat(), &vec![0; count]));
        idx_spec(&images, &write(&folder, "labels", &idx(8, &[1], &[0])))
    };
    let (fixed, open) = ([Some(3), Some(4), Some(5)], [None, None, None]);
    #[rustfmt::skip]
    let cases: [(&str, &[u32], &[Option<usize>], &str); 4] = [
        ("channels last",   &[4, 5, 3], &fixed, "layout = \"nhwc\""),
        ("rows and columns", &[3, 5, 4], &fixed, "another order"),
        ("another size",    &[4, 5, 2], &fixed, "correct the data"),
        ("flat",            &[60],      &open,  "sample_shape"),
    ];
    for (name, dims, wanted, want) in cases {
        let error = Dataset::open(&images(dims), &wants_input(DataElement::F32, wanted)).unwrap_err();
        assert_eq!(error.code(), "E362", "{name}");
        assert!(error.hint().unwrap().contains(want), "{name}: {:?}", error.hint());
    }
    let mixed = DataSpec { sample_shape: vec![3, 4, 5], ..images(&[4, 5, 3]) };
    refused(&mixed, &wants_input(DataElement::F32, &fixed), "E338", "would mix up the numbers");
    // One channel, which comes first: transposed, the axis of length 1 could stand for any other.
    let one_channel = DataSpec { layout: Some(AxisOrder::Nhwc), ..images(&[1, 4, 4]) };
    let wanted = wants_input(DataElement::F32, &[Some(1), Some(4), Some(4)]);
    let error = Dataset::open(&one_channel, &wanted).unwrap_err();
    assert_eq!(error.code(), "E362");
    assert!(error.hint().unwrap().contains("leave `layout` out"), "{:?}", error.hint());
    let flat = DataSpec { layout: Some(AxisOrder::Nhwc), ..images(&[60]) };
    refused(&flat, &wants_input(DataElement::F32, &fixed), "E480", "samples of three axes");
}
