//! Images that change while they train, from the file to the batch. Each cut and each square by hand: in
//! `augment/pixels.rs`.

use std::collections::BTreeSet;

use syncline_scheduler::spec::Augment;

use super::*;

const FLIP_AND_CROP: Augment = Augment { flip: true, crop: 1, cutout: 0 };
const PASS: Pass = Pass { seed: 7, epoch: 0 };

/// An image of 2 channels of 3x3 for each of these samples, every pixel of all of them another number.
fn pixels(samples: usize) -> Vec<u8> {
    (1..=samples as u8 * 18).collect()
}

/// Samples of [2, 3, 3] in a safetensors file, as bytes or floats, with a class each.
fn images(folder: &TempDir, dtype: Dtype, samples: usize) -> DataSpec {
    let bytes = pixels(samples);
    let floats: Vec<f32> = bytes.iter().map(|&byte| byte.into()).collect();
    let data = if dtype == Dtype::U8 { &bytes[..] } else { bytemuck::cast_slice(&floats) };
    let labels = vec![1; samples];
    let file = tensors(&[("x", dtype, &[samples, 2, 3, 3], data), ("label", Dtype::U8, &[samples], &labels)]);
    DataSpec::new(Source::safetensors(write(folder, &format!("{dtype:?}.safetensors"), &file)))
        .with(|d| d.augment = FLIP_AND_CROP)
}

fn wants_images() -> ModelSignature {
    wants_input(DataElement::F32, &[Some(2), Some(3), Some(3)])
}

/// The samples of these rows as they train, one after the other.
fn trained(data: &Dataset, rows: &[u32], pass: Pass) -> Vec<Vec<f64>> {
    let mut batch = data.batch();
    data.gather_to_train(rows, pass, &mut batch).unwrap();
    let (shape, all) = numbers(batch.inputs().next().unwrap());
    assert_eq!(shape[0], rows.len());
    all.chunks(all.len() / rows.len().max(1)).map(<[f64]>::to_vec).collect()
}

#[test]
fn a_sample_trains_as_the_same_image_in_every_batch_and_from_every_form_of_its_file() {
    let folder = TempDir::new().unwrap();
    let data = Dataset::open(&images(&folder, Dtype::U8, 8), &wants_images()).unwrap();
    let rows: Vec<u32> = (0..8).collect();
    let all = trained(&data, &rows, PASS);
    for row in rows.clone() {
        assert_eq!(trained(&data, &[row], PASS), all[row as usize..][..1]);
    }
    assert_eq!(trained(&data, &[5, 2], PASS), [all[5].clone(), all[2].clone()]);
    let floats = Dataset::open(&images(&folder, Dtype::F32, 8), &wants_images()).unwrap();
    assert_eq!(trained(&floats, &rows, PASS), all);

    // The same images with their channels last.
    let planes = pixels(8);
    let last = planes.chunks(18).flat_map(|image| (0..9).flat_map(|at| [image[at], image[at + 9]]));
    let file = write(&folder, "nhwc", &idx(8, &[8, 3, 3, 2], &last.collect::<Vec<_>>()));
    let spec = idx_spec(&file, &write(&folder, "labels", &idx(8, &[8], &[1; 8])))
        .with(|d| (d.layout, d.augment) = (Some(AxisOrder::Nhwc), FLIP_AND_CROP));
    assert_eq!(trained(&Dataset::open(&spec, &wants_images()).unwrap(), &rows, PASS), all);
}

#[test]
fn epochs_show_other_images_and_only_those_that_train_change() {
    let folder = TempDir::new().unwrap();
    let spec = images(&folder, Dtype::U8, 8);
    let data = Dataset::open(&spec, &wants_images()).unwrap();
    let plain =
        Dataset::open(&spec.clone().with(|d| d.augment = Augment::default()), &wants_images()).unwrap();
    assert_eq!(samples(&data), samples(&plain), "what is evaluated is as in the file");
    let rows: Vec<u32> = (0..8).collect();
    assert_eq!(trained(&plain, &rows, PASS).concat(), samples(&plain));
    let of_epochs = |row| -> BTreeSet<Vec<u64>> {
        let pixels = |epoch| trained(&data, &[row], Pass { epoch, ..PASS }).remove(0);
        (0..200).map(|epoch| pixels(epoch).into_iter().map(|pixel| pixel as u64).collect()).collect()
    };
    // Nine cuts, each mirrored or not.
    assert!(rows.iter().all(|&row| of_epochs(row).len() == 18));
}

