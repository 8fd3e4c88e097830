//! The rows of tables that a batch reads, and what the training graph is fed for its ids.
//!
//! The ids of each group of tables are sorted, once each; the shards are asked for these rows, and in the
//! place of an id the graph gets its place among them. Cost: in proportion to the ids of the batch, never to
//! the tables.

use syncline_onnx::TensorView;
use syncline_ps::rows::RowSelection;
use syncline_scheduler::{
    samples::SampleRange,
    spec::{ModelSpec, TrainSpec},
};

use super::{WorkerError, data_loader::DataLoader, replicas::Inputs};

/// What a batch chooses from the tables of a job.
pub(super) struct BatchRows {
    /// One for each input of the model that holds ids.
    inputs: Vec<IdInput>,
    /// Rows of the smallest table that each group's ids are checked against.
    rows: Vec<u64>,
    selection: RowSelection,
    /// The iteration whose rows they are.
    taken: Option<SampleRange>,
}

struct IdInput {
    name: String,
    group: usize,
    shape: Vec<usize>,
    places: Places,
}

/// Places among the rows of the batch, in the type of the ids.
enum Places {
    I32(Vec<i32>),
    I64(Vec<i64>),
}

impl BatchRows {
    /// `None` if all rows of all parameters travel.
    pub(super) fn of(model: &ModelSpec) -> Option<Self> {
        let ids = model.inputs.iter().filter_map(|input| Some((input, input.row_group? as usize)));
        let mut rows = Vec::new();
        let mut inputs = Vec::new();
        for (input, group) in ids {
            if rows.len() <= group {
                rows.resize(group + 1, u64::from(u32::MAX));
            }
            rows[group] = input.rows.unwrap_or(u64::MAX).min(rows[group]);
            let places = Places::I64(Vec::new());
            inputs.push(IdInput { name: input.name.clone(), group, shape: Vec::new(), places });
        }
        (!inputs.is_empty()).then(|| Self { inputs, rows, selection: RowSelection::default(), taken: None })
    }

    /// The rows that were taken last.
    pub(super) fn selection(&self) -> &RowSelection {
        &self.selection
    }

    /// How many rows of a group were taken last.
    pub(super) fn count(&self, group: u32) -> usize {
        self.selection.ids(group as usize).len()
    }

    /// Gathers the samples of an iteration and takes the rows that they choose, unless that was the last
    /// thing done.
    pub(super) fn choose(
        &mut self,
        loader: &mut DataLoader,
        train: &TrainSpec,
        range: SampleRange,
    ) -> Result<(), WorkerError> {
        if (loader.loaded(), self.taken) == (Some(range), Some(range)) {
            return Ok(());
        }
        loader.load_batch(train, range)?;
        self.take(range, &loader.inputs(&train.model).collect())
    }

    /// Takes the rows that these samples of an iteration choose.
    fn take(&mut self, range: SampleRange, samples: &Inputs<'_>) -> Result<(), WorkerError> {
        self.taken = None;
        let mut chosen: Vec<Vec<u32>> = self.rows.iter().map(|_| Vec::new()).collect();
        for input in &self.inputs {
            let rows = self.rows[input.group];
            let ids = &mut chosen[input.group];
            match view(samples, &input.name)? {
                TensorView::I32 { data, .. } => collect(ids, rows, data.iter().map(|id| i64::from(*id)))?,
                TensorView::I64 { data, .. } => collect(ids, rows, data.iter().copied())?,
                _ => return Err(no_ids(&input.name)),
            }
        }
        for ids in &mut chosen {
            ids.sort_unstable();
            ids.dedup();
        }
        for input in &mut self.inputs {
            let ids = &chosen[input.group];
            let place = |id: i64| ids.partition_point(|known| i64::from(*known) < id);
            let view = view(samples, &input.name)?;
            input.shape.clear();
            input.shape.extend_from_slice(view.shape());
            input.places = match view {
                TensorView::I32 { data, .. } => {
                    Places::I32(data.iter().map(|id| place(i64::from(*id)) as i32).collect())
                }
                TensorView::I64 { data, .. } => {
                    Places::I64(data.iter().map(|id| place(*id) as i64).collect())
                }
                _ => return Err(no_ids(&input.name)),
            };
        }
        let fault = |what: String| WorkerError::Graph { what };
        self.selection = RowSelection::new(chosen).map_err(|e| fault(e.to_string()))?;
        self.taken = Some(range);
        Ok(())
    }

