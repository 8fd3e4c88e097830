//! How labels are spread: how many each class has, and how far numbers lie apart.

use std::collections::BTreeMap;

use super::column::{Column, ColumnData};
use super::dataset::Dataset;

impl Dataset {
    /// Labels of these rows, by class; `None` where labels are no classes, nor one number a sample that is 0 or 1.
    pub(crate) fn label_counts(&self, rows: &[u32]) -> Option<BTreeMap<i64, u64>> {
        let mut counts = BTreeMap::new();
        self.each_class(rows, |class| *counts.entry(class).or_default() += 1)?;
        Some(counts)
    }

    /// The class of each of these rows; `None` where a sample has more than one label, and as above.
    pub(super) fn row_classes(&self, rows: &[u32]) -> Option<Vec<i64>> {
        self.label().filter(|label| label.width() == 1)?;
        let mut classes = Vec::with_capacity(rows.len());
        self.each_class(rows, |class| classes.push(class))?;
        Some(classes)
    }

    fn each_class(&self, rows: &[u32], see: impl FnMut(i64)) -> Option<()> {
        let label = self.label()?;
        match &label.store {
            ColumnData::I64(all) => label.each_class(rows, all, Some, see),
            ColumnData::I32(all) => label.each_class(rows, all, |class| Some(class.into()), see),
            ColumnData::U8(all) => label.each_class(rows, all, |class| Some(class.into()), see),
            ColumnData::F32(all) if label.width() == 1 => {
                let class = |number| match number {
                    0.0 => Some(0),
                    1.0 => Some(1),
                    _ => None,
                };
                label.each_class(rows, all, class, see)
            }
            ColumnData::F32(_) | ColumnData::F64(_) | ColumnData::Bytes(..) => None,
        }
    }

    /// Standard deviation of the labels of these rows, which are real numbers: the largest of the numbers of a label.
    pub(crate) fn label_deviation(&self, rows: &[u32]) -> Option<f64> {
        let label = self.label()?;
        let ColumnData::F32(all) = &label.store else { return None };
        let number = |row: u32, at: usize| f64::from(label.sample(row, all)[at]);
        let count = rows.len().max(1) as f64;
        let deviation = |at: usize| {
            let mean = rows.iter().map(|&row| number(row, at)).sum::<f64>() / count;
            (rows.iter().map(|&row| (number(row, at) - mean).powi(2)).sum::<f64>() / count).sqrt()
        };
        (0..label.width()).map(deviation).max_by(f64::total_cmp)
    }
}

impl Column {
    fn each_class<T: Copy>(
        &self,
        rows: &[u32],
        all: &[T],
        class: impl Fn(T) -> Option<i64>,
        mut see: impl FnMut(i64),
    ) -> Option<()> {
        let labels = rows.iter().flat_map(|&row| self.sample(row, all));
        labels.map(|&label| class(label)).try_for_each(|class| class.map(&mut see))
    }
}
