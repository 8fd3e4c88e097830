//! How many labels each class has.

use std::collections::BTreeMap;

use super::column::{Column, ColumnData};
use super::dataset::Dataset;

impl Dataset {
    /// Labels of these rows, by class; `None` where labels are no classes, nor one number a sample that is 0 or 1.
    pub(crate) fn label_counts(&self, rows: &[u32]) -> Option<BTreeMap<i64, u64>> {
        let label = self.label()?;
        match &label.store {
            ColumnData::I64(all) => label.counts(rows, all, Some),
            ColumnData::I32(all) => label.counts(rows, all, |class| Some(class.into())),
            ColumnData::U8(all) => label.counts(rows, all, |class| Some(class.into())),
            ColumnData::F32(all) if label.width() == 1 => label.counts(rows, all, |number| match number {
                0.0 => Some(0),
                1.0 => Some(1),
                _ => None,
            }),
            ColumnData::F32(_) | ColumnData::F64(_) | ColumnData::Bytes(..) => None,
        }
    }
}

impl Column {
    fn counts<T: Copy>(
        &self,
        rows: &[u32],
        all: &[T],
        class: impl Fn(T) -> Option<i64>,
    ) -> Option<BTreeMap<i64, u64>> {
        let mut counts = BTreeMap::new();
        for &label in rows.iter().flat_map(|&row| self.sample(row, all)) {
            *counts.entry(class(label)?).or_default() += 1;
        }
        Some(counts)
    }
}
