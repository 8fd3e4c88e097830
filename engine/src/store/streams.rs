//! Streams of a job, as they are read.

use std::collections::BTreeMap;

use syncline_rpc::{StreamCursor, StreamEntry};

use super::{error::StoreError, redis_store::RedisStore};

impl RedisStore {
    /// What was added to one of our bounded streams after an entry, oldest first; without one, everything.
    pub async fn stream(
        &self,
        op: &'static str,
        key: &str,
        after: Option<StreamCursor>,
    ) -> Result<Vec<StreamEntry>, StoreError> {
        type Raw = Vec<(String, BTreeMap<Vec<u8>, Vec<u8>>)>;
        let from = after.map_or_else(|| "-".to_owned(), |after| format!("({after}"));
        let entries: Raw = self
            .bounded(op, || {
                let (from, mut c) = (from.clone(), self.connection());
                async move { redis::cmd("XRANGE").arg(key).arg(from).arg("+").query_async(&mut c).await }
            })
            .await?;
        // For people: bytes that are no text are replaced.
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let entry = |(id, fields): (String, BTreeMap<Vec<u8>, Vec<u8>>)| {
            let fields = fields.into_iter().map(|(name, value)| (text(name), text(value))).collect();
            Some(StreamEntry { at: id.parse().ok()?, fields })
        };
        Ok(entries.into_iter().filter_map(entry).collect())
    }
}
