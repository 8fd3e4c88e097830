//! Where the numbers of a table go as they are read.

use std::ops::Range;
use std::path::Path;

use super::super::array::{EXACT_INTEGERS, Numbers};
use super::super::error::DataError;
use super::super::file::{MAX_ELEMENTS, reserve};

/// Keeps numbers in the order in which they come.
pub(super) trait NumberSink {
    /// Most numbers that a table may have.
    const MOST: u64;

    /// `share_read`: which part of the table has been read with these, above 0 and 1 at most.
    fn append(&mut self, numbers: &[f64], share_read: f64) -> Result<(), DataError>;

    /// Puts in place of each number, which is an index into these, the one that stands there.
    fn replace(&mut self, by: &[u32]) -> Result<(), DataError>;
}

/// Keeps them in memory: in four bytes as long as all are integers that models take from floats as well, else
/// as float64.
pub(super) struct NumbersInMemory<'a> {
    /// The first file of the table.
    table: &'a Path,
    pub(super) numbers: Numbers,
}

/// Whether what becomes of a number does not depend on whether it is kept as int32: it counts as whole, and
/// keeps its sign.
fn is_integer(number: f64) -> bool {
    number.abs() < EXACT_INTEGERS && f64::from(number as i32).to_bits() == number.to_bits()
}

impl<'a> NumbersInMemory<'a> {
    pub(super) fn of(table: &'a Path) -> Self {
        Self { table, numbers: Numbers::I32(Vec::new()) }
    }
}

impl NumberSink for NumbersInMemory<'_> {
    const MOST: u64 = MAX_ELEMENTS;

    fn append(&mut self, numbers: &[f64], _: f64) -> Result<(), DataError> {
        match &mut self.numbers {
            Numbers::I32(all) if numbers.iter().copied().all(is_integer) => {
                reserve(all, numbers.len(), self.table)?;
                all.extend(numbers.iter().map(|number| *number as i32));
            }
            Numbers::F64(all) => {
                reserve(all, numbers.len(), self.table)?;
                all.extend_from_slice(numbers);
            }
            others => {
                reserve(&mut Vec::<f64>::new(), others.len() + numbers.len(), self.table)?;
                let mut all = std::mem::replace(others, Numbers::F64(Vec::new())).into_f64();
                all.extend_from_slice(numbers);
                *others = Numbers::F64(all);
            }
        }
        Ok(())
    }

    fn replace(&mut self, by: &[u32]) -> Result<(), DataError> {
        let all = std::mem::replace(&mut self.numbers, Numbers::I32(Vec::new())).into_f64();
        let replaced: Vec<f64> = all.into_iter().map(|number| by[number as usize].into()).collect();
        self.append(&replaced, 1.0)
    }
}

/// Keeps parts of each sample by themselves, as each input takes its own: an integer takes four bytes
/// whatever stands in the columns of another.
pub(super) struct NumbersOfParts<'a> {
    /// Of a sample.
    width: usize,
    parts: Vec<(Range<usize>, NumbersInMemory<'a>)>,
}

impl<'a> NumbersOfParts<'a> {
    /// `parts`: which numbers of a sample each has, one behind the other.
    pub(super) fn of(table: &'a Path, parts: Vec<Range<usize>>) -> Self {
        let width = parts.last().map_or(0, |part| part.end);
        Self { width, parts: parts.into_iter().map(|part| (part, NumbersInMemory::of(table))).collect() }
    }

    pub(super) fn into_parts(self) -> impl Iterator<Item = (Range<usize>, Numbers)> {
        self.parts.into_iter().map(|(part, kept)| (part, kept.numbers))
    }
}

impl NumberSink for NumbersOfParts<'_> {
    const MOST: u64 = NumbersInMemory::MOST;

    fn append(&mut self, numbers: &[f64], share_read: f64) -> Result<(), DataError> {
        if let [(_, all)] = self.parts.as_mut_slice() {
            return all.append(numbers, share_read);
        }
        self.parts.iter_mut().try_for_each(|(part, kept)| {
            let samples = numbers.chunks_exact(self.width);
            let own: Vec<f64> = samples.flat_map(|sample| &sample[part.clone()]).copied().collect();
            kept.append(&own, share_read)
        })
    }

    fn replace(&mut self, by: &[u32]) -> Result<(), DataError> {
        self.parts.iter_mut().try_for_each(|(_, kept)| kept.replace(by))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_sample_are_kept_by_themselves_each_as_narrow_as_its_own_numbers_are() {
        let mut sink = NumbersOfParts::of(Path::new("all.csv"), vec![0..2, 2..3]);
        sink.append(&[1.0, 2.0, 0.5, 3.0, 4.0, 7.0], 0.5).unwrap();
        sink.append(&[5.0, 6.0, 8.0], 1.0).unwrap();
        let parts: Vec<Numbers> = sink.into_parts().map(|(_, numbers)| numbers).collect();
        assert_eq!(parts, [Numbers::I32(vec![1, 2, 3, 4, 5, 6]), Numbers::F64(vec![0.5, 7.0, 8.0])]);
    }

    #[test]
    fn numbers_take_four_bytes_as_long_as_all_are_integers_and_none_is_changed_by_it() {
        for (more, is_narrow) in [
            (&[-7.0, 16_777_215.0][..], true),
            (&[16_777_216.0], false),
            (&[-0.0], false),
            (&[0.5], false),
            (&[f64::NEG_INFINITY], false),
        ] {
            let mut sink = NumbersInMemory::of(Path::new("all.csv"));
            sink.append(&[0.0, 255.0], 0.5).unwrap();
            sink.append(more, 0.9).unwrap();
            sink.append(&[3.0], 1.0).unwrap();
            assert_eq!(matches!(sink.numbers, Numbers::I32(_)), is_narrow, "{more:?}");
            let bits = |numbers: Vec<f64>| numbers.into_iter().map(f64::to_bits).collect::<Vec<_>>();
            let want = bits([&[0.0, 255.0], more, &[3.0]].concat());
            assert_eq!(bits(sink.numbers.into_f64()), want, "{more:?}");
        }
    }
}
