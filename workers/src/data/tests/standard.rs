//! Mean and deviation of the training samples.

use super::*;

fn standard(
    text: &str,
    change: impl FnOnce(&mut DataSpec),
    wanted: &ModelSignature,
) -> Result<Standard, DataError> {
    let folder = TempDir::new().unwrap();
    let mut spec = csv_spec(&write(&folder, "data.csv", text.as_bytes()), 1, 0);
    spec.standardize = true;
    change(&mut spec);
    let data = Dataset::open(&spec, wanted)?;
    data.standard(&data.parts(&spec, 0).unwrap().train, (0, &wanted.inputs[0]), spec.channel_axis)
}

#[test]
fn each_column_has_the_mean_and_the_deviation_of_the_samples_that_train() {
    // Of the first column 1, 3, 5, 7 train: mean 4, mean square of what is left (9 + 1 + 1 + 9) / 4 = 5. Of
    // the second all are 2.
    let text = "1,2,0\n1000,9,0\n3,2,1\n1000,9,1\n5,2,0\n1000,9,2\n7,2,0\n";
    let split = |spec: &mut DataSpec| spec.split = Split::TestEvery(2);
    let found = standard(&format!("0,0,0\n{text}"), split, &wants(CLASSES)).unwrap();
    assert_eq!(found.mean, [4.0, 2.0]);
    assert_eq!(found.std, [5.0_f64.sqrt(), 1.0]);
    assert_eq!(found.constant, [1]);
    let scaled = standard(
        &format!("0,0,0\n{text}"),
        |spec| (spec.scale, spec.split) = (0.5, Split::TestEvery(2)),
        &wants(CLASSES),
    );
    assert_eq!(scaled.unwrap().mean, [2.0, 1.0]);
}

/// Of seconds since 1970 float32 holds every 128th: what a file of float32 has lost is told, and what other
/// files have is kept.
#[test]
fn channels_whose_differences_a_float32_file_rounds_are_told() {
    let told = |spec: DataSpec| {
        let spec = DataSpec { standardize: true, ..spec };
        let data = Dataset::open(&spec, &wants(CLASSES)).unwrap();
        let found = data
            .standard(&data.parts(&spec, 0).unwrap().train, (0, &wants(CLASSES).inputs[0]), spec.channel_axis)
            .unwrap();
        (found.constant, found.rounded)
    };
    let folder = TempDir::new().unwrap();
    #[rustfmt::skip]
    let cases: [(fn(f64) -> (f64, f64), Vec<usize>, Vec<usize>); 4] = [
        // A minute of them falls together; hours do not, and are rounded.
        (|n| (1_700_000_000.0 + n, n),         vec![],  vec![0]),
        (|n| (n, 1_700_000_000.0 + 300.0 * n), vec![],  vec![1]),
        // Integers below 2^24 are exact.
        (|n| (1e6 + n, 7.0),                   vec![1], vec![]),
        (|n| (0.25 + n, 1e6 + 0.1 * n),        vec![],  vec![1]),
    ];
    for (of, constant, rounded) in cases {
        let rows: Vec<(f64, f64)> = (0..60).map(|n| of(n.into())).collect();
        let text: String = rows.iter().map(|(a, b)| format!("{a},{b},0\n")).collect();
        let table = csv_spec(&write(&folder, "data.csv", text.as_bytes()), 1, 0);
        assert_eq!(told(table), (constant.clone(), vec![]));
        let numbers = rows.iter().flat_map(|(a, b)| [*a as f32, *b as f32]);
        let numbers: Vec<u8> = numbers.flat_map(f32::to_le_bytes).collect();
        let arrays = [("x", Dtype::F32, &[60, 2][..], &numbers[..]), ("label", Dtype::U8, &[60], &[0; 60])];
        let arrays = write(&folder, "data.safetensors", &tensors(&arrays));
        assert_eq!(told(DataSpec::new(Source::safetensors(arrays))), (constant, rounded));
    }
}

