//! The functions and settings of a user's worker.

use std::{collections::BTreeMap, process::ExitCode};

use serde::{Serialize, de::DeserializeOwned};

use super::entry;
use crate::{
    client::Cluster,
    functions::{AsyncTaskFunction, Function, RegisteredTwice, Registry, TaskFunction},
    worker::WorkerOptions,
};

/// A worker in a program of the user's own.
///
/// ```no_run
/// use std::process::ExitCode;
/// # use syncline_workers::{functions::Function, worker::Worker};
/// const ADD: Function<(u64, u64), u64> = Function::new("add");
///
/// fn main() -> ExitCode {
///     Worker::builder().register(ADD, |a: u64, b: u64| a + b).main()
/// }
/// ```
#[derive(Debug)]
pub struct Worker;

impl Worker {
    /// One without functions, which then are registered.
    pub fn builder() -> WorkerBuilder {
        WorkerBuilder::default()
    }
}

/// A worker for general tasks in the making, see [`Worker::builder`].
#[derive(Debug, Default)]
#[must_use]
pub struct WorkerBuilder {
    registry: Registry,
    /// The first function that could not be registered.
    refused: Option<RegisteredTwice>,
    slots: Option<u32>,
    trainings: Option<u32>,
    labels: BTreeMap<String, String>,
    memory_bytes: Option<u64>,
}

impl WorkerBuilder {
    /// Adds a function, see [`Registry::register`].
    pub fn register<I, O, Shape, F>(mut self, function: Function<I, O>, f: F) -> Self
    where
        I: DeserializeOwned,
        O: Serialize,
        F: TaskFunction<I, O, Shape>,
    {
        let registered = self.registry.register(function, f);
        self.refused = self.refused.or(registered.err());
        self
    }

    /// Adds an async function, see [`Registry::register_async`].
    pub fn register_async<I, O, Shape, F>(mut self, function: Function<I, O>, f: F) -> Self
    where
        I: DeserializeOwned,
        O: Serialize,
        F: AsyncTaskFunction<I, O, Shape>,
    {
        let registered = self.registry.register_async(function, f);
        self.refused = self.refused.or(registered.err());
        self
    }

    /// Tasks that run at the same time; without this as many as the machine has cores. `--slots` comes first.
    pub fn slots(mut self, slots: u32) -> Self {
        self.slots = Some(slots);
        self
    }

    /// Jobs that it trains for at the same time, where it trains; without this one. `--trainings` comes
    /// first.
    pub fn trainings(mut self, trainings: u32) -> Self {
        self.trainings = Some(trainings);
        self
    }

    /// Memory that tasks may take together, see
    /// [`CallOptions::memory`](crate::functions::CallOptions::memory); without this that of the machine,
    /// or what the control group of the process allows. `--memory` comes first.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory_bytes = Some(bytes);
        self
    }

    /// Something that tasks may ask for, see [`CallOptions::label`](crate::functions::CallOptions::label).
    /// `--label` comes first.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(name.into(), value.into());
        self
    }

    /// The settings, for a program that calls [`run`](crate::worker::run) itself.
    ///
    /// # Errors
    /// E447 if two functions have one name.
    pub fn options(self, cluster: Cluster) -> Result<WorkerOptions, RegisteredTwice> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        let mut options = WorkerOptions::for_calls(cluster, self.registry);
        options.slots = self.slots.unwrap_or(options.slots);
        options.trainings = self.trainings.unwrap_or(options.trainings);
        options.labels = self.labels;
        options.memory_bytes = self.memory_bytes.unwrap_or(options.memory_bytes);
        Ok(options)
    }

    /// The whole program: reads its flags (`--help` lists them), works until it is told to end, and logs to
    /// stderr. Exit codes are those of the command `syncline`. With `--device` it ends the process itself
    /// rather than return: a thread may still be in ONNX Runtime, which must not be taken down under it.
    pub fn main(self) -> ExitCode {
        entry::main(self)
    }
}
