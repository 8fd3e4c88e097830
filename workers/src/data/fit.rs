//! From an array of a file to what the model wants: shape, element type, normalization, range. Everything is
//! checked here, so that no batch can be wrong.

use std::collections::BTreeSet;
use std::sync::Arc;

use syncline_scheduler::spec::{AxisOrder, ChannelAxis, DataElement, DataSpec};

use super::array::{Array, Numbers, Place};
use super::block::{Block, BlockData, ChannelNormalization};
use super::csv::shown;
use super::error::{DataError, FitError, Remedy, SettingError, ValueError};
use super::signature::{InputSignature, LabelSignature, Target};

/// What an array is for.
#[derive(Debug, Clone)]
pub(super) enum Purpose {
    Input(InputSignature, Arc<DataSpec>),
    Label(LabelSignature),
}

impl Purpose {
    /// What the model wants of these samples, or what is wrong about them.
    pub(super) fn fit(&self, array: Array) -> Result<Block, DataError> {
        match self {
            Self::Input(wanted, spec) => input(array, wanted, spec),
            Self::Label(wanted) => label(array, wanted),
        }
    }
}

/// An input of the model.
fn input(mut array: Array, wanted: &InputSignature, spec: &DataSpec) -> Result<Block, DataError> {
    if !spec.sample_shape.is_empty() {
        array.shape = requested_shape(&spec.sample_shape, &array)?;
    }
    if spec.layout == Some(AxisOrder::Nhwc) {
        let found = array.shape.clone();
        array = array.channels_first().ok_or_else(|| {
            let input = &wanted.name;
            let what =
                format!("`layout = \"nhwc\"` is for samples of three axes, those of `{input}` are {found:?}");
            SettingError::Invalid { what }
        })?;
        // What the user says of the axes is taken at its word: none of length 1 may stand for another one.
        let same = |(wanted, axis): (&Option<usize>, &usize)| wanted.is_none_or(|wanted| wanted == *axis);
        if wanted.shape.len() == 3 && !wanted.shape.iter().zip(&array.shape).all(same) {
            let fits = common_shape(&wanted.shape, &found).is_some();
            return Err(FitError::SampleShape {
                input: wanted.name.clone(),
                model: display_shape(&wanted.shape),
                data: array.shape.clone(),
                remedy: if fits { Remedy::NoTranspose } else { Remedy::None },
            }
            .into());
        }
    }
    let shape = common_shape(&wanted.shape, &array.shape).ok_or_else(|| FitError::SampleShape {
        input: wanted.name.clone(),
        model: display_shape(&wanted.shape),
        data: array.shape.clone(),
        remedy: remedy(&wanted.shape, &array, !spec.inputs.is_empty()),
    })?;
    let store = match wanted.element {
        DataElement::F32 => {
            let by = spec.normalization_of(&wanted.name);
            let normalizations = channel_normalizations(spec, &wanted.name, &shape)?;
            // The model casts some of them to ids. Before they are standardized nothing is known of those.
            if !by.is_to_be_standardized() {
                check_ids_stay(&array, wanted, &normalizations)?;
                check_ids(&array, wanted)?;
            }
            match array.numbers {
                Numbers::U8(bytes) => {
                    // What lies between them becomes something between them.
                    if !are_finite(&normalizations, &[0.0, 255.0]) {
                        let what = format!(
                            "`scale`, `mean` and `std` must leave every byte of `{}` finite, from 0 to 255",
                            wanted.name
                        );
                        return Err(SettingError::Invalid { what }.into());
                    }
                    BlockData::Bytes(bytes, normalizations)
                }
                Numbers::I32(_) | Numbers::I64(_) | Numbers::F64(_) if by.is_to_be_standardized() => {
                    BlockData::F64(scaled(&mut array, by.scale, &wanted.name)?)
                }
                _ => BlockData::F32(normalized(&mut array, &normalizations, &wanted.name)?),
            }
        }
        DataElement::Bool => BlockData::U8(truths(&array, &wanted.name)?),
        element => {
            check_ids(&array, wanted)?;
            integers(&mut array, element, &wanted.name)?
        }
    };
    Ok(Block { element: wanted.element, shape, offset: array.offset, stride: array.stride, store })
}

