//! Processes of shards that were told to stop and are not done: whoever took one of them for gone, and ended it
//! to start it anew, would lose what it alone has.

use std::time::{Duration, Instant};

use syncline_rpc::StoppingShard;
use syncline_scheduler::ids::ShardIndex;

/// They say so once a second. One that is silent for longer has ended.
const SHOWN_FOR: Duration = Duration::from_secs(5);

/// The processes, and when each said so last.
#[derive(Debug, Default)]
pub(in crate::service) struct StoppingShards(Vec<(StoppingShard, Instant)>);

impl StoppingShards {
    /// One says so.
    pub(in crate::service) fn note(&mut self, shard: StoppingShard, now: Instant) {
        self.0.retain(|(known, at)| known.boot != shard.boot && is_shown(*at, now));
        self.0.push((shard, now));
    }

    /// What a process of this shard does, in words: the one at this address, or any.
    pub(in crate::service) fn describe(
        &self,
        index: ShardIndex,
        address: Option<&str>,
        now: Instant,
    ) -> Option<String> {
        let is_meant = |shard: &StoppingShard| {
            shard.index == index && address.is_none_or(|address| shard.address == address)
        };
        let (shard, _) = self.0.iter().find(|(shard, at)| is_meant(shard) && is_shown(*at, now))?;
        Some(format!("at {}{}", shard.address, shard.describe()))
    }
}

fn is_shown(at: Instant, now: Instant) -> bool {
    now.duration_since(at) <= SHOWN_FOR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_stops_is_told_of_as_long_as_it_says_so() {
        let (begun, s0, s1) = (Instant::now(), ShardIndex(0), ShardIndex(1));
        let at = |seconds| begun + Duration::from_secs(seconds);
        let shard = |boot, problem: Option<&str>| StoppingShard {
            index: s0,
            address: format!("a:{boot}"),
            boot,
            problem: problem.map(str::to_owned),
        };
        let mut stopping = StoppingShards::default();
        assert_eq!(stopping.describe(s0, None, begun), None);
        stopping.note(shard(1, None), begun);
        let writes = "at a:1 stops, and writes its jobs to its disk";
        assert_eq!(stopping.describe(s0, None, begun).as_deref(), Some(writes));
        stopping.note(shard(1, Some("[E428] full")), at(1));
        let held_up = "at a:1 stops, and is held up: [E428] full";
        assert_eq!(stopping.describe(s0, Some("a:1"), at(6)).as_deref(), Some(held_up));
        for (index, address, seconds) in [(s1, None, 6), (s0, Some("a:2"), 6), (s0, None, 7)] {
            assert_eq!(stopping.describe(index, address, at(seconds)), None, "{index} {address:?}");
        }
        stopping.note(shard(2, None), at(7));
        assert_eq!(stopping.0.len(), 1, "who has ended is forgotten");
    }
}
