//! Notices who has fallen silent, and shows people who is alive.

use std::time::{Duration, Instant};

use syncline_scheduler::{core::Input, ids::Incarnation};
use tracing::warn;

use super::{
    calls::{Desk, lost},
    message::Message,
    run::Limits,
    sessions::Seen,
};
use crate::store::keys;

/// How often silence is looked for.
const LOOK: Duration = Duration::from_millis(100);
/// Beyond this a look was late because this process was not awake; what it could not hear meanwhile is no silence.
const LATE: Duration = Duration::from_millis(500);
/// A task that takes this many times as long as any before it is stuck.
const STALL_FACTOR: u32 = 20;
/// How often the registry in Redis is refreshed.
const REFRESH_EVERY_LOOKS: u32 = 10;

/// Looks for ever.
pub(super) async fn watch_silence(desk: Desk) {
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last = Instant::now();
    for n in 0u32.. {
        look.tick().await;
        let late = last.elapsed().saturating_sub(LOOK);
        last = Instant::now();
        let Ok(hands) = desk.hands() else { continue };
        if late > LATE {
            warn!(
                late_ms = late.as_millis() as u64,
                "this process was not awake; nobody counts as silent for that"
            );
            hands.sessions.forgive(late);
            desk.shards.forgive(late);
        }
        // While Redis takes no writes nothing is decided: ticks would only pile up.
        if hands.trouble.get().is_none() {
            let _ = hands.queue.send(Message::Input(Input::Tick));
        }
        for seen in hands.sessions.all() {
            if let Some(reason) = overdue(&seen, &desk.limits) {
                drop_worker(&desk, seen.worker, &reason);
            }
        }
        for shard in desk.shards.all() {
            let silent = shard.seen.elapsed();
            if silent > desk.limits.shard_silence {
                let (index, silent_ms) = (shard.hello.index, silent.as_millis() as u64);
                warn!(shard = %index, address = shard.hello.address, silent_ms, "shard is lost");
                desk.shards.forget(index);
                lost(&desk, index, &format!("silent for {silent_ms} ms"));
            }
        }
        if n.is_multiple_of(REFRESH_EVERY_LOOKS) {
            refresh(&desk).await;
        }
    }
}

/// Why a worker must be dropped, if it must.
fn overdue(seen: &Seen, limits: &Limits) -> Option<String> {
    if seen.silent_for > limits.worker_silence {
        return Some(format!("silent for {} ms", seen.silent_for.as_millis()));
    }
    let running = Duration::from_millis(seen.activity.running_ms);
    let longest = Duration::from_millis(seen.activity.longest_ms);
    let stuck = running > limits.stall && running > longest.saturating_mul(STALL_FACTOR);
    stuck.then(|| format!("busy with one task for {} s, without a sign that it moves", running.as_secs()))
}

/// Drops a worker: its session ends at once, the core settles the rest.
pub(super) fn drop_worker(desk: &Desk, worker: Incarnation, reason: &str) {
    let Ok(hands) = desk.hands() else { return };
    hands.sessions.drop(worker, reason);
    let input = Input::WorkerGone { worker, reason: reason.to_owned() };
    let _ = hands.queue.send(Message::Input(input));
}

async fn refresh(desk: &Desk) {
    let Ok(hands) = desk.hands() else { return };
    let mut records = Vec::new();
    for seen in hands.sessions.all() {
        records.push((keys::worker(seen.worker), seen.fields()));
    }
    for shard in desk.shards.all() {
        let fields = vec![
            ("address", shard.hello.address.clone()),
            ("count", shard.hello.count.to_string()),
            ("silent_ms", shard.seen.elapsed().as_millis().to_string()),
        ];
        records.push((keys::shard(shard.hello.index), fields));
    }
    // Soft state: while Redis is away the loop says so, and the next refresh brings everything.
    let _ = desk.store.refresh(&records).await;
}
