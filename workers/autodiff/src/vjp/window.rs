//! Windows that slide over the last axes of an image: the geometry that convolutions and pools share.
//!
//! An image is `[batch, channels, spatial...]`. Along one axis, output position o reads the image at
//! `o * stride + t * dilation - begin` for the taps t of the kernel; what lies outside of the image is
//! padding. Spatial sizes must be known; the batch may be open.

use syncline_onnx::{Dim, attr_int, attr_ints};

use super::NodeGrad;
use crate::AutodiffError;

/// The window along one axis. All in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Axis {
    pub(super) input: i64,
    pub(super) output: i64,
    pub(super) kernel: i64,
    pub(super) stride: i64,
    pub(super) dilation: i64,
    /// Padding in front of the image.
    pub(super) begin: i64,
    /// Padding behind the image, as the node states it; windows may end earlier, or later if the output was
    /// rounded up.
    pub(super) end: i64,
}

impl Axis {
    /// Length of what the windows touch, from the first element of the padding on.
    pub(super) fn reach(&self) -> i64 {
        (self.output - 1) * self.stride + (self.kernel - 1) * self.dilation + 1
    }

    /// Elements behind the image that the windows touch; negative if they leave some of the image out.
    pub(super) fn overhang(&self) -> i64 {
        self.reach() - self.begin - self.input
    }

    /// Whether the windows tile the image.
    fn tiles(&self) -> bool {
        self.stride == self.kernel && self.dilation == 1 && self.begin == 0 && self.overhang() == 0
    }
}

/// The window along every spatial axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) axes: Vec<Axis>,
}

impl Window {
    /// The most taps that a kernel may have where a node is written for each.
    const MOST_TAPS: i64 = 1 << 12;

    /// The window of a convolution or pool from `image` to `result`, for a rule that writes a node for each
    /// tap.
    pub(super) fn of(
        n: &NodeGrad<'_>,
        image: &str,
        result: &str,
        kernel: &[i64],
    ) -> Result<Self, AutodiffError> {
        Self::up_to(Self::MOST_TAPS, n, image, result, kernel)
    }

    /// The same with a kernel of at most so many taps.
    pub(super) fn up_to(
        most_taps: i64,
        n: &NodeGrad<'_>,
        image: &str,
        result: &str,
        kernel: &[i64],
    ) -> Result<Self, AutodiffError> {
        let (input, output) = (n.spatial(image)?, n.spatial(result)?);
        let rank = kernel.len();
        let list = |name: &str, default: i64| {
            let stated = n.node.ints(name).filter(|list| !list.is_empty());
            stated.map_or_else(|| vec![default; rank], <[i64]>::to_vec)
        };
        let (strides, dilations) = (list("strides", 1), list("dilations", 1));
        let stated = n.node.ints("pads").filter(|pads| !pads.is_empty());
        let pads = stated.map_or_else(|| vec![0; 2 * rank], <[i64]>::to_vec);
        let lengths = [input.len(), output.len(), strides.len(), dilations.len()];
        if lengths.iter().any(|length| *length != rank) || pads.len() != 2 * rank {
            return Err(n.refuse("its attributes have lengths that do not fit each other".to_owned()));
        }
        let taps = kernel.iter().fold(1i64, |all, &length| all.saturating_mul(length));
        if !(1..=most_taps).contains(&taps) {
            return Err(n.refuse(format!("its kernel has {taps} taps, 1 to {most_taps} are accepted")));
        }
        let automatic = n.node.string("auto_pad", "NOTSET");
        let rounds_up = n.node.int("ceil_mode", 0) != 0;
        let axes = (0..rank).map(|at| {
            let (begin, end) = (pads[at], pads[rank + at]);
            let (stride, dilation) = (strides[at], dilations[at]);
            let bare = Axis {
                input: input[at],
                output: output[at],
                kernel: kernel[at],
                stride,
                dilation,
                begin: 0,
                end: 0,
            };
            let total = bare.overhang().max(0);
            let (begin, end) = match automatic {
                "VALID" => (0, 0),
                "SAME_UPPER" => (total / 2, total - total / 2),
                "SAME_LOWER" => (total - total / 2, total / 2),
                _ => (begin, end),
            };
            // A pool that rounds up makes no window that would begin behind the image; not every shape
            // inference knows.
            let beyond = rounds_up && bare.output > 1 && (bare.output - 1) * stride >= bare.input + begin;
            Axis { begin, end, output: bare.output - i64::from(beyond), ..bare }
        });
        Ok(Self { axes: axes.collect() })
    }

