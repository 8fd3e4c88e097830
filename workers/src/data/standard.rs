//! Mean and standard deviation of each channel of the training samples, by which all samples are normalized.

use syncline_scheduler::spec::ChannelAxis;

use super::block::{BlockData, ChannelNormalization};
use super::column::Column;
use super::csv::LabelColumn;
use super::dataset::Dataset;
use super::error::{DataError, SettingError};
use super::signature::InputSignature;

/// What the training samples are like: `mean` and `std` of a data set, and what is doubtful about them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Standard {
    /// A number for each channel of the axis that was asked for.
    pub(crate) mean: Vec<f64>,
    /// The same: the root of the mean square of what is left, of all samples (not n - 1); 1 where a channel
    /// is constant.
    pub(crate) std: Vec<f64>,
    /// Channels, from 0, in which all training samples have the same number: they become 0. Without those of
    /// `rounded`.
    pub(crate) constant: Vec<usize>,
    /// Channels of a float32 file whose numbers are so large beside how far they lie apart that float32 has
    /// rounded that, to one number maybe.
    pub(crate) rounded: Vec<usize>,
    /// Shape of a sample of two axes whose scales differ along the last one, where channels were taken from
    /// the first.
    pub(crate) differs_along_last: Option<Vec<usize>>,
}

/// From here on a channel is small beside what it is standardized together with.
const UNEVEN: f64 = 10.0;

/// What float32 may round off the distances of samples, as a part of their deviation, without a word.
const FAINT_ROUNDING: f64 = 1e-3;
/// From here on float32 holds only every other integer.
const SPARSE_INTEGERS: f64 = 16_777_216.0;

/// What is known of a channel.
#[derive(Clone, Copy)]
struct Channel {
    sum: f64,
    squares: f64,
    least: f64,
    most: f64,
    /// Whether all are integers.
    whole: bool,
}

impl Dataset {
    /// Computes it from these rows of a float input, which is at this place of the model. The data set was
    /// opened without its mean and its deviation: `scale` alone has been applied. Cost: two passes over the
    /// rows.
    pub(crate) fn standard(
        &self,
        rows: &[u32],
        (place, input): (usize, &InputSignature),
        axis: ChannelAxis,
    ) -> Result<Standard, DataError> {
        let refused = |what: String| DataError::from(SettingError::Standardize { what });
        let column = &self.inputs()[place];
        if let Some((number, rows)) = first_id(&input.rows) {
            let column = match self.input_column(place, number) {
                Some(LabelColumn { number, name: Some(name), .. }) => format!("column {number}, `{name}`,"),
                Some(LabelColumn { number, .. }) => format!("column {number}"),
                None => format!("number {} on the last axis", number + 1),
            };
            let (by, input) = ("`standardize`", input.name.clone());
            return Err(SettingError::NormalizedIds { by, column, input, rows }.into());
        }
        if column.like().offset != 0 || column.like().stride != column.width() {
            return Err(refused("samples overlap, or have gaps between them (`stride`)".to_owned()));
        }
        if rows.is_empty() {
            return Ok(Standard::default());
        }
        let channels = column.channels(rows, axis)?;
        let count = (rows.len() * column.width() / channels.len().max(1)).max(1) as f64;
        let is_constant = |channel: &Channel| channel.least == channel.most;
        let deviation = |channel: &Channel| match is_constant(channel) {
            true => 1.0,
            false => (channel.squares / count).sqrt(),
        };
        let std: Vec<f64> = channels.iter().map(deviation).collect();
        let is_float32 = matches!(column.like().store, BlockData::F32(_));
        let is_rounded = |channel: &Channel| {
            let largest = channel.least.abs().max(channel.most.abs());
            let spacing = largest * f64::from(f32::EPSILON);
            let is_exact = channel.whole && largest < SPARSE_INTEGERS;
            is_float32
                && match is_constant(channel) {
                    true => largest >= SPARSE_INTEGERS,
                    false => !is_exact && spacing > FAINT_ROUNDING * deviation(channel),
                }
        };
        let (rounded, exact): (Vec<usize>, Vec<usize>) =
            (0..channels.len()).partition(|&index| is_rounded(&channels[index]));
        let constant = exact.into_iter().filter(|&index| is_constant(&channels[index])).collect();
        // Of a constant channel the mean of its numbers is that number, without what adding them up has
        // rounded.
        let mean = |channel: &Channel| if is_constant(channel) { channel.least } else { channel.sum / count };
        let mean: Vec<f64> = channels.iter().map(mean).collect();
        let all: Vec<u32> = (0..self.len() as u32).collect();
        let border = self.is_augmented(place).then_some(0.0);
        for (index, channel) in column.channels(&all, axis)?.iter().enumerate() {
            let by = ChannelNormalization { factor: 1.0, mean: mean[index], deviation: std[index] };
            if !column.stays_finite(channel, by, border) {
                let (name, number) = (&input.name, index + 1);
                let what = format!("channel {number} of `{name}` would become infinite");
                return Err(refused(what));
            }
        }
        let differs = axis == ChannelAxis::First && column.differs_along_last(rows, &channels)?;
        let differs_along_last = differs.then(|| column.shape().to_vec());
        Ok(Standard { mean, std, constant, rounded, differs_along_last })
    }
}

