//! Resizing along one axis: which elements of the input each element of the output is made of.
//!
//! Output o stands at `position(o)` of the input, by the coordinate transformation; its value is the nearest element, or
//! the two beside it (linear), or four (cubic), weighted. Computed in float32, as ONNX Runtime does, so that ties round
//! the same way. Source: the ONNX operator Resize; Keys, doi:10.1109/TASSP.1981.1163711, for the cubic weights.

/// How one axis is resized.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Resized<'a> {
    pub(super) input: usize,
    pub(super) output: usize,
    /// Output size over input size, as the node says it.
    pub(super) scale: f32,
    pub(super) mode: &'a str,
    pub(super) coordinates: &'a str,
    pub(super) nearest: &'a str,
    pub(super) cubic_coefficient: f32,
    pub(super) exclude_outside: bool,
}

impl Resized<'_> {
    /// Weight of each input element in each output element, `[output, input]`; `None` if a mode is not known.
    pub(super) fn weights(&self) -> Option<Vec<f32>> {
        let mut weights = vec![0.0; self.output * self.input];
        for (output, row) in weights.chunks_mut(self.input).enumerate() {
            for (at, weight) in self.parts(self.position(output as f32)?)? {
                row[at.clamp(0, self.input as i64 - 1) as usize] += weight;
            }
        }
        Some(weights)
    }

    fn position(&self, output: f32) -> Option<f32> {
        let (length_in, length_out) = (self.input as f32, self.output as f32);
        Some(match self.coordinates {
            "half_pixel" => (output + 0.5) / self.scale - 0.5,
            "pytorch_half_pixel" if self.output == 1 => 0.0,
            "pytorch_half_pixel" => (output + 0.5) / self.scale - 0.5,
            "align_corners" if self.output == 1 => 0.0,
            "align_corners" => output * (length_in - 1.0) / (length_out - 1.0),
            "asymmetric" => output / self.scale,
            "half_pixel_symmetric" => {
                let adjustment = length_out / (self.scale * length_in);
                length_in / 2.0 * (1.0 - adjustment) + (output + 0.5) / self.scale - 0.5
            }
            _ => return None,
        })
    }

    fn parts(&self, position: f32) -> Option<Vec<(i64, f32)>> {
        Some(match self.mode {
            "nearest" => vec![(self.round(position)? as i64, 1.0)],
            "linear" => {
                let position = position.clamp(0.0, self.input as f32 - 1.0);
                let (floor, above) = (position.floor(), position - position.floor());
                vec![(floor as i64, 1.0 - above), (floor as i64 + 1, above)]
            }
            "cubic" => self.cubic(position),
            _ => return None,
        })
    }

    fn round(&self, position: f32) -> Option<f32> {
        let tie = position - position.floor() == 0.5;
        Some(match self.nearest {
            "round_prefer_floor" if tie => position.floor(),
            "round_prefer_ceil" if tie => position.ceil(),
            "round_prefer_floor" | "round_prefer_ceil" => position.round(),
            "floor" => position.floor(),
            "ceil" => position.ceil(),
            _ => return None,
        })
    }

    fn cubic(&self, position: f32) -> Vec<(i64, f32)> {
        let (floor, t, a) = (position.floor() as i64, position - position.floor(), self.cubic_coefficient);
        let near = |t: f32| ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0;
        let far = |t: f32| ((a * t - 5.0 * a) * t + 8.0 * a) * t - 4.0 * a;
        let weights = [far(1.0 + t), near(t), near(1.0 - t), far(2.0 - t)];
        let mut parts: Vec<(i64, f32)> = (floor - 1..).zip(weights).collect();
        if self.exclude_outside {
            parts.retain(|(at, _)| (0..self.input as i64).contains(at));
            let total: f32 = parts.iter().map(|(_, weight)| weight).sum();
            parts.iter_mut().for_each(|(_, weight)| *weight /= total);
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_small_axes() {
        let plain = Resized {
            input: 2,
            output: 4,
            scale: 2.0,
            mode: "linear",
            coordinates: "half_pixel",
            nearest: "round_prefer_floor",
            cubic_coefficient: -0.75,
            exclude_outside: false,
        };
        let linear = [1.0, 0.0, 0.75, 0.25, 0.25, 0.75, 0.0, 1.0];
        assert_eq!(plain.weights().unwrap(), linear);
        let nearest = Resized { mode: "nearest", ..plain };
        assert_eq!(nearest.weights().unwrap(), [1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0]);
        let corners = Resized { output: 3, scale: 1.5, coordinates: "align_corners", ..plain };
        assert_eq!(corners.weights().unwrap(), [1.0, 0.0, 0.5, 0.5, 0.0, 1.0]);
        assert_eq!(Resized { coordinates: "tf_crop_and_resize", ..plain }.weights(), None);
        let cubic = Resized { mode: "cubic", exclude_outside: true, ..plain }.weights().unwrap();
        assert!(cubic.chunks(2).all(|row| (row.iter().sum::<f32>() - 1.0).abs() < 1e-6));
    }
}