#[test]
fn seconds_since_1970_of_a_table_are_told_apart() {
    let text: String = (0..60).map(|n| format!("{},{n},0\n", 1_700_000_000 + n)).collect();
    let found = standard(&text, |_| (), &wants(CLASSES)).unwrap();
    assert_eq!((found.mean[0], found.std[0]), (1_700_000_029.5, found.std[1]));
    let folder = TempDir::new().unwrap();
    let mut spec = csv_spec(&write(&folder, "data.csv", text.as_bytes()), 1, 0);
    (spec.mean, spec.std) = (found.mean, found.std);
    let numbers = samples(&Dataset::open(&spec, &wants(CLASSES)).unwrap());
    assert!(numbers.chunks(2).all(|sample| sample[0] == sample[1]), "{numbers:?}");
}

#[test]
fn a_channel_of_images_is_all_of_its_pixels_and_bytes_are_as_floats() {
    let folder = TempDir::new().unwrap();
    let pixels = [0, 2, 4, 6, 10, 10, 10, 10, 8, 10, 12, 14, 10, 10, 10, 30];
    let images = write(&folder, "x", &idx(8, &[2, 2, 2, 2], &pixels));
    let classes = write(&folder, "y", &idx(8, &[2], &[0, 1]));
    let spec = DataSpec { scale: 0.5, ..idx_spec(&images, &classes) };
    let wanted = wants_input(DataElement::F32, &[Some(2), Some(2), Some(2)]);
    let data = Dataset::open(&spec, &wanted).unwrap();
    let found = data.standard(&[0, 1], (0, &wanted.inputs[0]), ChannelAxis::First).unwrap();
    // 0, 2, 4, 6, 8, 10, 12, 14 and seven times 10 with one 30, all halved.
    assert_eq!((found.mean.as_slice(), found.std[0]), ([3.5, 6.25].as_slice(), 5.25_f64.sqrt()));
    assert!(
        (found.std[1] - (7.0 * 1.25_f64.powi(2) + 8.75_f64.powi(2)).sqrt() / 8.0_f64.sqrt()).abs() < 1e-6
    );
}

#[test]
fn what_is_standardized_has_mean_0_and_deviation_1_whatever_its_size() {
    let text: String =
        (0..50).map(|n| format!("{},{},{}\n", 1e6 + f64::from(n), 1e-6 * f64::from(n * n), n % 3)).collect();
    let found = standard(&text, |_| (), &wants(CLASSES)).unwrap();
    let folder = TempDir::new().unwrap();
    let mut spec = csv_spec(&write(&folder, "data.csv", text.as_bytes()), 1, 0);
    (spec.mean, spec.std) = (found.mean, found.std);
    let data = Dataset::open(&spec, &wants(CLASSES)).unwrap();
    for column in 0..2 {
        let numbers: Vec<f64> = samples(&data).into_iter().skip(column).step_by(2).collect();
        let mean = numbers.iter().sum::<f64>() / 50.0;
        let square = numbers.iter().map(|number| number * number).sum::<f64>() / 50.0;
        assert!(mean.abs() < 1e-2 && (square - 1.0).abs() < 1e-2, "column {column}: {mean}, {square}");
    }
}

#[test]
fn a_constant_column_that_does_not_add_up_exactly_is_constant() {
    let text: String = (0..1000).map(|n| format!("0.1,{n},0\n")).collect();
    let found = standard(&text, |_| (), &wants(CLASSES)).unwrap();
    assert_eq!((found.constant, found.std[0], found.mean[0]), (vec![0], 1.0, 0.1));
}

