//! The step of a batch, out of those of its pieces, as one comes after the other.
//!
//! In: samples, loss, weight and gradients of one piece at a time. Out: loss, weight and gradients of all of
//! them, as [`batch_mean`](super::batch_mean) has them of parts that are all there: with W the sum of the
//! weights w so far, each gradient is g W_before / W + g_piece w / W. So it is a mean at any time, and no
//! larger than the largest gradient. If W is 0 every piece counts by its samples. What is not finite in one
//! piece is not finite in the result, even where the piece weighs nothing. Running statistics are not
//! averaged: those that one piece leaves are those that the next one begins with. Cost: one pass over the
//! gradients for each piece; memory for one set of them, kept from batch to batch.

use syncline_ps::optim::add_to_mean;

/// Loss and weight of pieces.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct PieceMean {
    loss: f64,
    weight: f64,
    samples: usize,
}

/// What a mean so far and one more piece are multiplied by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shares {
    so_far: f32,
    piece: f32,
}

impl PieceMean {
    /// Takes in one more piece.
    pub(super) fn take(&mut self, samples: usize, loss: f32, weight: f32) -> Shares {
        let before = *self;
        self.weight += f64::from(weight);
        self.samples += samples;
        let (so_far, piece) = match self.weight {
            0.0 => {
                let all = self.samples.max(1) as f64;
                (before.samples as f64 / all, samples as f64 / all)
            }
            all => (before.weight / all, f64::from(weight) / all),
        };
        self.loss = match before.samples {
            0 => f64::from(loss),
            _ => before.loss * so_far + f64::from(loss) * piece,
        };
        Shares { so_far: so_far as f32, piece: piece as f32 }
    }

    pub(super) fn loss(&self) -> f32 {
        self.loss as f32
    }

    pub(super) fn weight(&self) -> f32 {
        self.weight as f32
    }
}

impl Shares {
    /// Makes `mean`, that of the pieces before, the one with this piece in it.
    pub(super) fn add(self, mean: &mut [f32], piece: &[f32]) {
        add_to_mean(mean, self.so_far, piece, self.piece);
    }

    /// The same where the piece lies.
    pub(super) fn add_before(self, piece: &mut [f32], mean: &[f32]) {
        add_to_mean(piece, self.piece, mean, self.so_far);
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::batch_mean::{Part, batch_mean},
        *,
    };

    /// Samples, loss, weight, element.
    type Piece = (usize, f32, f32, f32);

    fn mean_of(pieces: &[Piece]) -> (f32, f32, f32) {
        let (mut mean, mut element) = (PieceMean::default(), [0.0; 33]);
        for (n, (samples, loss, weight, value)) in pieces.iter().enumerate() {
            let shares = mean.take(*samples, *loss, *weight);
            let mut piece = [*value; 33];
            match n {
                0 => element = piece,
                _ if n + 1 == pieces.len() => {
                    shares.add_before(&mut piece, &element);
                    element = piece;
                }
                _ => shares.add(&mut element, &piece),
            }
        }
        (mean.loss(), mean.weight(), element[32])
    }

    #[test]
    fn piece_mean_table() {
        /// Loss, weight, element.
        type Mean = (f32, f32, f32);
        const NAN: f32 = f32::NAN;
        const MAX: f32 = f32::MAX;
        #[rustfmt::skip]
        let cases: &[(&str, &[Piece], Mean)] = &[
            // name, pieces of (samples, loss, weight, element), batch of (loss, weight, element)
            ("one",                   &[(4, 1.0, 4.0, 2.0)],                                            (1.0, 4.0, 2.0)),
            ("equal weights",         &[(4, 1.0, 4.0, 2.0), (4, 3.0, 4.0, 6.0)],                        (2.0, 8.0, 4.0)),
            ("weights differ",        &[(4, 1.0, 1.0, 2.0), (4, 3.0, 3.0, 6.0)],                        (2.5, 4.0, 5.0)),
            ("three",                 &[(1, 4.0, 1.0, 4.0), (1, 8.0, 1.0, 8.0), (2, 2.0, 2.0, 2.0)],    (4.0, 4.0, 4.0)),
            ("the first is empty",    &[(4, 9.0, 0.0, 9.0), (4, 3.0, 4.0, 6.0)],                        (3.0, 4.0, 6.0)),
            ("the last is empty",     &[(4, 3.0, 4.0, 6.0), (4, 9.0, 0.0, 9.0)],                        (3.0, 4.0, 6.0)),
            ("none weighs anything",  &[(1, 0.0, 0.0, 8.0), (3, 0.0, 0.0, 4.0)],                        (0.0, 0.0, 5.0)),
            ("large",                 &[(1, MAX, 1.0, MAX), (1, MAX, 1.0, MAX)],                        (MAX, 2.0, MAX)),
            ("a loss is no number",   &[(1, NAN, 1.0, 1.0), (1, 1.0, 1.0, 1.0), (1, 1.0, 1.0, 1.0)],    (NAN, 3.0, 1.0)),
            ("a weight is no number", &[(1, 1.0, 1.0, 1.0), (1, 1.0, NAN, 1.0)],                        (NAN, NAN, NAN)),
            ("an infinite element",   &[(1, 1.0, 1.0, -1.0 / 0.0), (1, 1.0, 1.0, 1.0)],                 (1.0, 2.0, -1.0 / 0.0)),
            ("without weight",        &[(1, 0.0, 0.0, NAN), (1, 1.0, 1.0, 1.0)],                        (1.0, 1.0, NAN)),
        ];
        let same = |a: f32, b: f32| a == b || a.is_nan() && b.is_nan();
        for (name, pieces, want) in cases {
            let got = mean_of(pieces);
            assert!(same(got.0, want.0) && same(got.1, want.1) && same(got.2, want.2), "{name}: {got:?}");
        }
    }

    #[test]
    fn pieces_one_after_the_other_are_what_parts_are_together() {
        let mut random = syncline_onnx::SplitMix64::new(5);
        for count in 1..24 {
            let mut number = || random.normal() as f32;
            let weights = (0..count).map(|n| if n % 3 == count % 3 { 0.0 } else { number().abs() });
            let weights: Vec<f32> = weights.collect();
            let pieces: Vec<Piece> = weights.iter().map(|weight| (2, number(), *weight, number())).collect();
            let elements: Vec<[f32; 1]> = pieces.iter().map(|piece| [piece.3]).collect();
            let parts = pieces.iter().zip(&elements).map(|(piece, element)| Part {
                samples: piece.0,
                loss: piece.1,
                weight: piece.2,
                tensors: vec![&element[..]],
            });
            let mut merged = Vec::new();
            let (loss, weight) = batch_mean(&parts.collect::<Vec<_>>(), &mut merged);
            let got = mean_of(&pieces);
            let close = |a: f32, b: f32| (a - b).abs() < 2e-6;
            assert!(
                close(got.0, loss) && close(got.1, weight) && close(got.2, merged[0]),
                "{pieces:?}: {got:?}, {loss}, {weight}, {merged:?}"
            );
        }
    }
}