    /// Whether every element of the image lies in exactly one window.
    pub(super) fn tiles(&self) -> bool {
        self.axes.iter().all(Axis::tiles)
    }

    /// One number per axis.
    pub(super) fn each(&self, number: impl Fn(&Axis) -> i64) -> Vec<i64> {
        self.axes.iter().map(number).collect()
    }

    /// Positions of the output, over all axes.
    pub(super) fn positions(&self) -> i64 {
        self.axes.iter().map(|axis| axis.output).product()
    }

    /// Offset of every tap along every axis, in row-major order of the kernel.
    pub(super) fn taps(&self) -> Vec<Vec<i64>> {
        let mut taps = vec![Vec::new()];
        for axis in &self.axes {
            let longer = |tap: &Vec<i64>| {
                let tap = tap.clone();
                (0..axis.kernel).map(move |t| [tap.as_slice(), &[t * axis.dilation]].concat())
            };
            taps = taps.iter().flat_map(longer).collect();
        }
        taps
    }

    /// The image with everything that windows touch; `fill` is a value without axes, zero if not given.
    pub(super) fn padded(&self, n: &mut NodeGrad<'_>, image: &str, fill: Option<&str>) -> String {
        let behind = self.each(|axis| axis.overhang().max(0));
        if behind.iter().all(|&pad| pad == 0) && self.axes.iter().all(|axis| axis.begin == 0) {
            return image.to_owned();
        }
        let pads = [&[0, 0], self.each(|axis| axis.begin).as_slice(), &[0, 0], &behind].concat();
        let pads = n.emitter.ints(&pads);
        let inputs: Vec<&str> = [image, &pads].into_iter().chain(fill).collect();
        n.emitter.op("Pad", &inputs, &[])
    }

    /// What one tap of the kernel reads at every position: `[batch, channels, output...]`.
    pub(super) fn seen_by(&self, n: &mut NodeGrad<'_>, padded: &str, tap: &[i64]) -> String {
        let whole =
            self.axes.iter().all(|axis| axis.kernel == 1 && axis.stride == 1 && axis.input == axis.output);
        if whole {
            return padded.to_owned();
        }
        let last = self.axes.iter().zip(tap).map(|(axis, start)| start + (axis.output - 1) * axis.stride + 1);
        let (starts, ends) = (n.emitter.ints(tap), n.emitter.ints(&last.collect::<Vec<i64>>()));
        let spatial: Vec<i64> = (2..).take(self.axes.len()).collect();
        let axes = n.emitter.ints(&spatial);
        let strides = self.each(|axis| axis.stride);
        let steps = n.emitter.ints(&strides);
        n.emitter.op("Slice", &[padded, &starts, &ends, &axes, &steps], &[])
    }

    /// Padding of the convolution that takes values at the output's positions back to the image; `None` where
    /// positions are more than one element apart, or windows read nothing but padding.
    pub(super) fn backward_pads(&self) -> Option<Vec<i64>> {
        let around = |axis: &Axis| (axis.kernel - 1) * axis.dilation;
        let begins = self.each(|axis| around(axis) - axis.begin);
        let pads = [begins, self.each(|axis| around(axis) - axis.overhang())].concat();
        let one_apart = self.axes.iter().all(|axis| axis.stride == 1);
        (one_apart && pads.iter().all(|&pad| pad >= 0)).then_some(pads)
    }

    /// Takes values at the output's positions back to the image, each to where its window has read: a
    /// `ConvTranspose` with the weights of the convolution, in as many groups.
    ///
    /// Its padding is the same on both sides of every axis, since ONNX Runtime's CUDA provider leaves all
    /// else to the CPU. What the output reads less behind the image than in front of it is added there;
    /// where it is the other way round, or too much to be added, the surplus is made and cut off.
    pub(super) fn spread(&self, n: &mut NodeGrad<'_>, signal: &str, weights: &str, group: i64) -> String {
        let ways: Vec<WayBack> = self.axes.iter().map(Axis::way_back).collect();
        let each = |number: fn(&WayBack) -> i64| -> Vec<i64> { ways.iter().map(number).collect() };
        let pads = each(|way| way.pad);
        let mut attributes = vec![
            attr_ints("strides", &self.each(|axis| axis.stride)),
            attr_ints("dilations", &self.each(|axis| axis.dilation)),
            attr_ints("pads", &[pads.as_slice(), &pads].concat()),
            attr_ints("output_padding", &each(|way| way.added)),
        ];
        if group != 1 {
            attributes.push(attr_int("group", group));
        }
        let image = n.emitter.op("ConvTranspose", &[signal, weights], &attributes);
        if ways.iter().all(|way| way.front == 0 && way.behind == 0) {
            return image;
        }
        if ways.iter().any(|way| way.front < 0) {
            let ends = [each(|way| -way.front), vec![0, 0], each(|way| -way.behind)].concat();
            let pads = n.emitter.ints(&[vec![0, 0], ends].concat());
            return n.emitter.op("Pad", &[&image, &pads], &[]);
        }
        let starts = each(|way| way.front);
        let ends: Vec<i64> = self.axes.iter().zip(&starts).map(|(axis, start)| start + axis.input).collect();
        let spatial: Vec<i64> = (2..).take(ways.len()).collect();
        let [starts, ends, spatial] = [starts, ends, spatial].map(|list| n.emitter.ints(&list));
        n.emitter.op("Slice", &[&image, &starts, &ends, &spatial], &[])
    }
}