/// The labels.
fn label(mut array: Array, wanted: &LabelSignature) -> Result<Block, DataError> {
    if let Target::Classes { count, .. } = wanted.target
        && let Some((&classes, labels)) = array.shape.split_last()
        && classes == count
        && common_shape(&wanted.shape, &array.shape).is_none()
        && common_shape(&wanted.shape, labels).is_some()
    {
        return Err(
            FitError::NumberForEachClass { label: wanted.name.clone(), shape: array.shape, classes }.into()
        );
    }
    let shape = common_shape(&wanted.shape, &array.shape).ok_or_else(|| FitError::Shape {
        reason: format!(
            "labels of shape {:?} do not go with `{}`, which wants {} a sample",
            array.shape,
            wanted.name,
            display_shape(&wanted.shape)
        ),
    })?;
    let (element, store) = match wanted.target {
        Target::Classes { count, ignored } => {
            check_classes(&array, count, ignored)?;
            (DataElement::I64, integers(&mut array, DataElement::I64, &wanted.name)?)
        }
        Target::Values | Target::Probabilities => {
            let values = normalized(&mut array, &[ChannelNormalization::NONE], &wanted.name)?;
            if wanted.target == Target::Probabilities {
                check_probabilities(&array, &values)?;
            }
            (DataElement::F32, BlockData::F32(values))
        }
    };
    Ok(Block { element, shape, offset: array.offset, stride: array.stride, store })
}

/// What makes samples of this shape fit, if something does that leaves every number its meaning. `has_names`:
/// whether inputs name their columns of a table.
fn remedy(wanted: &[Option<usize>], found: &Array, has_names: bool) -> Remedy {
    match found.shape.as_slice() {
        &[height, width, channels] if common_shape(wanted, &[channels, height, width]).is_some() => {
            Remedy::Transpose
        }
        [_] if has_names && found.table_column(0).is_some() => Remedy::InputColumns,
        [_] if wanted.len() == 1 && found.table_column(0).is_some() => Remedy::LabelColumns,
        [_] if wanted.len() > 1 => Remedy::SampleShape,
        // As many numbers are the same ones in another order.
        found if found.len() == wanted.len() && !has_size(wanted, found) => Remedy::Length,
        _ => Remedy::None,
    }
}

/// Whether a sample of this shape has as many numbers as the model wants; the axes that it leaves open count
/// as they are.
fn has_size(wanted: &[Option<usize>], found: &[usize]) -> bool {
    let sizes = wanted.iter().zip(found).map(|(wanted, found)| wanted.unwrap_or(*found));
    sizes.fold(1, usize::saturating_mul) == found.iter().copied().fold(1, usize::saturating_mul)
}

/// The shape that the user asks for, if a sample has as many numbers, and they stay in their order: axes may
/// be split and put together.
fn requested_shape(shape: &[u32], array: &Array) -> Result<Vec<usize>, DataError> {
    let shape: Vec<usize> = shape.iter().map(|&size| size as usize).collect();
    match shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size)) {
        Some(count) if count == array.width() && only_regroups_axes(&array.shape, &shape) => Ok(shape),
        Some(count) if count == array.width() => Err(FitError::Shape {
            reason: format!(
                "sample shape {shape:?} would mix up the numbers of samples of shape {:?}, whose channels may come last: \
                 `layout = \"nhwc\"` transposes them",
                array.shape
            ),
        }.into()),
        _ => Err(FitError::Shape {
            reason: format!("sample shape {shape:?} does not hold the {} numbers of a sample", array.width()),
        }.into()),
    }
}

/// Whether one of two shapes only splits axes of the other.
fn only_regroups_axes(a: &[usize], b: &[usize]) -> bool {
    let ends = |shape: &[usize]| -> BTreeSet<usize> {
        let each = shape.iter().scan(1usize, |product, &size| {
            *product = product.saturating_mul(size);
            Some(*product)
        });
        each.filter(|&end| end > 1).collect()
    };
    let (a, b) = (ends(a), ends(b));
    a.is_subset(&b) || b.is_subset(&a)
}

/// The shape of a sample that both sides can agree on. Axes of length 1 may be missing on either side, and
/// flat samples take any shape of as many numbers; but other axes stay in their order, because numbers that
/// were meant for another one would train into nonsense.
fn common_shape(wanted: &[Option<usize>], found: &[usize]) -> Option<Vec<usize>> {
    let core = |shape: &[usize]| shape.iter().copied().filter(|&size| size != 1).collect::<Vec<_>>();
    let fixed: Option<Vec<usize>> = wanted.iter().copied().collect();
    let (found_core, numbers) = (core(found), found.iter().product::<usize>());
    match fixed {
        Some(fixed) => {
            let same = fixed.iter().try_fold(1usize, |count, &size| count.checked_mul(size)) == Some(numbers);
            let wanted_core = core(&fixed);
            let flat = found_core.len() <= 1 || wanted_core.len() <= 1;
            (same && (flat || found_core == wanted_core)).then_some(fixed)
        }
        None if numbers == 1 && wanted.iter().flatten().all(|&size| size == 1) => Some(vec![1; wanted.len()]),
        None => {
            let mut pairs = wanted.iter().zip(found);
            let fits = wanted.len() == found.len()
                && pairs.all(|(wanted, found)| wanted.is_none_or(|wanted| wanted == *found));
            fits.then(|| found.to_vec())
        }
    }
}

