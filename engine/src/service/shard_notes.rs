//! What is wrong with shards: in words, and of which kind, since what helps depends on that.

use std::net::SocketAddr;

use syncline_rpc::ShardHello;

use super::{
    context::ServiceContext,
    shard_slots::{NoAnswer, ReachNote, Unanswered},
    shards::ShardEntry,
};

/// What is wrong with a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShardProblem {
    /// Its process was told to stop, and has what nobody else has.
    Stopping,
    /// It has no process.
    Missing,
    /// Its process is silent, or does not get what is sent to it.
    Unreached,
}

/// The same, in words.
#[derive(Debug)]
pub(super) struct ShardNote {
    pub problem: ShardProblem,
    pub text: String,
}

impl ServiceContext {
    /// Which shards are missing, silent, or not reached.
    pub(super) fn shard_notes(&self) -> Vec<ShardNote> {
        let unreached = self.reach_notes().into_iter().filter_map(|note| match note {
            ReachNote::OfAll(text) => Some(ShardNote { problem: ShardProblem::Unreached, text }),
            ReachNote::OfSome(_) => None,
        });
        self.unserved_notes().into_iter().chain(unreached).collect()
    }

    /// Which shards are missing, silent, or not reached by the engine.
    pub(super) fn unserved_notes(&self) -> Vec<ShardNote> {
        let known = self.shards.all();
        let note = |index| {
            let served = known.iter().find(|k| k.hello.index == index);
            let at = served.map(|shard| shard.hello.address.as_str());
            if served.is_none_or(ShardEntry::is_silent)
                && let Some(stops) = self.shards.describe_stopping(index, at)
            {
                let text = format!("parameter shard {index} {stops}");
                return Some(ShardNote { problem: ShardProblem::Stopping, text });
            }
            let Some(shard) = served else {
                let awaited = self.shards.awaited_for(index).map(|time| {
                    let time_s = time.as_secs_f64();
                    format!("; it has not come yet to this engine, which has led for {time_s:.0} s")
                });
                let text = format!("parameter shard {index} is not there{}", awaited.unwrap_or_default());
                return Some(ShardNote { problem: ShardProblem::Missing, text });
            };
            let text = if shard.is_silent() {
                format!(
                    "parameter shard {index} at {} has been silent for {:.1} s; it counts as lost after {:.0} s",
                    shard.hello.address,
                    shard.seen.elapsed().as_secs_f64(),
                    self.limits.shard_silence.as_secs_f64(),
                )
            } else {
                unanswered_note(&shard.hello, shard.unanswered_shown()?)
            };
            Some(ShardNote { problem: ShardProblem::Unreached, text })
        };
        self.shards.indices().filter_map(note).collect()
    }
}

/// What hinders a shard that reaches the engine and is not reached.
fn unanswered_note(hello: &ShardHello, order: &Unanswered) -> String {
    let (index, address, silence_s) = (hello.index, &hello.address, order.since.elapsed().as_secs_f64());
    let is_loopback = address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback());
    let guess = match (order.kind, is_loopback) {
        (NoAnswer::Refusal, _) | (NoAnswer::NoConnection, false) => String::new(),
        (_, true) => {
            format!("; {address} is reached on its own machine alone: start it with --listen IP:PORT")
        }
        (NoAnswer::Silence, false) => {
            format!("; connections to {address} may not get through, a firewall perhaps")
        }
    };
    let cause = &order.cause;
    format!(
        "parameter shard {index} announces itself at {address} and has answered no order for {silence_s:.0} s: {cause}{guess}"
    )
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use syncline_scheduler::ids::ShardIndex;

    use super::*;

    #[test]
    fn of_a_shard_that_turns_the_engine_away_its_answer_is_said_and_of_another_what_may_hinder_it() {
        let note = |address: &str, kind| {
            let (since, cause) = (Instant::now(), "[E613] another one".to_owned());
            let hello = ShardHello::alone(ShardIndex(0), 1, address.to_owned(), 1);
            unanswered_note(&hello, &Unanswered { since, cause, kind })
        };
        #[rustfmt::skip]
        let cases = [
            ("10.0.0.1:7", NoAnswer::Refusal,       "at 10.0.0.1:7 and has answered no order for 0 s: [E613] another one"),
            ("10.0.0.1:7", NoAnswer::NoConnection,  "at 10.0.0.1:7 and has answered no order for 0 s: [E613] another one"),
            ("10.0.0.1:7", NoAnswer::Silence,       "[E613] another one; connections to 10.0.0.1:7 may not get through, a firewall perhaps"),
            ("127.0.0.1:7", NoAnswer::NoConnection, "; 127.0.0.1:7 is reached on its own machine alone: start it with --listen IP:PORT"),
        ];
        for (address, kind, end) in cases {
            let note = note(address, kind);
            assert!(note.ends_with(end), "{note}");
        }
    }
}
