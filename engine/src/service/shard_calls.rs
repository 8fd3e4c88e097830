//! Calls to the processes that serve shards, and to those that follow them.

use std::{
    fmt, io,
    time::{Duration, Instant},
};

use syncline_rpc::{CallError, Cause, EngineFault, Reconnecting, ShardClient, ShardFault, hello::HelloError};
use syncline_scheduler::ids::ShardIndex;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::{
    shard_slots::{FailedAfter, NoAnswer, ShardSlots, Unanswered},
    shards::{ShardConnections, ShardDirectory, ShardEntry},
};

/// Pause between two tries to reach a shard.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// A process that has said nothing for so long answers nobody who waits: it announces itself twice a second.
const HUNG_SILENCE: Duration = Duration::from_secs(5);
/// Between two checks whether it is silent.
const SILENCE_INTERVAL: Duration = Duration::from_millis(500);

impl ShardDirectory {
    async fn client(&self, index: ShardIndex) -> (u64, ShardConnections) {
        self.until(|known| known.primary(index).map(|k| (k.hello.boot, k.client.clone()))).await
    }

    /// Returns when another process serves the shard.
    async fn replaced(&self, index: ShardIndex, boot: u64) {
        let is_another = |now: &ShardEntry| now.hello.boot != boot;
        self.until(|known| known.primary(index).is_some_and(is_another).then_some(())).await;
    }

    /// Returns when nobody serves the shard: it was never there, or is lost.
    pub(super) async fn vacant(&self, index: ShardIndex) {
        self.until(|known| known.primary(index).is_none().then_some(())).await;
    }

    /// Calls one shard, again and again until it answers, whatever process serves it. Only for calls that may
    /// be repeated.
    pub(super) async fn call<T, F>(&self, index: ShardIndex, call: impl Fn(ShardClient) -> F) -> T
    where
        F: Future<Output = Result<T, tarpc::client::RpcError>>,
    {
        self.call_over(|connections| connections.orders, index, call).await
    }

    /// The same for a question that the shard keeps open until there is news.
    pub(super) async fn poll<T, F>(&self, index: ShardIndex, call: impl Fn(ShardClient) -> F) -> T
    where
        F: Future<Output = Result<T, tarpc::client::RpcError>>,
    {
        self.call_over(|connections| connections.polls, index, call).await
    }