/// A shape for people: `?` where any length will do.
fn display_shape(shape: &[Option<usize>]) -> String {
    let sizes = shape.iter().map(|size| size.map_or_else(|| "?".to_owned(), |size| size.to_string()));
    format!("[{}]", sizes.collect::<Vec<_>>().join(", "))
}

/// How the floats of each channel of an input are scaled, or all of them; of channels on the last axis, how
/// each number of a sample is.
pub(super) fn channel_normalizations(
    spec: &DataSpec,
    input: &str,
    shape: &[usize],
) -> Result<Vec<ChannelNormalization>, DataError> {
    let by = spec.normalization_of(input);
    let called = |name: &str| spec.normalization_setting(input, name);
    let is_last = by.channel_axis == ChannelAxis::Last;
    // Of several inputs `augment` changes the one of three axes, and `layout` is of all.
    let is_image = spec.layout.is_some() || !spec.augment.is_none() && shape.len() == 3;
    if is_last && is_image {
        let what = format!(
            "`{} = \"last\"` does not go with `layout` and `augment`, whose images have channels first",
            called("channel_axis")
        );
        return Err(SettingError::Invalid { what }.into());
    }
    let channels = if is_last { shape.last() } else { shape.first() }.copied().unwrap_or(1);
    let count = by.mean.len().max(by.std.len()).max(1);
    for (name, list) in [("mean", &by.mean), ("std", &by.std)] {
        if list.len() > 1 && list.len() != channels {
            let what =
                format!("`{}` has {} numbers, `{input}` has {channels} channels", called(name), list.len());
            return Err(SettingError::Invalid { what }.into());
        }
    }
    let at = |list: &[f64], channel: usize, default: f64| {
        list.get(channel).or(list.first()).copied().unwrap_or(default)
    };
    let normalization = |channel| ChannelNormalization {
        factor: by.scale,
        mean: at(&by.mean, channel, 0.0),
        deviation: at(&by.std, channel, 1.0),
    };
    let times = match is_last && count > 1 {
        true => shape.iter().product::<usize>() / channels.max(1),
        false => 1,
    };
    Ok((0..times).flat_map(|_| (0..count).map(normalization)).collect())
}

/// Whether these numbers stay finite in every channel.
pub(super) fn are_finite(normalizations: &[ChannelNormalization], numbers: &[f32]) -> bool {
    let mut scaled = normalizations.iter().flat_map(|by| numbers.iter().map(|&number| by.apply(number)));
    scaled.all(f32::is_finite)
}

/// All numbers as scaled float64, every one finite.
fn scaled(array: &mut Array, scale: f32, name: &str) -> Result<Vec<f64>, DataError> {
    let mut numbers = std::mem::replace(&mut array.numbers, Numbers::U8(Vec::new())).into_f64();
    for (index, number) in numbers.iter_mut().enumerate() {
        let found = *number;
        *number *= f64::from(scale);
        if !number.is_finite() {
            return Err(not_finite(array, name, index, found, scale != 1.0));
        }
    }
    Ok(numbers)
}

/// All numbers as scaled float32, every one finite.
fn normalized(
    array: &mut Array,
    normalizations: &[ChannelNormalization],
    name: &str,
) -> Result<Vec<f32>, DataError> {
    if normalizations.len() > 1 && !array.is_side_by_side() {
        // A number may be of another channel in each sample that it is part of.
        let what = "several numbers in `mean` or `std` do not go with samples that overlap, or have gaps between them (`stride`)";
        return Err(SettingError::Invalid { what: what.to_owned() }.into());
    }
    let plane = (array.width() / normalizations.len()).max(1);
    let at = |index: usize| normalizations[index / plane % normalizations.len()];
    let numbers = match std::mem::replace(&mut array.numbers, Numbers::U8(Vec::new())) {
        Numbers::F32(mut all) => {
            let infinite = all.iter_mut().enumerate().find_map(|(index, number)| {
                let found = *number;
                *number = at(index).apply(found);
                (!number.is_finite()).then_some((index, f64::from(found)))
            });
            infinite.map_or(Ok(all), Err)
        }
        // In the place of the integers, which have as many bytes.
        Numbers::I32(all) => wide(all, at),
        others => wide(others.into_f64(), at),
    };
    let is_scaled = normalizations.iter().any(|by| *by != ChannelNormalization::NONE);
    numbers.map_err(|(index, number)| not_finite(array, name, index, number, is_scaled))
}

