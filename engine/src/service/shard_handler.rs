//! Answers the announcements of shards.

use syncline_rpc::{EngineFault, ReplicaRole, ShardHello, ShardOrders, ShardRegistry};
use tarpc::context::Context;
use tracing::{info, warn};

use super::{context::ServiceContext, shards::Announcement};

/// Serves one shard's connection.
#[derive(Clone)]
pub(super) struct ShardHandler(pub ServiceContext);

impl ShardRegistry for ShardHandler {
    async fn announce(self, _: Context, hello: ShardHello) -> Result<ShardOrders, EngineFault> {
        let expected = self.0.shards.count();
        if hello.count != expected || hello.index.0 >= expected {
            return Err(EngineFault::MissingShards { present: hello.count, expected });
        }
        let (index, address) = (hello.index, hello.address.clone());
        // Only the active engine keeps track of shards, and this one may be on standby.
        let dispatcher = self.0.dispatcher()?;
        let epoch = dispatcher.epoch;
        match self.0.shards.announce(hello, epoch).await {
            Announcement::Accepted { role, peer, new, taken_over } => {
                if let Some(by) = taken_over {
                    dispatcher.shard_taken_over(index, by);
                }
                match role {
                    ReplicaRole::Primary { .. } if new => {
                        info!(shard = %index, address, "shard is there");
                        dispatcher.shard_came(index);
                    }
                    ReplicaRole::Standby { .. } if new => {
                        info!(shard = %index, address, "a second process follows the shard");
                    }
                    _ => {}
                }
                Ok(ShardOrders { epoch, role, peer, lead_expired: dispatcher.store_outage.lead_expired() })
            }
            Announcement::Taken(holder) => {
                warn!(shard = %index, address, holder, "a process announces the index of shards that answer");
                Err(EngineFault::ShardTaken { shard: index, address: holder })
            }
        }
    }
}
