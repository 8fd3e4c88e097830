//! How labels are spread: how many each class has, and how far numbers lie apart.

use std::collections::BTreeMap;

use super::block::{Block, BlockData};
use super::dataset::Dataset;
use super::error::DataError;

impl Dataset {
    /// Labels of these rows, by class; `None` where labels are no classes, nor one number a sample that is 0
    /// or 1.
    pub(crate) fn label_counts(&self, rows: &[u32]) -> Result<Option<BTreeMap<i64, u64>>, DataError> {
        let mut counts = BTreeMap::new();
        let are_classes = self.each_class(rows, |class| *counts.entry(class).or_default() += 1)?;
        Ok(are_classes.then_some(counts))
    }

    /// The class of each of these rows; `None` where a sample has more than one label, and as above.
    pub(super) fn row_classes(&self, rows: &[u32]) -> Result<Option<Vec<i64>>, DataError> {
        if self.label().is_none_or(|label| label.width() != 1) {
            return Ok(None);
        }
        let mut classes = Vec::with_capacity(rows.len());
        let are_classes = self.each_class(rows, |class| classes.push(class))?;
        Ok(are_classes.then_some(classes))
    }

    /// Hands out the labels of these rows, as long as they are classes; whether all are.
    fn each_class(&self, rows: &[u32], mut see: impl FnMut(i64)) -> Result<bool, DataError> {
        let Some(label) = self.label() else { return Ok(false) };
        let mut are_classes = true;
        label.each_block(rows, |block, here, _| {
            are_classes = are_classes && block.each_class(here, &mut see).is_some();
        })?;
        Ok(are_classes)
    }

    /// Standard deviation of the labels of these rows, which are real numbers: the largest of the numbers of
    /// a label.
    pub(crate) fn label_deviation(&self, rows: &[u32]) -> Result<Option<f64>, DataError> {
        let means = self.label_means(rows)?;
        let variances = self.mean_of_labels(rows, &|at, number| (number - means[at]).powi(2))?;
        Ok(variances.into_iter().map(f64::sqrt).max_by(f64::total_cmp))
    }

    /// Mean of each number of the labels of these rows; none where labels are no real numbers.
    pub(crate) fn label_means(&self, rows: &[u32]) -> Result<Vec<f64>, DataError> {
        self.mean_of_labels(rows, &|_, number| number)
    }

    /// Mean of what `number` makes of each number of the labels, and of its place in the label.
    fn mean_of_labels(
        &self,
        rows: &[u32],
        number: &dyn Fn(usize, f64) -> f64,
    ) -> Result<Vec<f64>, DataError> {
        let Some(label) = self.label().filter(|label| matches!(label.like().store, BlockData::F32(_))) else {
            return Ok(Vec::new());
        };
        let mut sums = vec![0.0; label.width()];
        label.each_block(rows, |block, here, _| block.add_to(&mut sums, here, number))?;
        let count = rows.len().max(1) as f64;
        Ok(sums.into_iter().map(|sum| sum / count).collect())
    }
}

/// How many classes a label of this shape answers for, and how many of its numbers follow each other that are
/// of the same class: the classes are behind all other axes, but for images, as `pos_weight` has it.
pub(crate) fn label_places(shape: &[usize]) -> (usize, usize) {
    let axis = if shape.len() < 3 { shape.len().checked_sub(1) } else { Some(0) };
    axis.map_or((1, 1), |axis| (shape[axis], shape[axis + 1..].iter().product()))
}

impl Block {
    fn each_class(&self, rows: &[u32], see: impl FnMut(i64)) -> Option<()> {
        match &self.store {
            BlockData::I64(all) => self.each_label(rows, all, Some, see),
            BlockData::I32(all) => self.each_label(rows, all, |class| Some(class.into()), see),
            BlockData::U8(all) => self.each_label(rows, all, |class| Some(class.into()), see),
            BlockData::F32(all) if self.width() == 1 => {
                let class = |number| match number {
                    0.0 => Some(0),
                    1.0 => Some(1),
                    _ => None,
                };
                self.each_label(rows, all, class, see)
            }
            BlockData::F32(_) | BlockData::F64(_) | BlockData::Bytes(..) => None,
        }
    }

    fn each_label<T: Copy>(
        &self,
        rows: &[u32],
        all: &[T],
        class: impl Fn(T) -> Option<i64>,
        mut see: impl FnMut(i64),
    ) -> Option<()> {
        let labels = rows.iter().flat_map(|&row| self.sample(row, all));
        labels.map(|&label| class(label)).try_for_each(|class| class.map(&mut see))
    }

    /// Adds what `number` makes of each number of these rows, and of its place in the sample.
    fn add_to(&self, sums: &mut [f64], rows: &[u32], number: &dyn Fn(usize, f64) -> f64) {
        let BlockData::F32(all) = &self.store else { return };
        for &row in rows {
            let sample = self.sample(row, all).iter().enumerate();
            sample.zip(&mut *sums).for_each(|((at, &value), sum)| *sum += number(at, value.into()));
        }
    }
}
