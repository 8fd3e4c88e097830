//! A large graph, read in pieces: for those who look for something in it and have time.

use syncline_scheduler::ids::JobId;

use super::{error::StoreError, keys::JobKeys, redis_store::RedisStore, stored_job::text};

/// Parts of a graph that one call asks for: each may have some hundred KB. Redis serves nobody else
/// meanwhile.
const PARTS_PER_CALL: usize = 4;
/// Values that one call asks for, of which there are as many as tasks: each has at most some 16 KB, most a
/// few bytes.
const VALUES_PER_CALL: usize = 256;

impl RedisStore {
    /// This server over a connection of its own: answers that are large hold up none that others wait for.
    pub async fn connect_apart(&self) -> Result<Self, StoreError> {
        Self::connect(self.address()).await
    }

    /// The spec of a job; empty if it has no keys.
    pub async fn read_spec(&self, job: &JobId) -> Result<String, StoreError> {
        let state = JobKeys::new(job).state;
        let spec: Option<Vec<u8>> = self.query("read spec", &["HGET", &state, "spec"]).await?;
        text(spec.unwrap_or_default())
    }

    /// Shows `look` everything in which a job of general tasks may name a blob: values, classes, tasks, and
    /// the values once more. Not as of one commit: what comes or goes meanwhile may be seen or not. What
    /// a value names and goes on into another value, or into an argument of a new task, is seen in the
    /// one or in the other, unless it moves again and again.
    pub async fn scan_graph(&self, job: &JobId, mut look: impl FnMut(&[u8])) -> Result<(), StoreError> {
        let JobKeys { classes, graph, values, .. } = JobKeys::new(job);
        let values = (&values, VALUES_PER_CALL);
        for (key, per_call) in [values, (&classes, PARTS_PER_CALL), (&graph, PARTS_PER_CALL), values] {
            let (mut cursor, count) = ("0".to_owned(), per_call.to_string());
            loop {
                let words = ["HSCAN", key, &cursor, "COUNT", &count];
                let (next, fields): (String, Vec<Vec<u8>>) = self.query("scan graph", &words).await?;
                fields.chunks_exact(2).for_each(|field| look(&field[1]));
                if next == "0" {
                    break;
                }
                cursor = next;
            }
        }
        Ok(())
    }
}