    /// The samples that were taken last, as the graph reads them.
    pub(super) fn replace<'a>(&'a self, samples: &mut Inputs<'a>) {
        for (name, view) in samples {
            let Some(input) = self.inputs.iter().find(|input| input.name == *name) else { continue };
            let shape = &input.shape[..];
            *view = match &input.places {
                Places::I32(data) => TensorView::I32 { shape, data },
                Places::I64(data) => TensorView::I64 { shape, data },
            };
        }
    }
}

fn view<'a>(samples: &Inputs<'a>, name: &str) -> Result<TensorView<'a>, WorkerError> {
    samples.iter().find(|(known, _)| *known == name).map(|(_, view)| *view).ok_or_else(|| no_ids(name))
}

fn collect(into: &mut Vec<u32>, rows: u64, ids: impl Iterator<Item = i64>) -> Result<(), WorkerError> {
    for id in ids {
        let known = u32::try_from(id).ok().filter(|id| u64::from(*id) < rows);
        into.push(known.ok_or_else(|| {
            let what = format!("row {id} of a table of {rows}");
            WorkerError::Graph { what }
        })?);
    }
    Ok(())
}

fn no_ids(name: &str) -> WorkerError {
    WorkerError::Graph { what: format!("there are no ids for input `{name}`") }
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::spec::{DataElement, DataInput};

    use super::*;

    const RANGE: SampleRange = SampleRange { epoch: 0, start: 0, len: 3 };

    fn rows() -> BatchRows {
        let input = |name: &str, row_group| DataInput {
            name: name.to_owned(),
            element: DataElement::I64,
            shape: vec![],
            rows: Some(10),
            column_rows: vec![],
            row_group,
        };
        let mut model = syncline_scheduler::sim::training("bsp".parse().unwrap(), 64, 8).model;
        model.inputs =
            vec![input("user", Some(1)), input("x", None), input("item", Some(0)), input("seen", Some(0))];
        BatchRows::of(&model).unwrap()
    }

    #[test]
    fn rows_ascend_once_each_and_places_are_among_them() {
        let mut rows = rows();
        let (shape, pairs) = ([3], [3, 2]);
        let mut samples = vec![
            ("user", TensorView::I64 { shape: &shape, data: &[7, 0, 7] }),
            ("x", TensorView::I64 { shape: &shape, data: &[1, 2, 3] }),
            ("item", TensorView::I32 { shape: &shape, data: &[9, 4, 4] }),
            ("seen", TensorView::I64 { shape: &pairs, data: &[4, 2, 9, 9, 2, 0] }),
        ];
        rows.take(RANGE, &samples).unwrap();
        assert_eq!(rows.taken, Some(RANGE));
        assert_eq!(rows.selection(), &RowSelection::new(vec![vec![0, 2, 4, 9], vec![0, 7]]).unwrap());
        assert_eq!((rows.count(0), rows.count(1)), (4, 2));
        rows.replace(&mut samples);
        assert!(matches!(samples[0].1, TensorView::I64 { shape: [3], data: [1, 0, 1] }));
        assert!(matches!(samples[1].1, TensorView::I64 { data: [1, 2, 3], .. }));
        assert!(matches!(samples[2].1, TensorView::I32 { data: [3, 2, 2], .. }));
        assert!(matches!(samples[3].1, TensorView::I64 { shape: [3, 2], data: [2, 1, 3, 3, 1, 0] }));
    }

    #[test]
    fn ids_that_are_no_rows_and_inputs_that_are_no_ids_are_refused() {
        let shape = [1];
        let ok = TensorView::I64 { shape: &shape, data: &[1] };
        let bad = [
            TensorView::I64 { shape: &shape, data: &[10] },
            TensorView::I64 { shape: &shape, data: &[-1] },
            TensorView::I64 { shape: &shape, data: &[i64::MIN] },
            TensorView::F32 { shape: &shape, data: &[1.0] },
        ];
        for bad in bad {
            let samples = vec![("user", bad), ("item", ok), ("seen", ok)];
            assert_eq!(rows().take(RANGE, &samples).unwrap_err().code(), "E352");
        }
        assert_eq!(rows().take(RANGE, &vec![("user", ok)]).unwrap_err().code(), "E352");
    }
}
