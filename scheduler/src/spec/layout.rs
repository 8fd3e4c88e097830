//! How named parameters lie in one flat array of f32, and which part of it each shard holds.
//!
//! What the optimizer moves comes first, buffers come behind it: one number says where the one ends and the
//! other begins, on every shard and in every chunk.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
};

use serde::{Deserialize, Serialize};

use super::{Optimizer, StepSettings, stored_parameter::StoredParameter};

/// Most parameters a model may have.
pub const MAX_PARAMETERS: usize = 100_000;
/// Most elements of all parameters together (256 GiB of f32).
pub const MAX_ELEMENTS: u64 = 1 << 36;

/// One named tensor of a model's state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "StoredParameter", into = "StoredParameter")]
pub struct Parameter {
    /// Name in the user's model, and of the input of the training graph.
    pub name: String,
    /// Sizes of the axes; empty for a single number.
    pub shape: Vec<u64>,
    /// How it is trained.
    pub kind: ParameterKind,
    /// What of its steps is not as the optimizer has it for all; of no meaning to a buffer.
    pub settings: StepSettings,
}

/// How a step changes a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterKind {
    /// By its gradient, through the optimizer.
    Trained,
    /// By what the workers computed for it, averaged: a running statistic of BatchNormalization.
    Buffer,
    /// By its gradient as well, of which only the rows travel that the batch reads: a table behind a Gather.
    /// The tables of one group, numbered from 0, are read by the same ids.
    Rows {
        /// Number of its group.
        group: u32,
    },
}

impl Parameter {
    /// A parameter that the optimizer moves.
    pub fn trained(name: impl Into<String>, shape: Vec<u64>) -> Self {
        Self::new(name.into(), shape, ParameterKind::Trained)
    }

    /// A parameter that is averaged.
    pub fn buffer(name: impl Into<String>, shape: Vec<u64>) -> Self {
        Self::new(name.into(), shape, ParameterKind::Buffer)
    }

    /// A table of which rows travel.
    pub fn rows(name: impl Into<String>, shape: Vec<u64>, group: u32) -> Self {
        Self::new(name.into(), shape, ParameterKind::Rows { group })
    }

    fn new(name: String, shape: Vec<u64>, kind: ParameterKind) -> Self {
        Self { name, shape, kind, settings: StepSettings::default() }
    }

    /// Whether the optimizer moves it.
    pub fn is_trained(&self) -> bool {
        self.kind != ParameterKind::Buffer
    }

    /// The group of tables that it belongs to, if only some of its rows travel.
    pub fn row_group(&self) -> Option<u32> {
        match self.kind {
            ParameterKind::Rows { group } => Some(group),
            ParameterKind::Trained | ParameterKind::Buffer => None,
        }
    }

    /// Number of f32 in it; `None` if the shape overflows.
    pub fn elements(&self) -> Option<u64> {
        self.shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d))
    }
}

/// A half-open range of elements of the flat array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElementRange {
    /// Its first element, from 0.
    pub start: u64,
    /// The first element behind it.
    pub end: u64,
}

impl ElementRange {
    /// Number of elements.
    pub fn len(self) -> u64 {
        self.end - self.start
    }

    /// The part of a flat array of `elements` that shard `index` of `count` holds: contiguous, balanced, cut
    /// at cache lines (16 f32).
    pub fn of_shard(elements: u64, index: u32, count: u32) -> Self {
        const LINE: u64 = 16;
        let lines = elements.div_ceil(LINE);
        let cut = |i: u32| (lines * u64::from(i) / u64::from(count.max(1)) * LINE).min(elements);
        Self { start: cut(index), end: cut(index + 1) }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// Trained parameters whose steps differ from those of the optimizer in the same way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepGroup {
    /// How they differ.
    pub settings: StepSettings,
    /// How many parameters they are.
    pub parameters: u64,
    /// Numbers in them.
    pub elements: u64,
}

impl fmt::Display for StepGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { settings, parameters, elements } = self;
        let plural = if *parameters == 1 { "" } else { "s" };
        write!(f, "{settings} for {parameters} parameter{plural} ({elements} numbers)")
    }
}

/// The parameters in their flat order, buffers last. Everybody who holds the job's spec computes the same
/// offsets.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Layout(pub Vec<Parameter>);

