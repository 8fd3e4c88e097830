//! What a worker offers to general tasks.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{FunctionId, Needs, Resources, TaskClass};

/// Slots, functions, labels, memory and GPUs of one worker. One that has no functions only trains.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// Tasks that it runs at the same time.
    pub slots: u32,
    /// Functions that its binary has.
    pub functions: BTreeSet<FunctionId>,
    /// Values by name, as it was started with: a task may ask for some of them.
    pub labels: BTreeMap<String, String>,
    /// What its tasks may take together.
    #[serde(default)]
    pub resources: Resources,
}

impl Capacity {
    /// Whether it offers nothing.
    pub fn is_none(&self) -> bool {
        self.functions.is_empty()
    }

    /// Whether a task of that class can be called here at all.
    pub fn can_run(&self, class: &TaskClass) -> bool {
        class.work.function().is_some_and(|function| self.can_call(function, &class.rules.needs))
    }

    /// Whether that function can be called here with what it needs.
    pub fn can_call(&self, function: &FunctionId, needs: &Needs) -> bool {
        needs.slots <= self.slots
            && (needs.resources.is_none() || self.resources.fits(&needs.resources) > 0)
            && self.functions.contains(function)
            && needs.labels.iter().all(|(name, value)| self.labels.get(name) == Some(value))
    }
}