    async fn call_over<T, F>(
        &self,
        over: impl Fn(ShardConnections) -> Reconnecting<ShardClient>,
        index: ShardIndex,
        call: impl Fn(ShardClient) -> F,
    ) -> T
    where
        F: Future<Output = Result<T, tarpc::client::RpcError>>,
    {
        let mut unanswered = None;
        loop {
            let (boot, connections) = self.client(index).await;
            let client = over(connections);
            unanswered.take_if(|order: &mut UnansweredOrder<'_>| order.boot != boot);
            let answer = tokio::select! {
                answer = client.call(&call) => answer,
                // What the other one would still answer is of no use, and it may be stuck.
                () = self.replaced(index, boot) => continue,
            };
            match answer {
                Ok(value) => {
                    if let Some(orders) = self.lock().unanswered_mut(index, boot) {
                        orders.answered();
                    }
                    return value;
                }
                Err(error) => {
                    let (since, cause) = (Instant::now(), describe(&error));
                    debug!(shard = %index, error = cause, "shard does not answer yet");
                    let outcome = Unanswered { since, cause, kind: NoAnswer::of(&error) };
                    match &unanswered {
                        None => unanswered = UnansweredOrder::new(self, index, boot, outcome),
                        Some(order) => order.failed_again(outcome),
                    }
                }
            }
            tokio::select! {
                () = sleep(RETRY_PAUSE) => {}
                () = self.replaced(index, boot) => {}
            }
        }
    }

    /// Calls one shard once, if it is there.
    pub(super) async fn call_if_present<T, F>(
        &self,
        index: ShardIndex,
        call: impl FnOnce(ShardClient) -> F,
    ) -> Option<Result<T, CallError>>
    where
        F: Future<Output = Result<T, tarpc::client::RpcError>>,
    {
        self.call_holder(|slots| slots.primary(index), call).await
    }

    /// Calls the process that follows a shard once, if there is one.
    pub(super) async fn call_standby<T, F>(
        &self,
        index: ShardIndex,
        call: impl FnOnce(ShardClient) -> F,
    ) -> Option<Result<T, CallError>>
    where
        F: Future<Output = Result<T, tarpc::client::RpcError>>,
    {
        self.call_holder(|slots| slots.standby(index), call).await
    }

    /// Calls one process once, if it is there.
    async fn call_holder<T, F>(
        &self,
        find: impl FnOnce(&ShardSlots<ShardConnections>) -> Option<&ShardEntry>,
        call: impl FnOnce(ShardClient) -> F,
    ) -> Option<Result<T, CallError>>
    where
        F: Future<Output = Result<T, tarpc::client::RpcError>>,
    {
        let client = find(&self.lock()).map(|holder| holder.client.orders.clone())?;
        Some(client.call(call).await)
    }

    /// Lets a shard do once what somebody waits for, and then the process that follows it, if there is one:
    /// what that has is there twice, and `what` it keeps, if it does not do it, is told in the log. Fails
    /// if the shard is not there, or does not do it.
    pub(super) async fn ask_both<T: fmt::Debug, F>(
        &self,
        shard: ShardIndex,
        what: &str,
        call: impl Fn(ShardClient) -> F,
    ) -> Result<T, EngineFault>
    where
        F: Future<Output = Result<Result<T, ShardFault>, tarpc::client::RpcError>>,
    {
        let failed = |cause: Cause| EngineFault::Shard { shard, cause };
        let answer = tokio::select! {
            answer = self.call_if_present(shard, &call) => answer.ok_or_else(|| self.missing_fault())?,
            silence = self.silence_of(|slots| slots.primary(shard)) => return Err(failed(silence.into())),
        };
        let done = answer
            .map_err(|e| failed(Cause::new(e.code(), &describe(&e))))?
            .map_err(|fault| failed(fault.cause()))?;
        let kept_because = tokio::select! {
            answer = self.call_standby(shard, call) => match answer {
                None | Some(Ok(Ok(_))) => None,
                failed => Some(format!("{failed:?}")),
            },
            silence = self.silence_of(|slots| slots.standby(shard)) => Some(silence),
        };
        if let Some(cause) = kept_because {
            warn!(%shard, cause, "the standby of the shard keeps {what}");
        }
        Ok(done)
    }

    /// Returns once a process that is asked something has said nothing for so long that it hangs: whoever
    /// waits is not kept for as long as an answer may take.
    async fn silence_of(
        &self,
        find: impl Fn(&ShardSlots<ShardConnections>) -> Option<&ShardEntry>,
    ) -> String {
        loop {
            sleep(SILENCE_INTERVAL).await;
            let silent_for = find(&self.lock()).map(|holder| holder.seen.elapsed());
            if let Some(silent_for) = silent_for.filter(|silent_for| *silent_for > HUNG_SILENCE) {
                return format!("it has been silent for {:.1} s", silent_for.as_secs_f64());
            }
        }
    }
}

/// An order that a process has not answered, as long as it is repeated.
struct UnansweredOrder<'a> {
    shards: &'a ShardDirectory,
    index: ShardIndex,
    boot: u64,
    failed: FailedAfter,
}

impl<'a> UnansweredOrder<'a> {
    /// It has failed for the first time; `None` if another process serves by now.
    fn new(shards: &'a ShardDirectory, index: ShardIndex, boot: u64, outcome: Unanswered) -> Option<Self> {
        let failed = shards.lock().unanswered_mut(index, boot)?.failed(outcome);
        Some(Self { shards, index, boot, failed })
    }

    fn failed_again(&self, outcome: Unanswered) {
        if let Some(orders) = self.shards.lock().unanswered_mut(self.index, self.boot) {
            orders.failed_again(self.failed, outcome);
        }
    }
}

impl Drop for UnansweredOrder<'_> {
    fn drop(&mut self) {
        if let Some(orders) = self.shards.lock().unanswered_mut(self.index, self.boot) {
            orders.given_up(self.failed);
        }
    }
}

/// Why a call did not come through, in words.
pub(super) fn describe(error: &CallError) -> String {
    match error {
        CallError::Lost(cause) => format!("{error}: {cause}"),
        CallError::Hello(HelloError::Io(cause)) => format!("{error}: {cause}"),
        other => other.to_string(),
    }
}

