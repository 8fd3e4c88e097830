//! Series in the store, such as the loss curve: each keeps its shape however long the job is, because points
//! become rarer instead of the oldest being dropped.

use serde::{Deserialize, Serialize};

/// Points of a series that are never exceeded; before the last of them two become one each.
pub const SERIES_POINTS: u64 = 400;

/// New points of a series that covers the whole job in bounded room.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SeriesChanges {
    /// Oldest first; the fields of each in order.
    pub points: Vec<Vec<(&'static str, String)>>,
    /// Of the points before them two become one each: of the loss curve their mean, of evaluations the
    /// first.
    pub halve: bool,
}

impl SeriesChanges {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty() && !self.halve
    }
}

/// What is known of a series in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeriesSampling {
    /// Points that are stored, always below [`SERIES_POINTS`].
    pub points: u64,
    /// Iterations, or evaluations, that one point stands for.
    pub stride: u64,
}

impl Default for SeriesSampling {
    fn default() -> Self {
        Self { points: 0, stride: 1 }
    }
}

impl SeriesSampling {
    /// Whether the point of this number, from 0, is one of those that stay. The first one always is.
    pub(super) fn keeps(&self, number: u64) -> bool {
        number.is_multiple_of(self.stride)
    }

    /// Takes points in, and says how they are to be stored.
    pub(super) fn add(&mut self, points: Vec<Vec<(&'static str, String)>>) -> SeriesChanges {
        let new = points.len() as u64;
        let halve = self.points + new >= SERIES_POINTS;
        if halve {
            (self.points, self.stride) = (self.points.div_ceil(2), self.stride * 2);
        }
        self.points += new;
        SeriesChanges { points, halve }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the store does with it.
    fn store(stored: &mut Vec<String>, changes: SeriesChanges) {
        if changes.halve {
            let kept = stored.iter().step_by(2).cloned().collect();
            *stored = kept;
        }
        stored.extend(changes.points.into_iter().map(|point| point[0].1.clone()));
    }

    #[test]
    fn a_series_of_any_length_is_stored_from_its_first_to_its_last_point_evenly() {
        for length in [1, 399, 400, 401, 5_000, 123_457u64] {
            let (mut sampling, mut stored) = (SeriesSampling::default(), Vec::new());
            for number in 0..length {
                if sampling.keeps(number) || number + 1 == length {
                    let changes = sampling.add(vec![vec![("number", number.to_string())]]);
                    store(&mut stored, changes);
                }
                assert!(stored.len() as u64 == sampling.points && sampling.points < SERIES_POINTS);
            }
            let numbers: Vec<u64> = stored.iter().map(|number| number.parse().unwrap()).collect();
            assert_eq!((numbers[0], numbers.last()), (0, Some(&(length - 1))));
            let gaps: Vec<u64> = numbers.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert!(gaps.iter().all(|gap| *gap <= sampling.stride), "{length}: {gaps:?}");
            assert!(length < SERIES_POINTS || numbers.len() >= 200, "{length}: {}", numbers.len());
        }
    }
}