#[test]
fn what_is_padded_is_zero_before_it_is_scaled_and_a_square_is_the_mean() {
    let folder = TempDir::new().unwrap();
    for dtype in [Dtype::U8, Dtype::F32] {
        let spec = images(&folder, dtype, 4).with(|d| {
            (d.scale, d.mean, d.std) = (0.5, vec![4.0, 6.0], vec![2.0, 4.0]);
            d.augment = Augment { flip: false, crop: 2, cutout: 0 };
        });
        let data = Dataset::open(&spec, &wants_images()).unwrap();
        let square = spec.with(|d| d.augment = Augment { flip: false, crop: 0, cutout: 2 });
        let square = Dataset::open(&square, &wants_images()).unwrap();
        let (mut padded, mut covered) = (0, 0);
        for epoch in 0..50 {
            let pass = Pass { seed: 1, epoch };
            let kept = samples(&data);
            for (row, image) in trained(&data, &[0, 1, 2, 3], pass).into_iter().enumerate() {
                for (channel, border) in [-2.0, -1.5].into_iter().enumerate() {
                    let pixels = &kept[row * 18 + channel * 9..][..9];
                    let seen = &image[channel * 9..][..9];
                    padded += seen.iter().filter(|&&pixel| pixel == border).count();
                    assert!(seen.iter().all(|pixel| *pixel == border || pixels.contains(pixel)), "{dtype:?}");
                }
            }
            let covers = |image: &Vec<f64>| image.iter().filter(|&&pixel| pixel == 0.0).count();
            covered += trained(&square, &[3], pass).iter().map(covers).sum::<usize>();
        }
        assert!(padded > 0 && covered > 50, "{dtype:?}: {padded}, {covered}");
    }
}

#[test]
fn other_inputs_and_labels_stay_as_they_are() {
    let folder = TempDir::new().unwrap();
    let table: Vec<f32> = (0..8).map(|number| number as f32).collect();
    let arrays: &[(&str, Dtype, &[usize], &[u8])] = &[
        ("x", Dtype::U8, &[4, 2, 3, 3], &pixels(4)),
        ("table", Dtype::F32, &[4, 2], bytemuck::cast_slice(&table)),
        ("label", Dtype::U8, &[4], &[0, 1, 2, 0]),
    ];
    let path = write(&folder, "data.safetensors", &tensors(arrays));
    let spec = DataSpec::new(Source::safetensors(path)).with(|d| d.augment = FLIP_AND_CROP);
    let mut wanted = wants_images();
    wanted.inputs.insert(0, input("table", DataElement::F32, &[Some(2)]));
    let data = Dataset::open(&spec, &wanted).unwrap();
    let mut batch = data.batch();
    data.gather_to_train(&[2, 0], PASS, &mut batch).unwrap();
    let found: Vec<_> = batch.inputs().map(|view| numbers(view).1).collect();
    assert_eq!(found[0], [4.0, 5.0, 0.0, 1.0]);
    assert_eq!(numbers(batch.label().unwrap()).1, [2.0, 0.0]);
    let alone = Dataset::open(&spec, &wants_images()).unwrap();
    assert_eq!(found[1], trained(&alone, &[2, 0], PASS).concat());
    assert_eq!(data.gather_to_train(&[4], PASS, &mut batch).unwrap_err().code(), "E339");
}