/// A worker reads the data with the mean and the deviation that the client has computed.
#[test]
fn what_is_standardized_is_read_by_workers_or_refused_before_table() {
    let folder = TempDir::new().unwrap();
    let tiny = f32::from_bits(1);
    #[rustfmt::skip]
    let cases: [(&str, [f32; 4], bool); 4] = [
        ("plain",                             [1.0, 2.0, 3.0, 4.0],        true),
        // 255 would become infinite, and is not there.
        ("numbers of less than 1e-37",        [1e-38, 2e-38, 3e-38, 4e-38], true),
        // Their deviation is no float32 above 0.
        ("numbers that float32 hardly tells", [tiny, 0.0, 0.0, 0.0],       false),
        ("large ones",                        [3e38, 0.0, 0.0, 3e38],      true),
    ];
    for (name, numbers, is_read) in cases {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let arrays = [("x", Dtype::F32, &[4, 1][..], &bytes[..]), ("label", Dtype::U8, &[4], &[0; 4])];
        let path = write(&folder, "data.safetensors", &tensors(&arrays));
        let mut spec = DataSpec { standardize: true, ..DataSpec::new(Source::safetensors(path)) };
        let data = Dataset::open(&spec, &wants(CLASSES)).unwrap();
        match data.standard(&[0, 1, 2, 3], (0, &wants(CLASSES).inputs[0]), ChannelAxis::First) {
            Ok(found) => {
                (spec.mean, spec.std) = (found.mean, found.std);
                assert!(is_read && Dataset::open(&spec, &wants(CLASSES)).is_ok(), "{name}");
            }
            Err(error) => assert!(!is_read && error.code() == "E593", "{name}: {error}"),
        }
    }
}

#[test]
fn what_cannot_be_standardized_is_refused() {
    let error = standard("3e38,2,0\n-3e38,4,0\n", |spec| spec.split = Split::TestEvery(2), &wants(CLASSES))
        .unwrap_err();
    assert!(
        error.code() == "E593" && error.to_string().contains("channel 1 of `x` would become infinite"),
        "{error}"
    );
}

/// Two steps of two features, of which the first is small: taken by steps it vanishes.
#[test]
fn features_of_sequences_are_standardized_each_on_the_last_axis_and_named_where_steps_are() {
    let folder = TempDir::new().unwrap();
    let wanted = wants_input(DataElement::F32, &[Some(2), Some(2)]);
    let opened = |numbers: [f32; 8], axis: ChannelAxis| {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let arrays = [("x", Dtype::F32, &[2, 2, 2][..], &bytes[..]), ("label", Dtype::U8, &[2], &[0; 2])];
        let path = write(&folder, "data.safetensors", &tensors(&arrays));
        let spec =
            DataSpec::new(Source::safetensors(path)).with(|d| (d.standardize, d.channel_axis) = (true, axis));
        let found =
            Dataset::open(&spec, &wanted).unwrap().standard(&[0, 1], (0, &wanted.inputs[0]), axis).unwrap();
        let spec = spec.with(|d| (d.mean, d.std) = (found.mean.clone(), found.std.clone()));
        (found, samples(&Dataset::open(&spec, &wanted).unwrap()))
    };
    let sequences = [1.0, 1000.0, 3.0, 3000.0, 1.0, 1000.0, 3.0, 3000.0];
    let (found, read) = opened(sequences, ChannelAxis::Last);
    assert_eq!(
        (found.mean, found.std, found.differs_along_last),
        (vec![2.0, 2000.0], vec![1.0, 1000.0], None)
    );
    assert_eq!(read, [-1.0, -1.0, 1.0, 1.0, -1.0, -1.0, 1.0, 1.0]);
    let (found, _) = opened(sequences, ChannelAxis::First);
    assert_eq!((found.mean, found.differs_along_last), (vec![500.5, 1501.5], Some(vec![2, 2])));
    // Channels of signals lie on the first axis.
    let signals = [1.0, 3.0, 1000.0, 3000.0, 1.0, 3.0, 1000.0, 3000.0];
    let (found, read) = opened(signals, ChannelAxis::First);
    assert_eq!((found.mean, found.differs_along_last), (vec![2.0, 2000.0], None));
    assert_eq!(read, [-1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0]);
}

#[test]
fn channels_on_the_last_axis_do_not_go_with_images() {
    let folder = TempDir::new().unwrap();
    let (pixels, classes) =
        (write(&folder, "x", &idx(8, &[1, 2, 2], &[1; 4])), write(&folder, "y", &idx(8, &[1], &[0])));
    let spec =
        idx_spec(&pixels, &classes).with(|d| (d.channel_axis, d.augment.flip) = (ChannelAxis::Last, true));
    let error =
        Dataset::open(&spec, &wants_input(DataElement::F32, &[Some(1), Some(2), Some(2)])).unwrap_err();
    assert!(error.code() == "E480" && error.to_string().contains("channel_axis"), "{error}");
}
