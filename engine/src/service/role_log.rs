//! Who serves a shard, noted in Redis before anybody acts on it: the next engine may hear of the processes in
//! another order.

use std::time::Duration;

use syncline_scheduler::ids::ShardIndex;
use tokio::time::timeout;
use tracing::warn;

use super::lead::Lead;
use crate::store::{RedisStore, RoleNote};

/// How long Redis may take: the shard waits three seconds for its answer.
const NOTE_TIMEOUT: Duration = Duration::from_secs(1);

/// Where it is noted.
pub(super) trait RoleLog: Sync {
    /// Notes this for good; false: it is not known to be noted, or another engine leads.
    fn note(&self, shard: ShardIndex, note: RoleNote) -> impl Future<Output = bool> + Send;
}

/// Redis, while this engine leads.
pub(super) struct RedisRoleLog<'a> {
    pub store: &'a RedisStore,
    pub lead: &'a Lead,
}

impl RoleLog for RedisRoleLog<'_> {
    async fn note(&self, shard: ShardIndex, note: RoleNote) -> bool {
        if self.lead.store_outage.takes_nothing() {
            return false;
        }
        let noted = timeout(NOTE_TIMEOUT, self.store.note_role(shard, note, self.lead.epoch)).await;
        let done = matches!(noted, Ok(Ok(true)));
        if !done {
            warn!(%shard, ?note, ?noted, "nothing is decided about the processes of a shard: Redis has not confirmed that this engine leads");
        }
        done
    }
}