#[test]
fn what_is_no_image_or_too_small_is_refused_table() {
    let folder = TempDir::new().unwrap();
    let labels = |shape: &[usize]| vec![1; 2 * shape.iter().product::<usize>()];
    let open = |inputs: &[(&str, &[usize])], element, label_shape: &[usize], augment| {
        let shapes = inputs.iter().map(|(_, shape)| [&[2], *shape].concat()).collect::<Vec<_>>();
        let bytes: Vec<_> = inputs.iter().map(|(_, shape)| labels(shape)).collect();
        let mut arrays: Vec<(&str, Dtype, &[usize], &[u8])> = Vec::new();
        for (((name, _), shape), bytes) in inputs.iter().zip(&shapes).zip(&bytes) {
            arrays.push((name, Dtype::U8, shape, bytes));
        }
        let (label_bytes, label_dims) = (labels(label_shape), [&[2], label_shape].concat());
        arrays.push(("label", Dtype::U8, &label_dims, &label_bytes));
        let path = write(&folder, "data.safetensors", &tensors(&arrays));
        let wanted = ModelSignature {
            inputs: inputs
                .iter()
                .map(|(name, shape)| input(name, element, &vec![None; shape.len()]))
                .collect(),
            label: Some(label(CLASSES, &vec![None; label_shape.len()])),
        };
        Dataset::open(&DataSpec::new(Source::safetensors(path)).with(|d| d.augment = augment), &wanted)
    };
    let (float, crop, cutout) = (
        DataElement::F32,
        |crop| Augment { crop, ..FLIP_AND_CROP },
        |cutout| Augment { cutout, ..Augment::default() },
    );
    type Inputs = &'static [(&'static str, &'static [usize])];
    type Case = (&'static str, Inputs, DataElement, &'static [usize], Augment, &'static str);
    #[rustfmt::skip]
    let cases: [Case; 12] = [
        ("flat",           &[("x", &[64])],                        float, &[], FLIP_AND_CROP, "channels, height and width, and `x` takes samples of shape [64]"),
        ("without channels", &[("x", &[8, 8])],                    float, &[], FLIP_AND_CROP, "`x` takes samples of shape [8, 8]"),
        ("video",          &[("x", &[3, 2, 8, 8])],                float, &[], FLIP_AND_CROP, "`x` takes samples of shape [3, 2, 8, 8]"),
        ("integers",       &[("x", &[3, 8, 8])],                   DataElement::I64, &[], FLIP_AND_CROP, "`x` takes integers"),
        ("two images",     &[("x", &[3, 8, 8]), ("y", &[1, 8, 8])], float, &[], FLIP_AND_CROP, "`x` and `y` both take images"),
        ("channels last",  &[("x", &[8, 8, 3])],                   float, &[], FLIP_AND_CROP, "the channels of `x` [8, 8, 3] seem to come last"),
        ("label of pixels", &[("x", &[3, 8, 8])],                  float, &[8, 8], FLIP_AND_CROP, "labels of shape [8, 8] would not move"),
        ("flat label of pixels", &[("x", &[3, 8, 8])],             float, &[64], FLIP_AND_CROP, "labels of shape [64] would not move"),
        ("padding",        &[("x", &[3, 8, 6])],                   float, &[], crop(6), "`crop` must be below the shorter side of the images, 6 pixels, not 6"),
        ("most of all",    &[("x", &[3, 8, 6])],                   float, &[], crop(u32::MAX), "6 pixels, not 4294967295"),
        ("square",         &[("x", &[3, 8, 8])],                   float, &[], cutout(8), "`cutout` must be below the shorter side of the images, 8 pixels, not 8"),
        ("one pixel",      &[("x", &[3, 1, 1])],                   float, &[], crop(1), "1 pixels, not 1"),
    ];
    for (name, inputs, element, label_shape, augment, words) in cases {
        let error = open(inputs, element, label_shape, augment).unwrap_err();
        assert!(error.code() == "E479" && error.to_string().contains(words), "{name}: {error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("docs/data.md")), "{name}");
    }
    open(&[("x", &[3, 8, 6])], float, &[], crop(5)).unwrap();
    open(&[("x", &[3, 8, 8])], float, &[1, 1], cutout(7)).unwrap();
    open(&[("x", &[3, 1, 1])], float, &[4], Augment { flip: true, ..Augment::default() }).unwrap();
    open(&[("x", &[64])], DataElement::I64, &[], Augment::default()).unwrap();
}
