//! Tables of numbers: settings, IDX, shapes.

use super::*;

#[test]
fn a_setting_that_is_refused_is_said_with_what_it_must_be_and_what_was_given() {
    let folder = TempDir::new().unwrap();
    let spec = csv_spec(&write(&folder, "data.csv", b"1,2,0\n"), 1, 0);
    let split = |split| DataSpec { split, ..spec.clone() };
    #[rustfmt::skip]
    let cases = [
        (DataSpec { scale: 0.0, ..spec.clone() },              "`scale` must not be 0: every number of every sample would be"),
        (DataSpec { scale: f32::INFINITY, ..spec.clone() },    "`scale` must be a finite number, not inf"),
        (DataSpec { mean: vec![0.0, f64::NAN], ..spec.clone() }, "`mean` must hold finite numbers, not NaN"),
        (DataSpec { std: vec![1.0, -0.5], ..spec.clone() },    "`std` must be above 0, not -0.5"),
        (split(Split::TestEvery(0)),                           "`test_every` must be at least 1, not 0"),
        (split(Split::TestPercent(100)),                       "`test_percent` must be from 1 to 99, not 100"),
        (DataSpec { validation_percent: Some(0), ..spec.clone() }, "`validation_percent` must be from 1 to 99, not 0"),
        (split(Split::TestLastPercent(100)),                   "`test_last_percent` must be from 1 to 99, not 100"),
    ];
    for (spec, words) in cases {
        refused(&spec, &wants(CLASSES), "E480", words);
    }
}

#[test]
fn targets_that_do_not_fit_are_refused() {
    let folder = TempDir::new().unwrap();
    let spec = csv_spec(&write(&folder, "data.csv", b"1,2,0\n"), 1, 0);
    let wanted = ModelSignature { label: Some(label(Target::Values, &[Some(2)])), ..wants(CLASSES) };
    refused(&spec, &wanted, "E338", "labels of shape [1] do not go with `label`, which wants [2] a sample");
    let infinite = open_csv("1,2,inf\n", Target::Values).unwrap_err();
    assert_eq!(infinite.code(), "E336");
    for (text, found) in [("1,2,1\n1,2,-0.13\n", "-0.13"), ("1,2,0\n1,2,4.2\n", "4.2")] {
        let outside = open_csv(text, Target::Probabilities).unwrap_err();
        assert_eq!(outside.code(), "E356");
        assert!(
            outside.to_string().contains(&format!("row 2: label {found} is no probability")),
            "{outside}"
        );
    }
    assert!(open_csv("1,2,0\n1,2,1\n1,2,0.5\n", Target::Probabilities).is_ok());
}

#[test]
fn idx_plain_and_packed() {
    let folder = TempDir::new().unwrap();
    let (images, classes) = (idx(8, &[2, 2, 3], &(0..12).collect::<Vec<u8>>()), idx(8, &[2], &[2, 0]));
    let plain = idx_spec(&write(&folder, "images", &images), &write(&folder, "labels", &classes));
    let packed =
        idx_spec(&write(&folder, "images.gz", &gzip(&images)), &write(&folder, "labels.gz", &gzip(&classes)));
    for spec in [plain, packed] {
        let wanted = wants_input(DataElement::F32, &[Some(1), Some(2), Some(3)]);
        let data = Dataset::open(&DataSpec { scale: 2.0, ..spec }, &wanted).unwrap();
        assert_eq!((data.len(), data.input_shapes().next()), (2, Some([1, 2, 3].as_slice())));
        assert_eq!(samples(&data), (0..12).map(|byte| f64::from(2 * byte)).collect::<Vec<_>>());
        assert_eq!(labels(&data), [2.0, 0.0]);
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
    let data = Dataset::open(&spec, &wants(Target::Values)).unwrap();
    assert_eq!((samples(&data), labels(&data)), (vec![0.5, -2.0], vec![-7.0, 300.0]));
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
        ("label shape",      good.clone(),                          idx(8, &[2, 2], &[0; 4]),    "E338", "labels of shape [2] do not go with"),
    ];
    for (name, images, labels, code, message) in cases {
        let folder = TempDir::new().unwrap();
        let spec = idx_spec(&write(&folder, "images", &images), &write(&folder, "labels", &labels));
        let error = Dataset::open(&spec, &wants(CLASSES)).unwrap_err();
        assert_eq!(error.code(), code, "{name}: {error}");
        assert!(error.to_string().contains(message), "{name}: {error}");
    }
}

