//! Where the numbers lie in a checkpoint file.

use syncline_scheduler::spec::{ElementRange, Layout, Optimizer};

const WIDTH: u64 = size_of::<f32>() as u64;

/// The values of all parameters, and behind them the moments of the trained ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sections {
    /// Where the values begin.
    data: u64,
    elements: u64,
    trained: u64,
    moments: u64,
}

impl Sections {
    /// Those of a file whose numbers begin at `data`; `None` if the layout is too large.
    pub(crate) fn new(data: u64, layout: &Layout, optimizer: &Optimizer) -> Option<Self> {
        let (elements, trained) = (layout.elements()?, layout.trained_elements());
        Some(Self { data, elements, trained, moments: optimizer.moments() })
    }

    /// Bytes of the whole file.
    pub(crate) fn end(&self) -> u64 {
        self.data + (self.elements + self.moments * self.trained) * WIDTH
    }

    /// Each section as a whole: the values, and each of the moments.
    pub(crate) fn whole(&self) -> impl Iterator<Item = Piece> {
        let all = ElementRange { start: 0, end: self.elements };
        let moments = (0..self.moments).map(move |index| self.moment(index, all));
        std::iter::once(self.values(all)).chain(moments)
    }

    /// Where the values of a range lie.
    pub(crate) fn values(&self, range: ElementRange) -> Piece {
        Piece { offset: self.data + range.start * WIDTH, bytes: range.len() * WIDTH }
    }

    /// Where the moments of one kind lie, of what is trained of a range.
    pub(crate) fn moment(&self, index: u64, range: ElementRange) -> Piece {
        let (start, end) = (range.start.min(self.trained), range.end.min(self.trained));
        let before = self.elements + index * self.trained + start;
        Piece { offset: self.data + before * WIDTH, bytes: (end - start) * WIDTH }
    }
}

/// Some bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub offset: u64,
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::spec::Parameter;

    use super::*;

    #[test]
    fn the_parts_of_all_shards_tile_each_section() {
        let layout = Layout(vec![
            Parameter::trained("w", vec![100, 7]),
            Parameter::trained("b", vec![3]),
            Parameter::buffer("mean", vec![90]),
        ]);
        let sections = Sections::new(80, &layout, &Optimizer::adam()).unwrap();
        assert_eq!(sections.end(), 80 + 4 * (793 + 2 * 703));
        for shards in 1..6 {
            let ranges = (0..shards).map(|index| ElementRange::of_shard(793, index, shards));
            let pieces = |of: &dyn Fn(ElementRange) -> Piece| ranges.clone().map(of).collect::<Vec<_>>();
            let mut at = 80;
            let all = [
                pieces(&|range| sections.values(range)),
                pieces(&|range| sections.moment(0, range)),
                pieces(&|range| sections.moment(1, range)),
            ];
            for piece in all.concat() {
                assert!(piece.offset == at || piece.bytes == 0, "{shards} shards: {piece:?}");
                at += piece.bytes;
            }
            assert_eq!(at, sections.end());
        }
    }
}
