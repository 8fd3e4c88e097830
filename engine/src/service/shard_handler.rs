//! Answers the announcements of shards.

use syncline_scheduler::ids::EngineEpoch;
use tarpc::context::Context;
use tracing::{info, warn};

use super::{context::ServiceContext, shards::Announcement};
use crate::rpc::{EngineFault, ShardHello, ShardRegistry};

/// Serves one shard's connection.
#[derive(Clone)]
pub(super) struct ShardHandler(pub ServiceContext);

impl ShardRegistry for ShardHandler {
    async fn announce(self, _: Context, hello: ShardHello) -> Result<EngineEpoch, EngineFault> {
        let expected = self.0.shards.count();
        if hello.count != expected || hello.index.0 >= expected {
            return Err(EngineFault::MissingShards { present: hello.count, expected });
        }
        let (index, address) = (hello.index, hello.address.clone());
        // Only the active engine keeps track of shards, and this one may be on standby.
        let dispatcher = self.0.dispatcher()?;
        let epoch = dispatcher.epoch;
        match self.0.shards.announce(hello, epoch).await {
            Announcement::Known => {}
            Announcement::Taken(holder) => {
                warn!(shard = %index, address, holder, "a second process announces the index of a shard that answers");
                return Err(EngineFault::ShardTaken { shard: index, address: holder });
            }
            Announcement::New => {
                info!(shard = %index, address, "shard is there");
                dispatcher.query_held_jobs(index);
                dispatcher.broadcast_addresses();
            }
        }
        Ok(epoch)
    }
}