/// How a `ConvTranspose` comes to the size of the image along one axis. All in elements.
#[derive(Debug, PartialEq, Eq)]
struct WayBack {
    /// Taken away on both sides.
    pad: i64,
    /// Added behind.
    added: i64,
    /// To be cut off in front; negative where windows read nothing of the front, for zeros to be put there.
    front: i64,
    /// To be cut off behind.
    behind: i64,
}

impl Axis {
    fn way_back(&self) -> WayBack {
        let (begin, overhang) = (self.begin, self.overhang());
        let short = begin - overhang;
        if (0..self.stride).contains(&short) {
            return WayBack { pad: begin, added: short, front: 0, behind: 0 };
        }
        let pad = begin.min(overhang).max(0);
        WayBack { pad, added: (-overhang).max(0), front: begin - pad, behind: overhang.max(0) - pad }
    }
}

impl NodeGrad<'_> {
    /// Spatial sizes of an image.
    pub(super) fn spatial(&self, image: &str) -> Result<Vec<i64>, AutodiffError> {
        self.dims(image)?.iter().skip(2).map(|dim| self.fixed(image, dim)).collect()
    }

    /// A size that must be known.
    pub(super) fn fixed(&self, value: &str, dim: &Dim) -> Result<i64, AutodiffError> {
        let size = dim.fixed().and_then(|size| i64::try_from(size).ok());
        size.ok_or_else(|| {
            self.refuse(match dim {
                Dim::Symbol(name) => format!(
                    "the axis `{name}` of `{value}`, which is not its batch, has an open size: where an input has that axis, name its \
                     size, otherwise export the model with that size fixed"
                ),
                _ => format!(
                    "`{value}` has an axis of open size besides its batch: export the model with that size fixed"
                ),
            })
        })
    }

    /// Reshapes; 0 keeps the size of that axis, -1 is the rest.
    pub(super) fn reshaped(&mut self, value: &str, shape: &[i64]) -> String {
        let shape = self.emitter.ints(shape);
        self.emitter.op("Reshape", &[value, &shape], &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transposed_convolution_comes_to_the_size_of_the_image_with_even_padding() {
        let axis = |input, kernel, stride, dilation, begin, end| {
            let output = (input + begin + end - (kernel - 1) * dilation - 1) / stride + 1;
            Axis { input, output, kernel, stride, dilation, begin, end }
        };
        #[rustfmt::skip]
        let cases = [
            // pad, added, front, behind
            ("as ResNet's",                      axis(56, 3, 2, 1, 1, 1), [1, 1, 0, 0]),
            ("its first one",                    axis(224, 7, 2, 1, 3, 3), [3, 1, 0, 0]),
            ("one element, in strides",          axis(56, 1, 2, 1, 0, 0), [0, 1, 0, 0]),
            ("an odd size",                      axis(57, 3, 2, 1, 1, 1), [1, 0, 0, 0]),
            ("more behind, as SAME_UPPER pads",  axis(56, 3, 2, 1, 0, 1), [0, 0, 0, 1]),
            ("much in front",                    axis(9, 3, 2, 1, 4, 0),  [0, 0, 4, 0]),
            ("in front and behind, dilated",     axis(9, 3, 1, 2, 1, 3),  [1, 0, 0, 2]),
            ("cut off in front",                 axis(9, 3, 2, 1, -1, 1), [0, 0, -1, 1]),
        ];
        for (name, axis, [pad, added, front, behind]) in cases {
            assert_eq!(axis.way_back(), WayBack { pad, added, front, behind }, "{name}: {axis:?}");
            let size = (axis.output - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1;
            assert_eq!(size - 2 * pad + added - front - behind, axis.input, "{name}");
            assert!((0..axis.stride.max(axis.dilation)).contains(&added), "{name}");
        }
    }
}
