//! Which processes that followed a shard its primary went on without: what they have is old, whoever leads next.

use std::{collections::BTreeMap, sync::LazyLock};

use redis::Script;
use syncline_scheduler::ids::{EngineEpoch, ShardIndex};

use super::{error::StoreError, keys, redis_store::RedisStore};

static LET_GO: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("let_go.lua")));

impl RedisStore {
    /// Notes that the primary of a shard goes on without the process that followed under this term. False, and nothing is
    /// noted, if another engine leads than that of `epoch`.
    pub async fn note_let_go(
        &self,
        shard: ShardIndex,
        term: u64,
        epoch: EngineEpoch,
    ) -> Result<bool, StoreError> {
        let mut call = LET_GO.prepare_invoke();
        call.key(keys::ENGINE).arg(epoch.0).arg(keys::let_go(shard)).arg(term);
        self.bounded("let a standby go", || {
            let (call, mut connection) = (&call, self.connection());
            async move { call.invoke_async(&mut connection).await }
        })
        .await
    }

    /// The last term of each shard that was noted so.
    pub async fn let_go(
        &self,
        shards: impl Iterator<Item = ShardIndex>,
    ) -> Result<BTreeMap<ShardIndex, u64>, StoreError> {
        let fields = self.hash("read who was let go", keys::ENGINE).await?;
        let term = |shard| Some((shard, fields.get(&keys::let_go(shard))?.parse().ok()?));
        Ok(shards.filter_map(term).collect())
    }
}
