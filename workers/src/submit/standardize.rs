//! Mean and deviation of the training samples, of each input of floats that asks for them.

use syncline_scheduler::spec::{DataElement, DataSpec};

use super::name_list;
use crate::data::{DataError, Dataset, InputSignature, ModelSignature, SettingError, Standard};

/// Has the spec say the mean and the deviation of the training samples. What is doubtful about them.
pub(super) fn standardize(
    spec: &mut DataSpec,
    set: &Dataset,
    train_rows: &[u32],
    wanted: &ModelSignature,
) -> Result<Vec<String>, DataError> {
    let mut doubts = Vec::new();
    for (place, input) in standardized_inputs(spec, wanted)? {
        let axis = spec.normalization_of(&input.name).channel_axis;
        let Standard { mean, std, constant, rounded, differs_along_last } =
            set.standard(train_rows, (place, input), axis)?;
        let is_flat = set.input_shapes().nth(place).is_some_and(|shape| shape.len() == 1);
        let name = |channel: usize| set.input_column(place, channel).filter(|_| is_flat)?.name.as_deref();
        let numbers_of = |channels: &[usize]| -> Vec<String> {
            channels.iter().map(|&channel| channel_in_words(channel, name(channel))).collect()
        };
        let of = match spec.normalize.contains_key(&input.name) {
            true => format!(" of `{}`", input.name),
            false => String::new(),
        };
        let setting = |name: &str| spec.normalization_setting(&input.name, name);
        doubts.extend(constant_channels(&numbers_of(&constant), &of));
        doubts.extend(rounded_channels(&numbers_of(&rounded), &of));
        doubts.extend(differs_along_last.map(|shape| uneven_channels(&shape, setting)));
        spec.set_mean_and_std(&input.name, mean, std);
    }
    Ok(doubts)
}

/// The inputs whose normalization is computed, and their places among those of the model.
fn standardized_inputs<'a>(
    spec: &DataSpec,
    wanted: &'a ModelSignature,
) -> Result<Vec<(usize, &'a InputSignature)>, SettingError> {
    let floats = wanted.inputs.iter().enumerate().filter(|(_, input)| input.element == DataElement::F32);
    let sharing: Vec<&str> = floats
        .clone()
        .map(|(_, input)| input.name.as_str())
        .filter(|name| !spec.normalize.contains_key(*name))
        .collect();
    let refused = |what: String| Err(SettingError::Standardize { what });
    match sharing[..] {
        [] if spec.standardize => {
            return refused("the model takes integers, which are fed as they are".to_owned());
        }
        [name, other, ..] if spec.standardize => {
            return refused(format!(
                "the model has several float inputs without a table under `normalize`, `{name}` and `{other}`, and `mean` and `std` are one list each"
            ));
        }
        _ => {}
    }
    Ok(floats.filter(|(_, input)| spec.normalization_of(&input.name).standardize).collect())
}

/// Channels that tell no sample from another one.
fn constant_channels(channels: &[String], of: &str) -> Option<String> {
    let (which, what) = match channels {
        [] => return None,
        [one] => (format!("channel {one}{of} is"), "becomes"),
        _ => (format!("channels {}{of} are", name_list::cut(channels)), "become"),
    };
    Some(format!(
        "{which} the same in all training samples, and {what} 0 by `standardize`; channels of a table are the columns of the input, without those of the label"
    ))
}

/// Channels that cannot tell samples apart as well as they should.
fn rounded_channels(channels: &[String], of: &str) -> Option<String> {
    let (which, it) = match channels {
        [] => return None,
        [one] => (format!("channel {one}{of} holds"), "it"),
        numbers => (format!("channels {}{of} hold", name_list::cut(numbers)), "them"),
    };
    Some(format!(
        "{which} numbers so large beside how far they lie apart that float32, as which the file has them, rounds the difference: write them as \
         float64, or subtract a number from {it} before, such as the first time from times"
    ))
}

