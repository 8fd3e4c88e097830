//! A Redis that holds the jobs of another cluster: whoever begins on it with other shards has nothing of what
//! these jobs have trained, and would end them.
//!
//! Redis says which engine led last, and a cluster of `up` knows the names of its engines.

use syncline_engine::store::{LastLeader, RedisStore, StoreError};
use syncline_scheduler::ids::JobId;

use super::{
    saved_redis::SavedRedis,
    state_dir::{INSTANCE, SavedAddresses},
};
use crate::cli::{CliError, Failure, count};

/// Jobs that are named.
const NAMED: usize = 3;

/// What of other clusters there is in Redis.
pub(super) struct JobsOfOthers {
    leader: LastLeader,
    jobs: Vec<JobId>,
}

impl JobsOfOthers {
    /// Looks for jobs of another cluster than that of `saved` in the Redis that is `told`.
    pub(super) async fn find(
        store: &RedisStore,
        saved: &SavedAddresses,
        told: &SavedRedis,
    ) -> Result<Option<Self>, StoreError> {
        let leader = store.last_leader().await?;
        let Some(leader) = leader.filter(|leader| is_of_another(&leader.instance, saved, told)) else {
            return Ok(None);
        };
        let jobs = store.left_jobs().await?;
        Ok((!jobs.is_empty()).then_some(Self { leader, jobs }))
    }

    pub(super) fn refuse(self, told: &SavedRedis) -> Failure {
        let named: Vec<&str> = self.jobs.iter().take(NAMED).map(JobId::as_str).collect();
        let more = if self.jobs.len() > NAMED { ", ..." } else { "" };
        let jobs = format!("{} ({}{more})", count(self.jobs.len() as u32, "job"), named.join(", "));
        let LastLeader { instance, address } = self.leader;
        CliError::JobsOfOthers { redis: told.to_string(), jobs, instance, address }.into()
    }
}

/// Whether the engine of this name led for another cluster. One that was started by hand may stand by for
/// this cluster as well as for any other: it is taken for one of this where this has used the Redis before.
fn is_of_another(leader: &str, saved: &SavedAddresses, told: &SavedRedis) -> bool {
    if leader == saved.instance || leader == saved.second_instance() {
        return false;
    }
    // An earlier release did not write down which Redis it was.
    let was_here = match &saved.redis {
        Some(before) => before == told,
        None => saved.engine.is_some(),
    };
    is_of_up(leader) || !was_here
}

/// Whether `up` gave that name, and no host is called so.
fn is_of_up(leader: &str) -> bool {
    let number = leader.strip_prefix(INSTANCE).map(|rest| rest.strip_suffix("-b").unwrap_or(rest));
    number.is_some_and(|number| number.len() == 16 && number.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_jobs_they_are_table() {
        let here = SavedRedis::of(Some("redis://db/1"));
        let elsewhere = SavedRedis::of(Some("redis://db/2"));
        let engine = Some(([127, 0, 0, 1], 7461).into());
        let new = SavedAddresses { instance: "up-0000000000000001".into(), ..SavedAddresses::default() };
        let used = |redis| SavedAddresses { redis, engine, ..new.clone() };
        #[rustfmt::skip]
        let cases = [
            // Who led last, what is saved, whether it is another cluster.
            ("a new state directory",          "up-0000000000000002",    new.clone(),                 true),
            ("who started by hand, new",       "host-1-2",               new.clone(),                 true),
            ("its own engine",                 "up-0000000000000001",    used(Some(here.clone())),    false),
            ("its second one",                 "up-0000000000000001-b",  used(Some(here.clone())),    false),
            ("it did not get ready before",    "up-0000000000000001",    new.clone(),                 false),
            ("taken over by another since",    "up-0000000000000002-b",  used(Some(here.clone())),    true),
            ("by hand, on a host up-2",        "up-2-9-2",               used(Some(here.clone())),    false),
            ("a standby started by hand",      "host-1-2",               used(Some(here.clone())),    false),
            ("by hand, and elsewhere before",  "host-1-2",               used(Some(elsewhere)),       true),
            ("by hand, earlier release",       "host-1-2",               used(None),                  false),
        ];
        for (what, leader, saved, is_other) in cases {
            assert_eq!(is_of_another(leader, &saved, &here), is_other, "{what}");
        }
    }
}