/// The first number of a sample that chooses from a table, from 0, and the rows of that.
fn first_id(rows: &[Option<usize>]) -> Option<(usize, usize)> {
    rows.iter().enumerate().find_map(|(number, rows)| Some((number, (*rows)?)))
}

impl Column {
    /// What each channel of a float input is like in these rows.
    fn channels(&self, rows: &[u32], axis: ChannelAxis) -> Result<Vec<Channel>, DataError> {
        let (count, plane) = match axis {
            ChannelAxis::First => {
                let count = self.shape().first().copied().unwrap_or(1).max(1);
                (count, (self.width() / count).max(1))
            }
            ChannelAxis::Last => (self.shape().last().copied().unwrap_or(1).max(1), 1),
        };
        let empty =
            Channel { sum: 0.0, squares: 0.0, least: f64::INFINITY, most: f64::NEG_INFINITY, whole: true };
        let mut channels = vec![empty; count];
        self.each_number(rows, |at, number| {
            let channel = &mut channels[at / plane % count];
            channel.sum += number;
            channel.whole &= number.fract() == 0.0;
            channel.least = channel.least.min(number);
            channel.most = channel.most.max(number);
        })?;
        let numbers = (rows.len() * self.width() / count).max(1) as f64;
        self.each_number(rows, |at, number| {
            let channel = &mut channels[at / plane % count];
            let off = number - channel.sum / numbers;
            channel.squares += off * off;
        })?;
        Ok(channels)
    }

    /// Whether workers, which read it with this mean and this deviation, find all numbers of a channel
    /// finite. `border`: what else an image may have there.
    fn stays_finite(&self, channel: &Channel, by: ChannelNormalization, border: Option<f32>) -> bool {
        let ends = [channel.least, channel.most];
        let mut narrow = match &self.like().store {
            // Any byte may come.
            BlockData::Bytes(_, scaled) => {
                let scale = scaled.first().map_or(1.0, |scaled| scaled.factor);
                vec![0.0, 255.0 * scale]
            }
            BlockData::F64(_) if !ends.iter().all(|&number| by.apply_wide(number).is_finite()) => {
                return false;
            }
            BlockData::F64(_) => Vec::new(),
            _ => ends.map(|number| number as f32).to_vec(),
        };
        narrow.extend(border);
        super::fit::are_finite(&[by], &narrow)
    }

    /// Whether samples have two axes, and the least channel of the last one is far smaller than that of the
    /// first, which are these: all of the first are mixtures, in which it vanishes.
    fn differs_along_last(&self, rows: &[u32], of_first: &[Channel]) -> Result<bool, DataError> {
        let has_two_axes = self.shape().len() == 2 && self.shape().iter().all(|&size| size > 1);
        let least_of = |channels: &[Channel]| {
            let numbers = (rows.len() * self.width() / channels.len()) as f64;
            let varied = channels.iter().filter(|channel| channel.least < channel.most);
            let deviations = varied.map(|channel| (channel.squares / numbers).sqrt());
            deviations.min_by(f64::total_cmp).unwrap_or_default()
        };
        Ok(has_two_axes && least_of(of_first) > UNEVEN * least_of(&self.channels(rows, ChannelAxis::Last)?))
    }

    /// Hands out every number of these rows with its place in the sample.
    fn each_number(&self, rows: &[u32], mut each: impl FnMut(usize, f64)) -> Result<(), DataError> {
        self.each_block(rows, |block, here, _| {
            for &row in here {
                match &block.store {
                    BlockData::F32(all) => {
                        let sample = block.sample(row, all).iter();
                        sample.enumerate().for_each(|(at, number)| each(at, f64::from(*number)));
                    }
                    BlockData::F64(all) => {
                        let sample = block.sample(row, all).iter();
                        sample.enumerate().for_each(|(at, number)| each(at, *number));
                    }
                    BlockData::Bytes(all, scaled) => {
                        let scaled = scaled.first().copied().unwrap_or(ChannelNormalization::NONE);
                        let sample = block.sample(row, all).iter();
                        sample
                            .enumerate()
                            .for_each(|(at, byte)| each(at, scaled.apply(f32::from(*byte)).into()));
                    }
                    BlockData::U8(_) | BlockData::I32(_) | BlockData::I64(_) => {}
                }
            }
        })
    }
}
