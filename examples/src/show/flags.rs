//! Flags that all examples have.

use std::{path::PathBuf, str::FromStr};

use syncline::{Device, InvalidPolicy, PolicySpec};

/// Flags that all examples have.
#[derive(Debug, clap::Args)]
pub struct Flags {
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(super) workers: u32,
    /// How much slower each worker is; the last value holds for the remaining workers.
    #[arg(long, value_delimiter = ',', default_value = "1,1,1,2.5")]
    pub(super) slowdown: Vec<f64>,
    /// A Redis server to use instead of one of our own.
    #[arg(long, env = "SYNCLINE_REDIS")]
    pub(super) redis: Option<String>,
    #[arg(long, default_value_t = 0)]
    pub(super) seed: u64,
    /// What the workers compute on: cpu, or cuda:N for an NVIDIA GPU, counted from 0.
    #[arg(long, default_value_t)]
    pub(super) device: Device,
    /// Keep the trained weights here, as safetensors.
    #[arg(long)]
    pub(super) save: Option<PathBuf>,
    /// Print one JSON object instead of the report.
    #[arg(long)]
    pub(super) json: bool,
}

/// Flags whose defaults differ from example to example.
#[derive(Debug, Clone)]
pub struct Extent {
    /// When workers meet; the report names it as the user did.
    pub policy: Policy,
    /// Passes over the training samples.
    pub epochs: u32,
    /// Least time of an iteration on a whole batch before slowdown, the rest slept after compute; 0: full
    /// speed.
    pub step_ms: u64,
}

/// A policy, and how the user spelt it.
#[derive(Debug, Clone)]
pub struct Policy {
    pub(super) text: String,
    pub(super) spec: PolicySpec,
}

impl FromStr for Policy {
    type Err = InvalidPolicy;

    fn from_str(text: &str) -> Result<Self, InvalidPolicy> {
        Ok(Self { text: text.to_owned(), spec: text.parse()? })
    }
}