/// All numbers, normalized before anything is rounded to float32; the first one that is not finite then, and
/// its index. `at`: how the one at an index is.
fn wide<T: Into<f64>>(
    all: Vec<T>,
    at: impl Fn(usize) -> ChannelNormalization,
) -> Result<Vec<f32>, (usize, f64)> {
    let normalized = |(index, number): (usize, T)| {
        let number = number.into();
        let normalized = at(index).apply_wide(number);
        if normalized.is_finite() { Ok(normalized) } else { Err((index, number)) }
    };
    all.into_iter().enumerate().map(normalized).collect()
}

fn not_finite(array: &Array, name: &str, index: usize, number: f64, is_scaled: bool) -> DataError {
    let place = array.place(index);
    let whose = whose(&place, name);
    let Place { path, row, column, .. } = place;
    ValueError::NotFinite { path, row, column, whose, number, is_scaled }.into()
}

/// What a number of the input or label `name` is part of, in words behind its place: a column of a table, if
/// it has a name, or an array.
fn whose(place: &Place, name: &str) -> String {
    match place.column_name.as_deref() {
        None => format!(" of `{name}`"),
        Some("") => String::new(),
        Some(column) => format!(" (`{}`)", shown(column.as_bytes())),
    }
}

/// All numbers, which have to be 0 or 1.
fn truths(array: &Array, name: &str) -> Result<Vec<u8>, DataError> {
    let truth = |index: usize| match array.numbers.whole(index) {
        Ok(number @ 0..=1) => Ok(number as u8),
        Ok(number) => Err((index, number.to_string())),
        Err(number) => Err((index, number.to_string())),
    };
    (0..array.numbers.len()).map(truth).collect::<Result<_, _>>().map_err(|(index, number)| {
        let place = array.place(index);
        let whose = whose(&place, name);
        let Place { path, row, column, .. } = place;
        ValueError::NotTruth { path, row, column, whose, number }.into()
    })
}

/// All numbers as integers that fit `element`.
fn integers(array: &mut Array, element: DataElement, name: &str) -> Result<BlockData, DataError> {
    let fits = |number: i64| element != DataElement::I32 || i32::try_from(number).is_ok();
    for index in 0..array.numbers.len() {
        let number = match array.numbers.whole(index) {
            Ok(number) if fits(number) => continue,
            Ok(number) => number.to_string(),
            Err(number) => number.to_string(),
        };
        let place = array.place(index);
        let whose = whose(&place, name);
        let Place { path, row, column, .. } = place;
        return Err(ValueError::NotInteger { path, row, column, whose, number }.into());
    }
    Ok(match std::mem::replace(&mut array.numbers, Numbers::U8(Vec::new())) {
        Numbers::U8(all) => BlockData::U8(all),
        Numbers::I32(all) => BlockData::I32(all),
        Numbers::I64(all) if element == DataElement::I64 => BlockData::I64(all),
        Numbers::I64(all) => BlockData::I32(all.into_iter().map(|number| number as i32).collect()),
        // Whole floats are below 2^24.
        Numbers::F32(all) => BlockData::I32(all.into_iter().map(|number| number as i32).collect()),
        Numbers::F64(all) => BlockData::I32(all.into_iter().map(|number| number as i32).collect()),
    })
}

/// Whether every integer is a row of the table that the model looks it up in. Other numbers are not looked
/// at.
fn check_ids(array: &Array, wanted: &InputSignature) -> Result<(), DataError> {
    let check = |index: usize, rows: Option<usize>| {
        let Some(rows) = rows else { return Ok(()) };
        let missing = |id: &i64| usize::try_from(*id).map_or(true, |id| id >= rows);
        let Some(found) = array.numbers.whole(index).ok().filter(missing) else { return Ok(()) };
        let (Place { path, row, column, .. }, input) = (array.place(index), wanted.name.clone());
        Err(ValueError::IdOutOfRange { path, row, column, found, input, rows }.into())
    };
    match wanted.rows[..] {
        [] => Ok(()),
        // A number that is part of several samples is looked at once.
        [rows] => (0..array.numbers.len()).try_for_each(|index| check(index, rows)),
        _ => (0..array.rows).try_for_each(|row| {
            let first = array.offset + row * array.stride;
            let mut columns = (first..first + array.width()).zip(wanted.rows.iter().cycle());
            columns.try_for_each(|(index, rows)| check(index, *rows))
        }),
    }
}