impl Layout {
    /// Names of the tables of which only some rows travel.
    pub fn row_tables(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|parameter| parameter.row_group().is_some()).map(|table| table.name.as_str())
    }

    /// The trained parameters by how their steps differ from those of `optimizer`, in the order of the first
    /// of each; those that differ in nothing are left out. Cost O(parameters).
    pub fn groups(&self, optimizer: &Optimizer) -> Vec<StepGroup> {
        let mut groups: Vec<StepGroup> = Vec::new();
        let mut places = HashMap::new();
        let own = |p: &&Parameter| p.is_trained() && p.settings.differ_from(optimizer);
        for parameter in self.0.iter().filter(own) {
            let (settings, elements) = (parameter.settings, parameter.elements().unwrap_or(0));
            let place = *places.entry(settings.key()).or_insert(groups.len());
            match groups.get_mut(place) {
                Some(group) => {
                    group.parameters += 1;
                    group.elements = group.elements.saturating_add(elements);
                }
                None => groups.push(StepGroup { settings, parameters: 1, elements }),
            }
        }
        groups
    }

    /// These parameters, all of which train as the optimizer has it.
    pub fn without_settings(&self) -> Self {
        let usual = |p: &Parameter| Parameter { settings: StepSettings::default(), ..p.clone() };
        Self(self.0.iter().map(usual).collect())
    }

    /// The first number that some parameter has for itself and that lies outside its range, in words.
    pub fn settings_fault(&self) -> Option<String> {
        self.0.iter().find_map(|p| Some(format!("`{}`: {}", p.name, p.settings.fault()?)))
    }

    /// Elements of all parameters; `None` if a shape overflows or a bound is exceeded.
    pub fn elements(&self) -> Option<u64> {
        if self.0.len() > MAX_PARAMETERS {
            return None;
        }
        let total = self.0.iter().try_fold(0u64, |n, p| n.checked_add(p.elements()?))?;
        (total <= MAX_ELEMENTS).then_some(total)
    }

    /// Elements that the optimizer moves: the first of the array.
    pub fn trained_elements(&self) -> u64 {
        let trained = self.ranges().filter(|(p, _)| p.is_trained());
        trained.last().map_or(0, |(_, range)| range.end)
    }

    /// Whether no buffer comes before a trained parameter.
    pub fn is_ordered(&self) -> bool {
        self.0.is_sorted_by_key(|p| !p.is_trained())
    }

    /// Whether rows of some table travel.
    pub fn has_tables(&self) -> bool {
        self.0.iter().any(|p| p.row_group().is_some())
    }

    /// What is wrong with the tables of which rows travel, in words.
    pub fn tables_fault(&self) -> Option<String> {
        let mut seen = BTreeSet::new();
        for p in &self.0 {
            let Some(group) = p.row_group() else { continue };
            let rows = p.shape.first().copied().unwrap_or(0);
            let is_table = (1..=u64::from(u32::MAX)).contains(&rows) && p.elements().is_some_and(|n| n > 0);
            if !is_table {
                let shape = &p.shape;
                return Some(format!(
                    "`{}` of shape {shape:?} is no table of at most {} rows",
                    p.name,
                    u32::MAX
                ));
            }
            seen.insert(group);
        }
        let numbered = (0..).zip(&seen).all(|(n, group)| n == *group);
        (!numbered).then(|| "groups of tables are not numbered from 0".to_owned())
    }

    /// Where each parameter lies, in order.
    pub fn ranges(&self) -> impl Iterator<Item = (&Parameter, ElementRange)> {
        self.0.iter().scan(0, |at, p| {
            let start = *at;
            *at += p.elements().unwrap_or(0);
            Some((p, ElementRange { start, end: *at }))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_cover_everything_once_and_differ_by_a_line() {
        for elements in [1, 15, 16, 17, 4810, 1_000_003] {
            for count in [1, 2, 3, 7] {
                let parts: Vec<_> = (0..count).map(|i| ElementRange::of_shard(elements, i, count)).collect();
                assert_eq!(parts[0].start, 0);
                assert_eq!(parts.last().unwrap().end, elements);
                assert!(parts.windows(2).all(|w| w[0].end == w[1].start && w[0].start <= w[0].end));
                let (min, max) =
                    parts.iter().fold((u64::MAX, 0), |(a, b), r| (a.min(r.len()), b.max(r.len())));
                assert!(max - min <= 32, "{elements} over {count}: {min}..{max}");
            }
        }
    }

    #[test]
    fn overflowing_shapes_have_no_size() {
        let huge = Parameter::trained("w", vec![u64::MAX, 2]);
        assert_eq!(huge.elements(), None);
        assert_eq!(Layout(vec![huge]).elements(), None);
        let over = Parameter::trained("w", vec![MAX_ELEMENTS + 1]);
        assert_eq!(Layout(vec![over]).elements(), None);
    }

    #[test]
    fn trained_parameters_come_first_and_end_where_the_buffers_begin() {
        let (w, b) = (Parameter::trained("w", vec![2, 3]), Parameter::trained("b", vec![3]));
        let mean = Parameter::buffer("mean", vec![3]);
        #[rustfmt::skip]
        let cases = [
            (vec![],                                     0, true),
            (vec![w.clone(), b.clone()],                 9, true),
            (vec![w.clone(), b.clone(), mean.clone()],   9, true),
            (vec![mean.clone()],                         0, true),
            (vec![w, mean, b],                          12, false),
        ];
        for (parameters, trained, ordered) in cases {
            let layout = Layout(parameters);
            assert_eq!((layout.trained_elements(), layout.is_ordered()), (trained, ordered), "{layout:?}");
        }
    }

    #[test]
    fn tables_have_rows_and_groups_are_numbered_from_0() {
        let table = |shape: &[u64], group| Parameter::rows("t", shape.to_vec(), group);
        #[rustfmt::skip]
        let cases = [
            (vec![],                                          None),
            (vec![table(&[4, 2], 0), table(&[4], 0)],         None),
            (vec![table(&[4, 2], 1), table(&[4], 0)],         None),
            (vec![table(&[4, 2], 1)],                         Some("numbered")),
            (vec![table(&[], 0)],                             Some("no table")),
            (vec![table(&[4, 0], 0)],                         Some("no table")),
            (vec![table(&[1 << 32, 1], 0)],                   Some("no table")),
        ];
        for (parameters, want) in cases {
            let layout = Layout(parameters);
            let fault = layout.tables_fault();
            assert_eq!(fault.is_some(), want.is_some(), "{fault:?}");
            assert!(fault.iter().all(|fault| fault.contains(want.unwrap())), "{fault:?}");
            assert_eq!((layout.has_tables(), layout.is_ordered()), (!layout.0.is_empty(), true));
        }
    }

    #[test]
    fn as_many_groups_as_parameters_are_found_in_their_order() {
        let own = |n: usize| {
            let settings = StepSettings { weight_decay: None, learning_rate_factor: 2.0 + n as f32 };
            Parameter { settings, ..Parameter::trained("w", vec![1]) }
        };
        let layout = Layout((0..MAX_PARAMETERS).map(own).collect());
        let groups = layout.groups(&Optimizer::sgd());
        assert_eq!(groups.len(), MAX_PARAMETERS);
        assert!(groups.iter().zip(&layout.0).all(|(group, of)| group.settings == of.settings));
    }

    #[test]
    fn parameters_make_groups_by_how_their_steps_differ_from_the_optimizer() {
        let settings =
            |weight_decay, learning_rate_factor| StepSettings { weight_decay, learning_rate_factor };
        let (no_decay, slow) = (settings(Some(0.0), 1.0), settings(None, 0.5));
        let own = |p: Parameter, settings| Parameter { settings, ..p };
        let layout = Layout(vec![
            Parameter::trained("w", vec![7]),
            own(Parameter::trained("b", vec![3]), no_decay),
            own(Parameter::rows("t", vec![2, 2], 0), slow),
            own(Parameter::trained("c", vec![4]), no_decay),
            own(Parameter::buffer("m", vec![9]), slow),
        ]);
        let group = |settings, parameters, elements| StepGroup { settings, parameters, elements };
        let slow = group(slow, 1, 4);
        assert_eq!(slow.to_string(), "0.5 times the learning rate for 1 parameter (4 numbers)");
        assert_eq!(layout.groups(&Optimizer::adamw()), [group(no_decay, 2, 7), slow]);
        assert_eq!(layout.groups(&Optimizer::sgd()), [slow], "without decay");
        assert_eq!(layout.without_settings().groups(&Optimizer::adamw()), []);
        assert_eq!(layout.settings_fault(), None);
        let off = own(Parameter::trained("off", vec![1]), settings(None, 0.0));
        let fault = Layout(vec![off]).settings_fault().unwrap();
        assert!(fault.starts_with("`off`: learning_rate_factor = 0,"), "{fault}");
    }
}
