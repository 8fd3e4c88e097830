//! A live worker as it is shown to users.

use std::time::Duration;

use syncline_scheduler::{core::WorkerInfo, ids::Incarnation};

use crate::rpc::Activity;

/// A live worker as it is shown to users.
pub(super) struct WorkerStatus {
    pub worker: Incarnation,
    pub about: WorkerInfo,
    pub silent_for: Duration,
    pub activity: Activity,
}

impl WorkerStatus {
    /// Its hash in Redis, see docs/redis-schema.md.
    pub(super) fn fields(self) -> Vec<(&'static str, String)> {
        let holding = self.activity.holding.len() + self.activity.tasks as usize;
        vec![
            ("name", self.about.name),
            ("host", self.about.host),
            ("device", self.about.device),
            ("pid", self.about.pid.to_string()),
            ("memory_bytes", self.about.capacity.resources.memory_bytes.to_string()),
            ("gpus", self.about.capacity.resources.gpus.to_string()),
            ("holding", holding.to_string()),
            ("stopping", self.activity.stopping.to_string()),
            ("blocked_on", self.activity.blocked_on.unwrap_or_default()),
            ("running_ms", self.activity.running_ms.to_string()),
            ("silent_ms", self.silent_for.as_millis().to_string()),
        ]
    }
}
