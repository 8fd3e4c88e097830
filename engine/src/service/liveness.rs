//! Drops workers and shards that have been silent for too long, and publishes in Redis who is alive.

use std::time::{Duration, Instant};

use syncline_scheduler::{
    core::Input,
    ids::{Incarnation, ShardIndex},
};
use tokio::task::JoinHandle;
use tracing::warn;

use super::{
    context::ServiceContext,
    lateness_log::{Lateness, LatenessLog},
    lead::Lead,
    options::Limits,
    role_log::RedisRoleLog,
    worker_status::WorkerStatus,
};
use crate::store::keys;

/// Time between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// A check that is later than this was late because this process was not awake; that time does not count as
/// silence.
const LATE_CHECK: Duration = Duration::from_millis(500);
/// A task that takes this many times as long as any before it is stuck.
const STALL_FACTOR: u32 = 20;
/// How often the registry in Redis is refreshed.
const REFRESH_EVERY_CHECKS: u32 = 10;

/// Checks forever.
pub(super) async fn monitor_liveness(context: ServiceContext) {
    let mut ticks = tokio::time::interval(CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last = Instant::now();
    let mut refresh: Option<JoinHandle<()>> = None;
    let mut lateness = LatenessLog::default();
    for n in 0u32.. {
        ticks.tick().await;
        let passed = last.elapsed();
        let late = passed.saturating_sub(CHECK_INTERVAL);
        last = Instant::now();
        let Ok(lead) = context.lead() else { continue };
        if late > LATE_CHECK {
            if let Some(Lateness { times, late }) = lateness.note(late, last) {
                warn!(
                    times,
                    late_ms = late.as_millis() as u64,
                    "this process was not awake; nobody counts as silent for that"
                );
            }
            lead.sessions.extend_deadlines(late);
            context.shards.extend_deadlines(late);
        }
        // While Redis takes no writes nothing is decided: ticks would only pile up.
        if lead.store_outage.cause().is_none() {
            lead.queue.tell(Input::Tick);
        }
        for status in lead.sessions.all() {
            if let Some(reason) = drop_reason(&status, &context.limits) {
                drop_worker(&context, status.worker, &reason);
            }
        }
        // Shards look for another engine meanwhile, which may decide otherwise about them.
        match lead.store_outage.lead_expired() {
            true => context.shards.extend_deadlines(passed),
            false => replace_silent_shards(&context, &lead),
        }
        // Beside the checks: a Redis that is slow to answer must not look as if this process slept.
        if n.is_multiple_of(REFRESH_EVERY_CHECKS) && refresh.as_ref().is_none_or(JoinHandle::is_finished) {
            let context = context.clone();
            refresh = Some(tokio::spawn(async move { refresh_registry(&context).await }));
        }
    }
}

/// Lets standbys serve instead of shards that are silent, or that no worker reaches, and counts as lost what
/// is silent for longer.
fn replace_silent_shards(context: &ServiceContext, lead: &Lead) {
    for index in context.shards.failovers_due(context.limits.shard_silence) {
        promote_standby(context, lead, index);
    }
    let workers = lead.sessions.all_if_cut_off();
    for index in context.shards.unreached_failovers_due(&workers, context.limits.shard_silence) {
        warn!(shard = %index, "no worker reaches the shard, which is heard: its standby is to serve");
        context.shards.lock().note_unreached(index);
        promote_standby(context, lead, index);
    }
    for shard in context.shards.all() {
        let silent = shard.seen.elapsed();
        if silent > context.limits.shard_silence {
            let (index, silent_ms) = (shard.hello.index, silent.as_millis() as u64);
            warn!(shard = %index, address = shard.hello.address, silent_ms, "shard is lost");
            let stops = context.shards.describe_stopping(index, Some(&shard.hello.address));
            let reason = match stops {
                Some(stops) => format!("the one {stops}"),
                None => format!("it was silent for {:.1} s", silent.as_secs_f64()),
            };
            // Before it may be welcomed again: jobs wait for what the loop hears of it after its loss.
            lead.queue.tell(Input::ShardGone { shard: index, reason });
            context.shards.forget(index);
        }
    }
    for shard in context.shards.take_never_served(context.limits.shard_silence) {
        let silence = context.limits.shard_silence;
        warn!(%shard, since_ms = silence.as_millis() as u64, "shard is lost: it was never there");
        let reason = format!("it was not there in the first {} s of this engine", silence.as_secs_f64());
        lead.queue.tell(Input::ShardGone { shard, reason });
    }
}

fn promote_standby(context: &ServiceContext, lead: &Lead, index: ShardIndex) {
    let (context, lead) = (context.clone(), lead.clone());
    tokio::spawn(async move {
        let log = RedisRoleLog { store: &context.store, lead: &lead };
        if let Some(address) = context.shards.promote(index, lead.epoch, &log).await {
            lead.control.shard_taken_over(index, address);
        }
    });
}

/// Why a worker must be dropped, if it must.
fn drop_reason(status: &WorkerStatus, limits: &Limits) -> Option<String> {
    if status.silent_for > limits.worker_silence {
        return Some(format!("silent for {} ms", status.silent_for.as_millis()));
    }
    let running = Duration::from_millis(status.activity.running_ms);
    let longest = Duration::from_millis(status.activity.longest_ms);
    let stuck = running > limits.stall && running > longest.saturating_mul(STALL_FACTOR);
    stuck.then(|| format!("busy with one task for {} s, without a sign that it moves", running.as_secs()))
}

/// Drops a worker: its session ends at once, the core settles the rest.
pub(super) fn drop_worker(context: &ServiceContext, worker: Incarnation, reason: &str) {
    let Ok(lead) = context.lead() else { return };
    lead.sessions.drop_before_core(worker, reason);
    // What it was never told of is known once the core hears of this.
    lead.queue.tell(Input::WorkerGone { worker, reason: reason.to_owned(), never_told: Vec::new() });
}

async fn refresh_registry(context: &ServiceContext) {
    let Ok(lead) = context.lead() else { return };
    let mut records = Vec::new();
    for status in lead.sessions.all() {
        records.push((keys::worker(status.worker), status.fields()));
    }
    for shard in context.shards.all() {
        let standby = context.shards.standby(shard.hello.index).map(|standby| standby.hello);
        let (standby, followed) = standby.map_or((String::new(), 0), |hello| (hello.address, hello.jobs));
        let fields = vec![
            ("address", shard.hello.address.clone()),
            ("count", shard.hello.count.to_string()),
            ("silent_ms", shard.seen.elapsed().as_millis().to_string()),
            ("jobs", shard.hello.jobs.to_string()),
            ("standby", standby),
            ("standby_jobs", followed.to_string()),
        ];
        records.push((keys::shard(shard.hello.index), fields));
    }
    // Soft state: while Redis is away the loop says so, and the next refresh brings everything.
    let _ = context.store.refresh(&records).await;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use syncline_scheduler::core::WorkerInfo;

    use super::*;
    use syncline_rpc::Activity;

    #[test]
    fn a_worker_is_dropped_for_silence_or_for_a_task_far_longer_than_any_before() {
        let limits = Limits {
            worker_silence: Duration::from_secs(5),
            stall: Duration::from_secs(300),
            ..Limits::default()
        };
        #[rustfmt::skip]
        let cases = [
            // silent ms, running ms, longest ms, dropped
            (5_000,         0,      0, None),
            (5_001,         0,      0, Some("silent for 5001 ms")),
            (0,       300_000,      0, None),
            (0,       300_001,      0, Some("busy with one task for 300 s, without a sign that it moves")),
            (0,       400_000, 20_000, None),
            (0,       400_001, 20_000, Some("busy with one task for 400 s, without a sign that it moves")),
        ];
        for (silent_ms, running_ms, longest_ms, dropped) in cases {
            let status = WorkerStatus {
                worker: Incarnation(1),
                about: WorkerInfo::default(),
                silent_for: Duration::from_millis(silent_ms),
                activity: Arc::new(Activity { running_ms, longest_ms, ..Activity::default() }),
                is_busy: true,
            };
            assert_eq!(
                drop_reason(&status, &limits).as_deref(),
                dropped,
                "{silent_ms} {running_ms} {longest_ms}"
            );
        }
    }
}
