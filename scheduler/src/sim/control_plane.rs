//! The engine's side of a cluster in virtual time: a core, what surrounds it, and the shards that do at once
//! what it decides.

use std::collections::VecDeque;

use super::{parameter_server::ParameterServerModel, shell::Shell};
use crate::{
    core::{Assignment, Core, Effect, Input},
    ids::{Incarnation, ShardIndex},
};

/// A core and its shards. Control costs no time.
#[derive(Debug, Clone)]
pub struct ControlPlane<S> {
    /// The engine's state machine, which decides everything.
    pub core: Core,
    /// What hands the core each input, and takes its changes.
    pub shell: S,
    /// The shards, and whoever computes plans.
    pub server: ParameterServerModel,
}

impl<S: Shell> ControlPlane<S> {
    /// With shards that hold nothing, and no workers.
    pub fn new(shards: u32, shell: S) -> Self {
        Self { core: Core::new(shards), shell, server: ParameterServerModel::new(shards) }
    }

    /// Gives the core inputs, lets the shards carry out what it decides, and so on until both are at rest.
    /// Returns what the workers are given, in its order.
    pub fn settle(
        &mut self,
        now_us: u64,
        inputs: impl IntoIterator<Item = Input>,
    ) -> Vec<(Incarnation, Assignment)> {
        let mut inbox: VecDeque<Input> = inputs.into_iter().collect();
        let mut given = Vec::new();
        while let Some(input) = inbox.pop_front() {
            for effect in self.shell.handle(&mut self.core, now_us, input) {
                match effect {
                    Effect::Assign { worker, assignment } => given.push((worker, assignment)),
                    effect => inbox.extend(self.server.carry_out(effect)),
                }
            }
            if inbox.is_empty() {
                let shards = (0..).map(ShardIndex).take(self.server.shards.len());
                inbox.extend(shards.filter_map(|shard| self.server.report_closed(shard)));
            }
        }
        given
    }
}