#[test]
fn a_sample_shape_has_to_hold_the_sample() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "data.csv", b"1,2,3,4,0\n");
    let shaped = |shape: &[u32]| DataSpec { sample_shape: shape.to_vec(), ..csv_spec(&path, 1, 0) };
    let open = wants_input(DataElement::F32, &[None, None, None]);
    let data = Dataset::open(&shaped(&[1, 2, 2]), &open).unwrap();
    assert_eq!(data.input_shapes().next(), Some([1, 2, 2].as_slice()));
    refused(&shaped(&[3, 2]), &open, "E338", "sample shape [3, 2] does not hold the 4 numbers of a sample");
    refused(&shaped(&[u32::MAX; 4]), &open, "E338", "");
    refused(&shaped(&[2, 2]), &open, "E362", "input x takes samples of shape [?, ?, ?], the data has [2, 2]");
}

#[test]
fn channels_are_shifted_and_scaled_alike_from_bytes_and_from_floats() {
    let folder = TempDir::new().unwrap();
    let bytes = [0u8, 255, 51, 102];
    let floats: Vec<u8> = bytes.iter().flat_map(|&byte| f32::from(byte).to_be_bytes()).collect();
    let answers = write(&folder, "labels", &idx(8, &[1], &[0]));
    let wanted = wants_input(DataElement::F32, &[Some(2), Some(1), Some(2)]);
    for (kind, data) in [(8, bytes.to_vec()), (0x0d, floats)] {
        let images = write(&folder, "images", &idx(kind, &[1, 2, 1, 2], &data));
        let spec = DataSpec {
            scale: 1.0 / 51.0,
            mean: vec![1.0, 2.0],
            std: vec![0.5],
            ..idx_spec(&images, &answers)
        };
        let found = samples(&Dataset::open(&spec, &wanted).unwrap());
        for (found, want) in found.iter().zip([-2.0, 8.0, -2.0, 0.0]) {
            assert!((found - want).abs() < 1e-6, "{found}, expected {want}");
        }
        let three = DataSpec { std: vec![1.0; 3], ..spec.clone() };
        refused(&three, &wanted, "E480", "`std` has 3 numbers, `x` has 2 channels");
        refused(
            &DataSpec { std: vec![0.0], ..spec.clone() },
            &wanted,
            "E480",
            "`std` must be above 0, not 0",
        );
        refused(&DataSpec { scale: f32::NAN, ..spec.clone() }, &wanted, "E480", "`scale`");
    }
}

#[test]
fn tables_of_integers_feed_integer_inputs_and_labels_per_position() {
    let folder = TempDir::new().unwrap();
    let spec = csv_spec(&write(&folder, "data.csv", b"5,6,0,1\n7,8,2,0\n"), 2, 0);
    let wanted = ModelSignature {
        inputs: vec![input("ids", DataElement::I64, &[Some(2)])],
        label: Some(label(CLASSES, &[Some(2)])),
    };
    let data = Dataset::open(&spec, &wanted).unwrap();
    assert_eq!((samples(&data), labels(&data)), (vec![5.0, 6.0, 7.0, 8.0], vec![0.0, 1.0, 2.0, 0.0]));
    let broken = csv_spec(&write(&folder, "broken.csv", b"5,6,0,1\n7,8.5,2,0\n"), 2, 0);
    refused(&broken, &wanted, "E484", "broken.csv row 2, column 2: 8.5 is not an integer");
    let large = csv_spec(&write(&folder, "large.csv", b"5,16777217,0,1\n"), 2, 0);
    refused(&large, &wanted, "E484", "row 1, column 2: 16777217 is not an integer");
}

#[test]
fn a_number_for_each_class_is_refused_where_the_loss_takes_classes() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "data.csv", b"1,0,0,1\n2,0.5,0.5,0\n");
    let error = Dataset::open(&csv_spec(&path, 3, 0), &wants(Target::Classes { count: 3, ignored: None }))
        .unwrap_err();
    assert!(error.code() == "E624" && error.hint().unwrap().contains("argmax"), "{error}");
    let error = Dataset::open(&csv_spec(&path, 2, 0), &wants(Target::Classes { count: 3, ignored: None }))
        .unwrap_err();
    assert_eq!(error.code(), "E338");
}