impl NoAnswer {
    fn of(error: &CallError) -> Self {
        match error {
            CallError::Lost(_) => Self::Silence,
            CallError::Hello(HelloError::Io(cause)) if cause.kind() == io::ErrorKind::TimedOut => {
                Self::Silence
            }
            CallError::Hello(HelloError::Io(_)) => Self::NoConnection,
            _ => Self::Refusal,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::TcpListener,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use syncline_rpc::{DigestRange, ShardHello, ShardResponse, Token, within};
    use syncline_scheduler::ids::EngineEpoch;
    use tokio::{sync::Notify, time::timeout};

    use super::{
        super::fake_shard::{self, EPOCH, token},
        *,
    };

    #[test]
    fn a_port_where_nobody_listens_is_told_from_a_way_on_which_nothing_comes_back() {
        let of = |kind| NoAnswer::of(&CallError::Hello(HelloError::Io(io::Error::from(kind))));
        assert_eq!(of(io::ErrorKind::ConnectionRefused), NoAnswer::NoConnection);
        assert_eq!(of(io::ErrorKind::TimedOut), NoAnswer::Silence);
    }

    #[tokio::test]
    async fn what_came_of_an_order_is_known_while_it_is_repeated() {
        let hello = fake_shard::start(0, |_| unreachable!("nothing is asked")).await;
        let directory = ShardDirectory::new(1, Token::generate());
        directory.lock().announce(&hello, None, Instant::now(), || directory.reach(&hello));
        let ask = |c: ShardClient| async move {
            c.list_jobs(within(Duration::from_secs(60)), EngineEpoch(1)).await
        };
        let order = directory.call(hello.index, ask);
        let unanswered = async {
            loop {
                let order =
                    directory.lock().primary(hello.index).and_then(|shard| shard.unanswered.note().cloned());
                match order {
                    Some(order) => return order,
                    None => tokio::task::yield_now().await,
                }
            }
        };
        let unanswered = tokio::select! {
            _ = order => unreachable!("the token is another one"),
            unanswered = unanswered => unanswered,
        };
        assert!(
            unanswered.kind == NoAnswer::Refusal && unanswered.cause.starts_with("[E123]"),
            "{unanswered:?}"
        );
    }

    #[tokio::test]
    async fn an_order_waits_behind_none_of_the_questions_that_a_thousand_jobs_keep_open() {
        let held = |_| ShardResponse::ListJobs(Ok(Vec::new()));
        let (control, _inbox) = fake_shard::control_with(0, held).await;
        let (asked, asked_by) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        for _ in 0..1_001 {
            let (shards, asked, asked_by) = (control.shards.clone(), asked.clone(), asked_by.clone());
            tokio::spawn(async move {
                let stays_open = |_: ShardClient| {
                    if asked.fetch_add(1, Ordering::Relaxed) + 1 == 1_000 {
                        asked_by.notify_one();
                    }
                    std::future::pending::<Result<(), tarpc::client::RpcError>>()
                };
                shards.poll(ShardIndex(0), stays_open).await;
            });
        }
        asked_by.notified().await;
        let held = |c: ShardClient| async move { c.list_jobs(within(Duration::from_secs(60)), EPOCH).await };
        let held = timeout(Duration::from_secs(30), control.shards.call(ShardIndex(0), held)).await;
        assert_eq!(held.expect("it waits for no question to end"), Ok(Vec::new()));
    }

    #[tokio::test]
    async fn who_asks_a_shard_that_hangs_is_told_so_and_not_kept_for_as_long_as_an_answer_may_take() {
        // Connections are made, and nobody greets.
        let hung = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let directory = ShardDirectory::new(1, token());
        let hello = ShardHello::alone(ShardIndex(0), 1, hung.local_addr().unwrap().to_string(), 1);
        let long_ago = Instant::now().checked_sub(Duration::from_secs(100)).unwrap();
        directory.lock().announce(&hello, None, long_ago, || directory.reach(&hello));
        let collect = |c: ShardClient| async move {
            c.collect(within(Duration::from_secs(60)), EngineEpoch(1), DigestRange::default(), Vec::new(), 0)
                .await
        };
        let refused = directory.ask_both(ShardIndex(0), "blobs", collect).await.unwrap_err().to_string();
        assert!(refused.contains("s0"), "{refused}");
        let silent_s =
            refused.split_once("it has been silent for ").and_then(|(_, rest)| rest.split_once(" s"));
        assert!(silent_s.is_some_and(|(s, _)| s.parse::<f64>().unwrap() >= 100.0), "{refused}");
    }
}
