//! Resizing along one axis: which elements of the input each element of the output is made of.
//!
//! Output o stands at `position(o)` of the input, by the coordinate transformation; its value is the nearest
//! element, or the two beside it (linear), or four (cubic), weighted; with antialias, where the axis shrinks,
//! as many more as it shrinks. Computed in float32. Source: the ONNX operator Resize;
//! Keys, doi:10.1109/TASSP.1981.1163711, for the cubic weights.

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
    pub(super) antialias: bool,
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

    /// Whether an element is chosen by a position so close to where the choice changes that another order of
    /// operations in float32 may choose its neighbor. Where the scale is a whole number, or a power of
    /// two, nothing is rounded.
    pub(super) fn is_unsure(&self) -> bool {
        if self.scale.fract() == 0.0 || (1.0 / self.scale).fract() == 0.0 && self.scale.log2().fract() == 0.0
        {
            return false;
        }
        let turns_at = if self.nearest.starts_with("round") { 0.5 } else { 0.0 };
        let away = |position: f32| (position - turns_at - (position - turns_at).round()).abs();
        // No float32 below this knows its fraction better.
        let error = 4.0 * f32::EPSILON * self.input.max(self.output) as f32;
        self.mode == "nearest"
            && (0..self.output)
                .filter_map(|output| self.position(output as f32))
                .any(|position| (0.0..self.input as f32).contains(&position) && away(position) <= error)
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
            "linear" if self.antialias => self.smooth(position, 1.0, |t| 1.0 - t),
            "cubic" if self.antialias => self.smooth(position, 2.0, |t| self.keys(t)),
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
        let (floor, t) = (position.floor() as i64, position - position.floor());
        let weights = [1.0 + t, t, 1.0 - t, 2.0 - t].map(|distance| self.keys(distance));
        let parts: Vec<(i64, f32)> = (floor - 1..).zip(weights).collect();
        if self.exclude_outside { self.inside(parts) } else { parts }
    }

    /// The weight of an element at a distance from 0 to 2.
    fn keys(&self, distance: f32) -> f32 {
        let (t, a) = (distance, self.cubic_coefficient);
        match t <= 1.0 {
            true => ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0,
            false => ((a * t - 5.0 * a) * t + 8.0 * a) * t - 4.0 * a,
        }
    }

    /// Every element within `reach`, measured in output elements where these are the larger ones, weighted by
    /// distance.
    fn smooth(&self, position: f32, reach: f32, weight: impl Fn(f32) -> f32) -> Vec<(i64, f32)> {
        let (shrinks, center) = ((1.0 / self.scale).max(1.0), position + 0.5);
        let edge = |side: f32| (center + side * reach * shrinks + 0.5).floor() as i64;
        let near = |at: i64| {
            let distance = ((at as f32 - center + 0.5) / shrinks).abs();
            (at, if distance < reach { weight(distance) } else { 0.0 })
        };
        let parts: Vec<(i64, f32)> = (edge(-1.0)..edge(1.0)).map(near).collect();
        if self.exclude_outside { self.inside(parts) } else { normalized(parts) }
    }

    fn inside(&self, mut parts: Vec<(i64, f32)>) -> Vec<(i64, f32)> {
        parts.retain(|(at, _)| (0..self.input as i64).contains(at));
        normalized(parts)
    }
}

/// The same parts with weights that add up to one.
fn normalized(mut parts: Vec<(i64, f32)>) -> Vec<(i64, f32)> {
    let total: f32 = parts.iter().map(|(_, weight)| weight).sum();
    parts.iter_mut().for_each(|(_, weight)| *weight /= total);
    parts
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
            antialias: false,
        };
        let linear = [1.0, 0.0, 0.75, 0.25, 0.25, 0.75, 0.0, 1.0];
        assert_eq!(plain.weights().unwrap(), linear);
        let nearest = Resized { mode: "nearest", ..plain };
        assert_eq!(nearest.weights().unwrap(), [1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0]);
        let corners = Resized { output: 3, scale: 1.5, coordinates: "align_corners", ..plain };
        assert_eq!(corners.weights().unwrap(), [1.0, 0.0, 0.5, 0.5, 0.0, 1.0]);
        assert_eq!(Resized { coordinates: "tf_crop_and_resize", ..plain }.weights(), None);
        let cubic = Resized { mode: "cubic", exclude_outside: true, ..plain }.weights().unwrap();
        let smooth =
            Resized { input: 4, output: 2, scale: 0.5, antialias: true, exclude_outside: true, ..plain };
        let thirds = [3.0 / 7.0, 3.0 / 7.0, 1.0 / 7.0, 0.0, 0.0, 1.0 / 7.0, 3.0 / 7.0, 3.0 / 7.0];
        let off =
            smooth.weights().unwrap().iter().zip(thirds).map(|(w, t)| (w - t).abs()).fold(0.0, f32::max);
        assert!(off < 1e-6, "{:?}", smooth.weights());
        assert!(cubic.chunks(2).all(|row| (row.iter().sum::<f32>() - 1.0).abs() < 1e-6));
    }
}