/// Sequences whose features were standardized together.
fn uneven_channels(shape: &[usize], called: impl Fn(&str) -> String) -> String {
    let rows = shape.first().copied().unwrap_or_default();
    let (standardize, axis) = (called("standardize"), called("channel_axis"));
    format!(
        "`{standardize}` took one mean and deviation for each of the {rows} places on the first axis of samples of {shape:?}, over numbers whose \
         scales differ along the last one, the least of which vanish: of sequences of time and features, `{axis} = \"last\"` standardizes each feature"
    )
}

/// As people count, and as the table calls it.
fn channel_in_words(channel: usize, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{} (`{name}`)", channel + 1),
        None => (channel + 1).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use safetensors::{Dtype, tensor::TensorView};
    use syncline_scheduler::spec::{Normalization, Source};
    use tempfile::TempDir;

    use super::*;
    use crate::submit::data::inspect;

    fn input(name: &str, element: DataElement, shape: &[usize]) -> InputSignature {
        let shape = shape.iter().map(|&size| Some(size)).collect();
        InputSignature { name: name.to_owned(), element, shape, rows: Vec::new() }
    }

    fn wanted(table: DataElement) -> ModelSignature {
        let inputs = vec![input("image", DataElement::F32, &[1, 2, 2]), input("table", table, &[2])];
        ModelSignature { inputs, label: None }
    }

    /// Three samples of an image and of two columns, of which the second is large beside how far it spreads.
    fn write(folder: &TempDir) -> DataSpec {
        let image = [0, 51, 102, 255, 255, 51, 0, 102, 10, 20, 30, 40];
        let table: Vec<u8> =
            [1.0_f64, 1000.0, 3.0, 1000.5, 8.0, 1003.0].into_iter().flat_map(f64::to_le_bytes).collect();
        let arrays = [
            ("image", TensorView::new(Dtype::U8, vec![3, 1, 2, 2], &image).unwrap()),
            ("table", TensorView::new(Dtype::F64, vec![3, 2], &table).unwrap()),
        ];
        let path = folder.path().join("data.safetensors");
        fs::write(&path, safetensors::serialize(arrays, None).unwrap()).unwrap();
        DataSpec::new(Source::safetensors(path))
    }

    fn standardized(scale: f32) -> Normalization {
        Normalization { scale, standardize: true, ..Normalization::default() }
    }

    fn is_near(found: &[f64], want: &[f64]) -> bool {
        let near = |(found, want): (&f64, &f64)| (found - want).abs() < 1e-12 * want.abs();
        found.len() == want.len() && found.iter().zip(want).all(near)
    }

    #[test]
    fn each_input_has_the_mean_and_the_deviation_that_numpy_gives_of_it() {
        let folder = TempDir::new().unwrap();
        // `image * 0.5` and `table` of numpy 2: mean() and std() of all, mean(0) and std(0).
        let image = ([38.166_666_666_666_664], [43.093_567_449_859_1]);
        let table = ([4.0, 1_001.166_666_666_666_6], [2.943_920_288_775_949, 1.312_334_645_668_635_1]);
        let both = write(&folder).normalize("image", standardized(0.5)).normalize("table", standardized(1.0));
        // One that has no table may have that of all others.
        let one_shared = write(&folder)
            .normalize("image", standardized(0.5))
            .with(|d| (d.standardize, d.scale) = (true, 1.0));
        for (name, spec) in [("both have their own", both), ("one shares", one_shared)] {
            let found = inspect(spec, &wanted(DataElement::F32), &[], 0).unwrap();
            assert_eq!(found.warnings, [""; 0], "{name}");
            let of = |input: &str| found.spec.normalization_of(input);
            assert!(is_near(&of("image").mean, &image.0), "{name}: {:?}", found.spec);
            assert!(is_near(&of("image").std, &image.1), "{name}: {:?}", found.spec);
            assert!(is_near(&of("table").mean, &table.0), "{name}: {:?}", found.spec);
            assert!(is_near(&of("table").std, &table.1), "{name}: {:?}", found.spec);
        }
    }

    #[test]
    fn test_samples_may_be_floats_of_another_width_than_those_that_are_standardized() {
        let folder = TempDir::new().unwrap();
        let write = |name: &str, dtype, bytes: &[u8]| {
            let arrays = [("table", TensorView::new(dtype, vec![2, 2], bytes).unwrap())];
            let path = folder.path().join(name);
            fs::write(&path, safetensors::serialize(arrays, None).unwrap()).unwrap();
            Source::safetensors(path)
        };
        let narrow = write("narrow", Dtype::F32, &[1.0_f32, 2.0, 3.0, 6.0].map(f32::to_le_bytes).concat());
        let wide = write("wide", Dtype::F64, &[1.0_f64, 2.0, 3.0, 6.0].map(f64::to_le_bytes).concat());
        let wanted = ModelSignature {
            inputs: vec![input("table", DataElement::F32, &[2])],
            ..ModelSignature::default()
        };
        for (source, test) in [(&narrow, &wide), (&wide, &narrow), (&wide, &wide)] {
            let spec =
                DataSpec::new(source.clone()).with(|d| (d.standardize, d.test) = (true, Some(test.clone())));
            // Between the two lies the validation set, with floats of the one or of the other.
            for validation in [None, Some(narrow.clone()), Some(wide.clone())] {
                let spec = spec.clone().with(|d| d.validation = validation);
                let found = inspect(spec, &wanted, &[], 0).unwrap().spec;
                assert_eq!((found.mean, found.std, found.train_samples), (vec![2.0, 4.0], vec![1.0, 2.0], 2));
            }
        }
    }

    #[test]
    fn what_one_setting_cannot_standardize_is_refused_table() {
        let folder = TempDir::new().unwrap();
        let shared = || write(&folder).with(|d| d.standardize = true);
        let integers = ModelSignature {
            inputs: vec![input("image", DataElement::I64, &[1, 2, 2])],
            ..ModelSignature::default()
        };
        let floats = wanted(DataElement::F32);
        #[rustfmt::skip]
        let cases = [
            ("two inputs share it", shared(),                                         &floats,   Some("without a table under `normalize`, `image` and `table`, and")),
            ("one of them does",    shared().normalize("image", standardized(1.0)),   &floats,   None),
            ("none takes floats",   shared(),                                         &integers, Some("the model takes integers")),
        ];
        for (name, spec, wanted, words) in cases {
            let error = inspect(spec, wanted, &[], 0).err();
            assert_eq!(error.is_some(), words.is_some(), "{name}: {error:?}");
            if let Some((error, words)) = error.zip(words) {
                assert_eq!(error.code(), "E593", "{name}");
                assert!(error.to_string().contains(words), "{name}: {error}");
                assert!(error.hint().unwrap().contains("[data.normalize.NAME]"), "{name}");
            }
        }
    }

    #[test]
    fn a_doubt_names_the_input_that_has_its_own_table() {
        let folder = TempDir::new().unwrap();
        let numbers = [5.0_f32, 1.0, 5.0, 2.0].map(f32::to_le_bytes).concat();
        let image = [0, 51, 102, 255, 255, 51, 0, 102];
        let arrays = [
            ("image", TensorView::new(Dtype::U8, vec![2, 1, 2, 2], &image).unwrap()),
            ("table", TensorView::new(Dtype::F32, vec![2, 2], &numbers).unwrap()),
        ];
        let path = folder.path().join("data.safetensors");
        fs::write(&path, safetensors::serialize(arrays, None).unwrap()).unwrap();
        let spec = DataSpec::new(Source::safetensors(path))
            .normalize("image", standardized(1.0))
            .normalize("table", standardized(1.0));
        let warnings = inspect(spec, &wanted(DataElement::F32), &[], 0).unwrap().warnings;
        let want = "channel 1 of `table` is the same in all training samples, and becomes 0 by `standardize`";
        assert!(warnings.len() == 1 && warnings[0].starts_with(want), "{warnings:?}");
    }
}
