//! Who is asked, and how often, until a call is answered.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use syncline_rpc::{CallError, ClientServiceClient, EngineFault, InactiveReason};
use tarpc::client::RpcError;

use super::{Client, ClientError, Patience};

/// Pause between two attempts at a call.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Whether a call that was not answered as it should be may have been carried out. One that stands by carries
/// out nothing.
fn may_have_taken_effect<T>(answer: &Result<Result<T, EngineFault>, RpcError>) -> bool {
    match answer {
        Err(_) => true,
        Ok(Err(EngineFault::NotActive { why })) => !matches!(why, InactiveReason::Standby { .. }),
        Ok(Err(EngineFault::Store { .. })) => true,
        Ok(_) => false,
    }
}

impl Client {
    async fn ask<T, F>(
        &self,
        call: impl FnOnce(ClientServiceClient) -> F,
        stands_by: impl FnOnce(&T) -> Option<String>,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<Result<T, EngineFault>, RpcError>>,
    {
        let address = || self.link.addresses().to_string();
        let failed = |source| match source {
            CallError::Panicked { .. } => ClientError::Panicked(source),
            CallError::TooLarge { .. } => ClientError::TooLarge(source),
            source => ClientError::Unreachable { address: address(), source },
        };
        let answer = self.link.call_judged(call, stands_by).await.map_err(failed)?;
        self.has_met.store(true, Ordering::Relaxed);
        Ok(answer?)
    }

    /// Asks each engine once at most, until one leads.
    pub(super) async fn once<T, F>(&self, call: impl Fn(ClientServiceClient) -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<Result<T, EngineFault>, RpcError>>,
    {
        self.once_judged(call, |_| None).await
    }

    /// The same for what an engine answers that stands by, too, as `stands_by` says of the answer: that
    /// counts where no other engine gives one.
    pub(super) async fn once_judged<T, F>(
        &self,
        call: impl Fn(ClientServiceClient) -> F,
        stands_by: impl Fn(&T) -> Option<String>,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<Result<T, EngineFault>, RpcError>>,
    {
        let (mut standby, mut is_repeated) = (None, false);
        for left in (1..=self.link.addresses().count()).rev() {
            // The last one may know who leads.
            let others = left > 1;
            match self.ask(&call, &stands_by).await {
                Ok(answer) if (others || self.link.has_hint()) && stands_by(&answer).is_some() => {
                    standby = Some(answer);
                }
                Err(ClientError::Unreachable { source: CallError::Lost(lost), .. })
                    if !is_repeated && self.link.may_try_again(&lost) =>
                {
                    is_repeated = true;
                }
                // All were tried beside each other: those that hang would be waited for once more.
                Err(error) if error.was_not_asked() && self.link.all_failed() => return standby.ok_or(error),
                // Redis may answer another than this one.
                Err(error) if error.may_ask_another() && (others || self.link.has_hint()) => {}
                answered => return answered.or_else(|error| standby.ok_or(error)),
            }
        }
        self.ask(&call, &stands_by).await.or_else(|error| standby.ok_or(error))
    }

    /// Whether waiting cannot help: the one engine that was named stands by for another, which cannot be
    /// found.
    fn names_only_a_standby(&self, error: &ClientError) -> bool {
        let standby = |e: &ClientError| {
            matches!(e, ClientError::Refused(EngineFault::NotActive { why: InactiveReason::Standby { .. } }))
        };
        self.link.addresses().count() == 1 && standby(error) && !self.link.has_hint()
    }

    /// A call that may be made twice is repeated as long as this client is patient.
    pub(super) async fn retry<T, F>(&self, call: impl Fn(ClientServiceClient) -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<Result<T, EngineFault>, RpcError>>,
    {
        self.retry_for(self.patience, call).await
    }

    /// The same, as long as this.
    pub(super) async fn retry_for<T, F>(
        &self,
        patience: Patience,
        call: impl Fn(ClientServiceClient) -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<Result<T, EngineFault>, RpcError>>,
    {
        let since = tokio::time::Instant::now();
        loop {
            let error = match self.once(&call).await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let limit = patience.limit(&error, self.has_met.load(Ordering::Relaxed));
            let goes_on = limit.is_some_and(|limit| since.elapsed() < limit);
            if !goes_on || self.names_only_a_standby(&error) {
                return Err(error);
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// A call that ends something, repeated in the same way. If its answer was lost, `is_ended` says of the
    /// next one that it has done its work.
    pub(super) async fn retry_ending<F>(
        &self,
        is_ended: impl Fn(&EngineFault) -> bool,
        call: impl Fn(ClientServiceClient) -> F,
    ) -> Result<(), ClientError>
    where
        F: Future<Output = Result<Result<(), EngineFault>, RpcError>>,
    {
        let lost = AtomicBool::new(false);
        let answer = self.retry(|client| {
            let answer = call(client);
            async {
                let answer = answer.await;
                lost.fetch_or(may_have_taken_effect(&answer), Ordering::Relaxed);
                answer
            }
        });
        match answer.await {
            Err(ClientError::Refused(fault)) if lost.load(Ordering::Relaxed) && is_ended(&fault) => Ok(()),
            answer => answer,
        }
    }
}
