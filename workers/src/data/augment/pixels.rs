//! The pixels of a drawn image.
//!
//! Cost: each pixel is written twice at most, as what surrounds the image and as what is seen of it.

use std::ops::Range;

use super::super::block::ChannelNormalization;
use super::{Draw, Rule};

/// How the pixels of a channel come to the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Channel {
    /// Of those in the image.
    pub(super) normalization: ChannelNormalization,
    /// A pixel outside of it.
    pub(super) border: f32,
}

/// Along one axis, which places of the cut lie in the image, and the place in the image of the first of them.
fn overlap(offset: usize, padding: usize, size: usize) -> (Range<usize>, usize) {
    (padding.saturating_sub(offset)..(size + padding - offset).min(size), offset.saturating_sub(padding))
}

/// Along one axis, what a square of this side covers around its middle.
fn covered(middle: usize, side: usize, size: usize) -> Range<usize> {
    let end = middle + side.div_ceil(2);
    end.saturating_sub(side)..end.min(size)
}

impl Draw {
    /// Appends what is seen of an image that has a plane for each channel.
    pub(super) fn show<S: Copy + Into<f32>>(
        self,
        rule: Rule,
        image: &[S],
        channels: &[Channel],
        out: &mut Vec<f32>,
    ) {
        let Rule { height, width, padding, square, .. } = rule;
        let (rows, first_row) = overlap(self.top, padding, height);
        let (columns, first_column) = overlap(self.left, padding, width);
        let seen = first_column..first_column + columns.len();
        let shown = match self.mirrored {
            true => width - columns.end..width - columns.start,
            false => columns,
        };
        let (hole_rows, hole_columns) =
            (covered(self.middle.0, square, height), covered(self.middle.1, square, width));
        for (plane, channel) in image.chunks_exact(height * width).zip(channels) {
            let begin = out.len();
            out.resize(begin + plane.len(), channel.border);
            let plane_shown = &mut out[begin..];
            let lines = plane_shown[rows.start * width..rows.end * width].chunks_exact_mut(width);
            for (line, source) in lines.zip(plane[first_row * width..].chunks_exact(width)) {
                let pairs = line[shown.clone()].iter_mut();
                let source = &source[seen.clone()];
                let value = |pixel: &S| channel.normalization.apply((*pixel).into());
                match self.mirrored {
                    true => pairs.zip(source.iter().rev()).for_each(|(to, from)| *to = value(from)),
                    false => pairs.zip(source).for_each(|(to, from)| *to = value(from)),
                }
            }
            for line in plane_shown[hole_rows.start * width..hole_rows.end * width].chunks_exact_mut(width) {
                // Behind the normalization this is the mean.
                line[hole_columns.clone()].fill(0.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two channels of 3x3, and what is padded is 0 in the one and 90 in the other.
    const IMAGE: [u8; 18] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19];
    const CHANNELS: [Channel; 2] = [
        Channel { normalization: ChannelNormalization::NONE, border: 0.0 },
        Channel { normalization: ChannelNormalization::NONE, border: 90.0 },
    ];

    fn shown(draw: Draw, square: usize) -> [Vec<f32>; 2] {
        let rule = Rule { height: 3, width: 3, flip: true, padding: 1, square };
        let mut out = vec![-1.0];
        draw.show(rule, &IMAGE, &CHANNELS, &mut out);
        assert_eq!((out.len(), out[0]), (19, -1.0), "what was there stays");
        [out[1..10].to_vec(), out[10..].to_vec()]
    }

    #[test]
    fn every_cut_of_an_image_of_nine_pixels_table() {
        #[rustfmt::skip]
        let cases: [(usize, usize, [f32; 9]); 9] = [
            (0, 0, [0., 0., 0.,  0., 1., 2.,  0., 4., 5.]),
            (0, 1, [0., 0., 0.,  1., 2., 3.,  4., 5., 6.]),
            (0, 2, [0., 0., 0.,  2., 3., 0.,  5., 6., 0.]),
            (1, 0, [0., 1., 2.,  0., 4., 5.,  0., 7., 8.]),
            (1, 1, [1., 2., 3.,  4., 5., 6.,  7., 8., 9.]),
            (1, 2, [2., 3., 0.,  5., 6., 0.,  8., 9., 0.]),
            (2, 0, [0., 4., 5.,  0., 7., 8.,  0., 0., 0.]),
            (2, 1, [4., 5., 6.,  7., 8., 9.,  0., 0., 0.]),
            (2, 2, [5., 6., 0.,  8., 9., 0.,  0., 0., 0.]),
        ];
        #[rustfmt::skip]
        let mirrored: [[f32; 9]; 9] = [
            [0., 0., 0.,  2., 1., 0.,  5., 4., 0.],
            [0., 0., 0.,  3., 2., 1.,  6., 5., 4.],
            [0., 0., 0.,  0., 3., 2.,  0., 6., 5.],
            [2., 1., 0.,  5., 4., 0.,  8., 7., 0.],
            [3., 2., 1.,  6., 5., 4.,  9., 8., 7.],
            [0., 3., 2.,  0., 6., 5.,  0., 9., 8.],
            [5., 4., 0.,  8., 7., 0.,  0., 0., 0.],
            [6., 5., 4.,  9., 8., 7.,  0., 0., 0.],
            [0., 6., 5.,  0., 9., 8.,  0., 0., 0.],
        ];
        // The other channel goes the same way: ten more each, and its own border.
        let second = |first: [f32; 9]| first.map(|pixel| if pixel == 0.0 { 90.0 } else { pixel + 10.0 });
        for ((top, left, want), mirrored) in cases.into_iter().zip(mirrored) {
            let draw = Draw { top, left, mirrored: false, middle: (0, 0) };
            assert_eq!(shown(draw, 0), [want.to_vec(), second(want).to_vec()], "{top}, {left}");
            let draw = Draw { mirrored: true, ..draw };
            assert_eq!(
                shown(draw, 0),
                [mirrored.to_vec(), second(mirrored).to_vec()],
                "{top}, {left}, mirrored"
            );
        }
    }

    #[test]
    fn a_square_covers_what_lies_around_its_middle_in_all_channels_table() {
        const X: f32 = 0.0;
        #[rustfmt::skip]
        let cases: [(usize, (usize, usize), [f32; 9]); 6] = [
            (1, (1, 1), [1., 2., 3.,  4., X,  6.,  7., 8., 9.]),
            (1, (2, 0), [1., 2., 3.,  4., 5., 6.,  X,  8., 9.]),
            (2, (1, 1), [X,  X,  3.,  X,  X,  6.,  7., 8., 9.]),
            (2, (0, 2), [1., X,  X,   4., 5., 6.,  7., 8., 9.]),
            (3, (1, 1), [X,  X,  X,   X,  X,  X,   X,  X,  X ]),
            (3, (2, 2), [1., 2., 3.,  4., X,  X,   7., X,  X ]),
        ];
        for (side, middle, want) in cases {
            let second = want.map(|pixel| if pixel == X { X } else { pixel + 10.0 });
            let draw = Draw { top: 1, left: 1, mirrored: false, middle };
            assert_eq!(shown(draw, side), [want.to_vec(), second.to_vec()], "{side} at {middle:?}");
        }
        let draw = Draw { top: 2, left: 0, mirrored: true, middle: (2, 0) };
        assert_eq!(shown(draw, 1)[1], [15., 14., 90., 18., 17., 90., X, 90., 90.], "what is padded as well");
    }
}
