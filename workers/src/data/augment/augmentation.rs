//! What a job asks for, and whether its samples are images that it can be done to.

use syncline_scheduler::spec::{DataElement, DataSpec};

use super::super::{
    block::ChannelNormalization,
    column::Column,
    error::{DataError, SettingError},
    fit,
    signature::ModelSignature,
};
use super::{Channel, Draw, Pass, Rule};

/// A last axis that is longer than this, or than one of the others, is the width.
const MOST_CHANNELS_LAST: usize = 4;

/// What the images of a data set go through.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::data) struct Augmentation {
    /// Which input of the model takes them.
    pub(in crate::data) input: usize,
    rule: Rule,
    channels: Vec<Channel>,
}

impl Augmentation {
    /// `None` if nothing is asked for; E479 where it cannot be done. `inputs`: one for each input of the
    /// model.
    pub(in crate::data) fn of(
        spec: &DataSpec,
        inputs: &[Column],
        label: Option<&Column>,
        wanted: &ModelSignature,
    ) -> Result<Option<Self>, DataError> {
        if spec.augment.is_none() {
            return Ok(None);
        }
        let names = wanted.inputs.iter().map(|input| input.name.as_str());
        let (input, [channels, height, width]) = images(inputs, names)?;
        // A mask, with its axes or laid flat.
        let is_mask = |label: &&Column| {
            let axes = label.shape().iter().filter(|&&size| size > 1).count();
            axes > 1 || axes == 1 && label.width() == height * width
        };
        if let Some(label) = label.filter(is_mask) {
            let what = format!(
                "labels of shape {:?} would not move with the pixels that they are of",
                label.shape()
            );
            return Err(SettingError::Augment { what }.into());
        }
        let shorter = height.min(width);
        for (setting, pixels) in [("crop", spec.augment.crop), ("cutout", spec.augment.cutout)] {
            if pixels as usize >= shorter {
                let what = format!(
                    "`{setting}` must be below the shorter side of the images, {shorter} pixels, not {pixels}"
                );
                return Err(SettingError::Augment { what }.into());
            }
        }
        let (padding, square) = (spec.augment.crop as usize, spec.augment.cutout as usize);
        let rule = Rule { height, width, flip: spec.augment.flip, padding, square };
        let name = &wanted.inputs[input].name;
        let normalizations = fit::channel_normalizations(spec, name, inputs[input].shape())?;
        if !fit::are_finite(&normalizations, &[0.0]) {
            let what =
                format!("`scale`, `mean` and `std` must leave 0 finite, which is the border of `{name}`");
            return Err(SettingError::Invalid { what }.into());
        }
        let channel = |channel| {
            let normalization = normalizations[if normalizations.len() == 1 { 0 } else { channel }];
            let border = normalization.apply(0.0);
            match inputs[input].like().is_scaled_in_a_batch() {
                true => Channel { normalization, border },
                false => Channel { normalization: ChannelNormalization::NONE, border },
            }
        };
        Ok(Some(Self { input, rule, channels: (0..channels).map(channel).collect() }))
    }

    /// Appends the image of a row as it trains in this pass.
    pub(in crate::data) fn show<S: Copy + Into<f32>>(
        &self,
        image: &[S],
        (pass, row): (Pass, u32),
        out: &mut Vec<f32>,
    ) {
        Draw::of(self.rule, pass, row).show(self.rule, image, &self.channels, out);
    }
}

/// The only input that takes images, and their channels, height and width.
fn images<'a>(
    inputs: &[Column],
    names: impl Iterator<Item = &'a str> + Clone,
) -> Result<(usize, [usize; 3]), DataError> {
    let refused = |what: String| Err(SettingError::Augment { what }.into());
    let named = inputs.iter().zip(names);
    let mut images =
        named.clone().enumerate().filter_map(|(at, (column, name))| Some((at, name, image_shape(column)?)));
    let Some((input, name, shape)) = images.next() else {
        let taken = named.map(|(column, name)| match column.like().element {
            DataElement::F32 => format!("`{name}` takes samples of shape {:?}", column.shape()),
            DataElement::I32 | DataElement::I64 => format!("`{name}` takes integers"),
            DataElement::Bool => format!("`{name}` takes truth values"),
        });
        let taken = taken.collect::<Vec<_>>().join(", ");
        return refused(format!("it is for images of channels, height and width, and {taken}"));
    };
    if let Some((_, other, _)) = images.next() {
        return refused(format!(
            "`{name}` and `{other}` both take images, and it does not say which of them change"
        ));
    }
    let [first, second, last] = shape;
    if last <= MOST_CHANNELS_LAST && first.min(second) > last {
        let what = format!(
            "the channels of `{name}` {shape:?} seem to come last, and it takes the first axis for them"
        );
        return refused(what);
    }
    Ok((input, shape))
}

fn image_shape(column: &Column) -> Option<[usize; 3]> {
    let shape: [usize; 3] = column.shape().try_into().ok()?;
    (column.like().element == DataElement::F32).then_some(shape)
}
