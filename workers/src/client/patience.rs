//! How long a client goes on asking.

use std::time::Duration;

use super::ClientError;

/// An engine that has never answered is asked no longer: its address may be wrong.
const FIRST_CONTACT: Duration = Duration::from_secs(20);

/// How long calls that may be made twice are repeated before they fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// While no engine answers, or none leads. An engine that has never answered is given up after 20 s.
    pub engine: Duration,
    /// While Redis does not do its part.
    pub redis: Duration,
}

/// Longer than an engine or a Redis server needs to be started again.
impl Default for Patience {
    fn default() -> Self {
        Self::all(Duration::from_secs(90))
    }
}

impl Patience {
    /// For somebody who looks on: what is wrong with Redis is said at once, that seldom passes by itself.
    pub const INTERACTIVE: Self = Self { engine: FIRST_CONTACT, redis: Duration::ZERO };

    /// As long for either.
    pub const fn all(limit: Duration) -> Self {
        Self { engine: limit, redis: limit }
    }

    /// As long as either says.
    pub(super) fn or_longer(self, other: Self) -> Self {
        Self { engine: self.engine.max(other.engine), redis: self.redis.max(other.redis) }
    }

    /// How long a call is repeated that fails so; `None` if it is not repeated.
    pub(super) fn limit(self, error: &ClientError, has_met: bool) -> Option<Duration> {
        match error {
            away if away.is_away() && has_met => Some(self.engine),
            away if away.is_away() => Some(self.engine.min(FIRST_CONTACT)),
            passing if passing.is_passing() => Some(self.redis),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use syncline_rpc::{CallError, EngineFault, InactiveReason, LoadedJobs, hello::HelloError};

    use super::*;

    #[test]
    fn how_long_a_call_is_repeated_hangs_on_what_is_wrong_and_on_who_asks_table() {
        let unreachable = |source| ClientError::Unreachable { address: "a:1".into(), source };
        let refused =
            || unreachable(CallError::Hello(io::Error::from(io::ErrorKind::ConnectionRefused).into()));
        let cause = || "it hangs".to_owned();
        let store = || ClientError::from(EngineFault::Store { cause: cause() });
        let led_by_nobody =
            || EngineFault::NotActive { why: InactiveReason::Store { cause: cause() } }.into();
        let loads = |why| ClientError::from(EngineFault::NotActive { why });
        let redis_loads = || loads(InactiveReason::StoreLoading { loaded_bytes: 1, total_bytes: 2 });
        let wrong_token = || unreachable(CallError::Hello(HelloError::Token));
        let unknown = || ClientError::from(EngineFault::UnknownJob { job: "a".parse().unwrap() });
        #[rustfmt::skip]
        let cases = [
            ("the engine is away",           refused(),       true,  Some(90), Some(20)),
            ("it was never there",           refused(),       false, Some(20), Some(20)),
            ("Redis hangs",                  store(),         true,  Some(90), Some(0)),
            ("Redis lets no engine lead",    led_by_nobody(), true,  Some(90), Some(0)),
            ("the engine reads its jobs",    loads(InactiveReason::Loading(LoadedJobs::default())), true, Some(90), Some(20)),
            ("Redis reads its file",         redis_loads(),   true,  Some(90), Some(20)),
            ("the token is another one",     wrong_token(),   true,  None,     None),
            ("there is no such job",         unknown(),       true,  None,     None),
        ];
        for (name, error, has_met, program, person) in cases {
            let limit_s = |patience: Patience| patience.limit(&error, has_met).map(|limit| limit.as_secs());
            assert_eq!(limit_s(Patience::default()), program, "{name}");
            assert_eq!(limit_s(Patience::INTERACTIVE), person, "{name}");
        }
    }
}
