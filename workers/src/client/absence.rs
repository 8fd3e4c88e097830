//! A job that was there and is not known any more: gone, or only out of sight.

use std::time::Duration;

use syncline_rpc::{EngineFault, status::EngineStatus};

use super::{Client, ClientError};

impl Client {
    /// Whether a job that was answered about so long ago may be there all the same, though the engine knows
    /// none: one that has taken the lead since may have found another Redis, by mistake and for a while. One
    /// that led before would have been told that the job is deleted.
    ///
    /// Costs a call, where `error` is E131.
    #[doc(hidden)]
    pub async fn may_come_back(&self, error: &ClientError, seen_ago: Duration) -> bool {
        if !matches!(error, ClientError::Refused(EngineFault::UnknownJob { .. })) {
            return false;
        }
        match self.engine().await {
            Ok(about) => led_for(&about).is_none_or(|led| led < seen_ago.min(self.to_wait().redis)),
            Err(error) => error.is_passing(),
        }
    }
}

/// For how long an engine has led; `None` if it does not. An epoch is the time at which it began, or a little
/// more, in milliseconds.
fn led_for(about: &EngineStatus) -> Option<Duration> {
    Some(Duration::from_millis(about.now_ms?.saturating_sub(about.epoch?.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_has_led_since_its_epoch_and_not_at_all_without_one() {
        let led_ms = |more: &[(&str, &str)]| {
            let about =
                [("version", "1"), ("address", "a:1"), ("instance", "a"), ("redis", "r"), ("shards", "1")];
            let fields =
                about.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            led_for(&EngineStatus::read(&fields.collect()).unwrap()).map(|led| led.as_millis())
        };
        assert_eq!(led_ms(&[("epoch", "e7000"), ("now_ms", "9000")]), Some(2_000));
        assert_eq!(led_ms(&[("epoch", "e9000"), ("now_ms", "7000")]), Some(0), "the clock was set back");
        assert_eq!(led_ms(&[("idle", "it is on standby")]), None);
    }
}