/// Refuses a normalization of floats that choose from tables.
fn check_ids_stay(
    array: &Array,
    wanted: &InputSignature,
    normalizations: &[ChannelNormalization],
) -> Result<(), DataError> {
    let plane = (array.width() / normalizations.len()).max(1);
    let changed = (0..array.width()).zip(wanted.rows.iter().cycle()).find_map(|(number, rows)| {
        let by = normalizations[number / plane % normalizations.len()];
        Some((number, (*rows)?)).filter(|_| by != ChannelNormalization::NONE)
    });
    let Some((number, rows)) = changed else { return Ok(()) };
    let column = match array.table_column(array.offset + number) {
        Some(column) => format!("column {column}"),
        None => format!("number {} of a sample", number + 1),
    };
    let (by, input) = ("`scale`, `mean` or `std`", wanted.name.clone());
    Err(SettingError::NormalizedIds { by, column, input, rows }.into())
}

fn check_classes(array: &Array, count: usize, ignored: Option<i64>) -> Result<(), DataError> {
    let known = |class: i64| usize::try_from(class).is_ok_and(|class| class < count);
    for index in 0..array.numbers.len() {
        let found = match array.numbers.whole(index) {
            Ok(class) if known(class) || ignored == Some(class) => continue,
            Ok(class) => class.to_string(),
            Err(number) => number.to_string(),
        };
        let (Place { path, row, .. }, column) = (array.place(index), array.table_column(index));
        return Err(ValueError::LabelOutOfRange { path, row, column, found, classes: count }.into());
    }
    Ok(())
}

fn check_probabilities(array: &Array, values: &[f32]) -> Result<(), DataError> {
    let outside = values.iter().enumerate().find(|(_, value)| !(0.0..=1.0).contains(*value));
    outside.map_or(Ok(()), |(index, &value)| {
        let Place { path, row, .. } = array.place(index);
        Err(ValueError::NoProbability { path, row, value }.into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Case = (&'static str, &'static [Option<usize>], &'static [usize], Option<&'static [usize]>);

    #[test]
    fn a_shape_that_is_asked_for_may_split_axes_and_join_them_and_nothing_else() {
        #[rustfmt::skip]
        let cases: [(&[usize], &[usize], bool); 8] = [
            (&[784],       &[1, 28, 28], true),
            (&[28, 28],    &[784],       true),
            (&[4, 7, 28],  &[28, 28],    true),
            (&[28, 28],    &[28, 28, 1], true),
            (&[3, 32, 32], &[3, 1024],   true),
            (&[32, 32, 3], &[3, 32, 32], false),
            (&[32, 32, 3], &[3, 1024],   false),
            (&[2, 3],      &[3, 2],      false),
        ];
        for (found, asked, want) in cases {
            assert_eq!(only_regroups_axes(found, asked), want, "{found:?} as {asked:?}");
        }
    }

    #[test]
    fn shapes_agree_if_only_axes_of_length_one_differ_or_one_side_is_flat() {
        #[rustfmt::skip]
        let cases: &[Case] = &[
            ("equal",             &[Some(2), Some(3)],          &[2, 3],     Some(&[2, 3])),
            ("flat file",         &[Some(1), Some(2), Some(3)], &[6],        Some(&[1, 2, 3])),
            ("flat model",        &[Some(6)],                   &[2, 3],     Some(&[6])),
            ("channel added",     &[Some(1), Some(2), Some(3)], &[2, 3],     Some(&[1, 2, 3])),
            ("channel dropped",   &[Some(2), Some(3)],          &[1, 2, 3],  Some(&[2, 3])),
            ("one label",         &[],                          &[1],        Some(&[])),
            ("other width",       &[Some(4)],                   &[2],        None),
            ("other order",       &[Some(3), Some(2), Some(4)], &[2, 4, 3],  None),
            ("open, as the file", &[None, Some(3)],             &[2, 3],     Some(&[2, 3])),
            ("open, one number",  &[None],                      &[],         Some(&[1])),
            ("open, other width", &[None, Some(4)],             &[2, 3],     None),
            ("open, other rank",  &[None, None],                &[6],        None),
            ("overflow",          &[Some(usize::MAX), Some(2)], &[6],        None),
        ];
        for (name, wanted, found, want) in cases {
            assert_eq!(common_shape(wanted, found).as_deref(), *want, "{name}");
        }
    }
}
