//! Jobs that are found by their keys, where the list of jobs is gone.

use std::collections::BTreeSet;

use syncline_scheduler::ids::JobId;

use super::{error::StoreError, redis_store::RedisStore};

/// Keys that one call looks at.
const KEYS_PER_CALL: &str = "1000";
const BEGIN: &str = "syncline:{";
const END: &str = "}:state";

impl RedisStore {
    /// Every job that has a state, by name. Looks at each key of the server once: for an engine that takes
    /// the lead and finds no list.
    pub async fn find_jobs(&self) -> Result<Vec<JobId>, StoreError> {
        let (mut found, mut cursor) = (BTreeSet::new(), "0".to_owned());
        loop {
            let words = ["SCAN", &cursor, "MATCH", "syncline:{*}:state", "COUNT", KEYS_PER_CALL];
            let (next, names): (String, Vec<Vec<u8>>) = self.query("find jobs", &words).await?;
            let job = |name: &Vec<u8>| {
                str::from_utf8(name).ok()?.strip_prefix(BEGIN)?.strip_suffix(END)?.parse().ok()
            };
            found.extend(names.iter().filter_map(job));
            if next == "0" {
                return Ok(found.into_iter().collect());
            }
            cursor = next;
        }
    }
}
