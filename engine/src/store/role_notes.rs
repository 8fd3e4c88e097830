//! What the next engine has to know of the processes of a shard: which of them the primary went on without,
//! and which took over. What the first have is old, and so is what a primary has that was there before the
//! second.

use std::{collections::BTreeMap, sync::LazyLock};

use redis::Script;
use syncline_scheduler::ids::{EngineEpoch, ShardIndex};

use super::{error::StoreError, keys, redis_store::RedisStore};

static NOTE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("role_notes.lua")));

/// One note about a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleNote {
    /// The primary goes on without the process that followed under this term.
    LetGo(u64),
    /// A process serves under this term, or is about to.
    TakenOver(u64),
}

/// The last notes of all shards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoleNotes {
    /// Terms of standbys that were let go.
    pub let_go: BTreeMap<ShardIndex, u64>,
    /// Terms of those that took over.
    pub taken_over: BTreeMap<ShardIndex, u64>,
}

impl RoleNotes {
    /// Each of them.
    pub fn all(&self) -> impl Iterator<Item = (ShardIndex, RoleNote)> {
        let let_go = self.let_go.iter().map(|(shard, term)| (*shard, RoleNote::LetGo(*term)));
        let_go.chain(self.taken_over.iter().map(|(shard, term)| (*shard, RoleNote::TakenOver(*term))))
    }
}

impl RedisStore {
    /// Notes this of a shard; of two terms the later one stays. False, and nothing is noted, if another
    /// engine leads than that of `epoch`.
    pub async fn note_role(
        &self,
        shard: ShardIndex,
        note: RoleNote,
        epoch: EngineEpoch,
    ) -> Result<bool, StoreError> {
        let (field, term) = match note {
            RoleNote::LetGo(term) => (keys::let_go(shard), term),
            RoleNote::TakenOver(term) => (keys::taken_over(shard), term),
        };
        let mut call = NOTE.prepare_invoke();
        call.key(keys::ENGINE).arg(epoch.0).arg(field).arg(term);
        self.bounded("note who serves a shard", || {
            let (call, mut connection) = (&call, self.connection());
            async move { call.invoke_async(&mut connection).await }
        })
        .await
    }

    /// What was noted last of each shard.
    pub async fn role_notes(
        &self,
        shards: impl Iterator<Item = ShardIndex>,
    ) -> Result<RoleNotes, StoreError> {
        let fields = self.hash("read who serves the shards", keys::ENGINE).await?;
        let term = |field: String| fields.get(&field)?.parse().ok();
        let mut notes = RoleNotes::default();
        for shard in shards {
            notes.let_go.extend(term(keys::let_go(shard)).map(|term: u64| (shard, term)));
            notes.taken_over.extend(term(keys::taken_over(shard)).map(|term: u64| (shard, term)));
        }
        Ok(notes)
    }
}
