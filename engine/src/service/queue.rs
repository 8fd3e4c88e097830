//! The queue of the decision loop. Callers wait for room in it: however many there are and however fast they
//! send, what waits for the loop is bounded, and the wait reaches whoever submits or reports.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};

use syncline_rpc::{EngineFault, InactiveReason};
use syncline_scheduler::core::{Core, Input};
use tokio::sync::{
    OwnedSemaphorePermit, Semaphore,
    mpsc::{self, error::SendError},
    oneshot,
};

use super::message::{Message, places};

/// Requests of callers that may wait for the loop at the same time; each general task and each KiB of values
/// that one brings counts as one more. Ten times what a client sends as one part of a graph; a request that
/// brings more waits until it is alone.
const MAX_WAITING: u32 = 1 << 18;

/// The sending end.
#[derive(Clone)]
pub(super) struct DecisionQueue {
    sender: mpsc::UnboundedSender<Message>,
    room: Arc<Semaphore>,
}

/// The receiving end.
pub(super) type DecisionInbox = mpsc::UnboundedReceiver<Message>;

/// The two ends of an empty queue.
pub(super) fn decision_queue() -> (DecisionQueue, DecisionInbox) {
    let (sender, inbox) = mpsc::unbounded_channel();
    (DecisionQueue { sender, room: Arc::new(Semaphore::new(MAX_WAITING as usize)) }, inbox)
}

impl DecisionQueue {
    /// Sends an input of the engine itself, which nobody waits for.
    pub(super) fn tell(&self, input: Input) {
        self.send(Message::Input(input));
    }

    /// As [`DecisionQueue::tell`], with an error once the loop has ended.
    pub(super) fn try_tell(&self, input: Input) -> Result<(), EngineFault> {
        self.send(Message::Input(input)).then_some(()).ok_or_else(loop_ended)
    }

    /// Sends what the engine itself has to say, which never waits: outcomes of what it has ordered itself,
    /// ticks, that it is deposed. `false` once the loop has ended: this engine is no longer active, and
    /// nobody wants the answer.
    pub(super) fn send(&self, message: Message) -> bool {
        self.sender.send(message).is_ok()
    }

    /// Sends an input of a caller as soon as there is room. What is received, as long as the loop runs, is
    /// that it is committed, or why it was refused.
    pub(super) async fn request(
        &self,
        input: Input,
    ) -> Result<oneshot::Receiver<Result<(), EngineFault>>, EngineFault> {
        let wanted = u32::try_from(places(&input)).unwrap_or(u32::MAX).saturating_add(1);
        let room = self.room(wanted.min(MAX_WAITING)).await?;
        let (reply, outcome) = oneshot::channel();
        self.sender.send(Message::Request { input, reply, _room: room }).map_err(ended)?;
        Ok(outcome)
    }

    /// Hands over an input, and waits until it is committed, or refused.
    pub(super) async fn commit(&self, input: Input) -> Result<(), EngineFault> {
        self.request(input).await?.await.map_err(|_| loop_ended())?
    }

    /// Looks at what is committed, as soon as there is room and between two turns of the loop. A panic is
    /// that of whoever looks: the core was only looked at.
    pub(super) async fn query<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Core) -> T + Send + 'static,
    ) -> Result<T, EngineFault> {
        let (reply, found) = oneshot::channel();
        let look = Box::new(|core: &Core| drop(reply.send(catch_unwind(AssertUnwindSafe(|| look(core))))));
        let room = self.room(1).await?;
        self.sender.send(Message::Query { look, _room: room }).map_err(ended)?;
        Ok(found.await.map_err(|_| loop_ended())?.unwrap_or_else(|panic| resume_unwind(panic)))
    }

    async fn room(&self, places: u32) -> Result<OwnedSemaphorePermit, EngineFault> {
        tokio::select! {
            biased;
            room = self.room.clone().acquire_many_owned(places) => room.map_err(|_| loop_ended()),
            () = self.sender.closed() => Err(loop_ended()),
        }
    }
}

fn ended(_: SendError<Message>) -> EngineFault {
    loop_ended()
}

/// The decision loop ended while something was asked of it.
pub(super) fn loop_ended() -> EngineFault {
    EngineFault::NotActive { why: InactiveReason::Changing }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    /// As many requests as there is room for.
    async fn full() -> (DecisionQueue, DecisionInbox) {
        let (queue, inbox) = decision_queue();
        for _ in 0..MAX_WAITING {
            drop(queue.request(Input::Tick).await.unwrap());
        }
        (queue, inbox)
    }

    #[tokio::test]
    async fn a_caller_waits_while_the_queue_is_full_and_goes_on_when_the_loop_has_handled_a_message() {
        let (queue, mut inbox) = full().await;
        let mut waiting = std::pin::pin!(queue.request(Input::Tick));
        assert!(waiting.as_mut().now_or_never().is_none());
        assert!(queue.query(|_| ()).now_or_never().is_none());
        drop(inbox.recv().await);
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn what_the_engine_itself_has_to_say_never_waits() {
        let (queue, inbox) = full().await;
        assert!(queue.send(Message::Input(Input::Tick)));
        assert_eq!(inbox.len(), MAX_WAITING as usize + 1);
    }

    #[tokio::test]
    async fn who_waits_for_room_is_told_when_the_loop_ends() {
        let (queue, inbox) = full().await;
        let waiting = tokio::spawn(async move { queue.request(Input::Tick).await.map(drop) });
        tokio::task::yield_now().await;
        drop(inbox);
        assert_eq!(waiting.await.unwrap(), Err(loop_ended()));
    }

    #[tokio::test]
    async fn what_is_asked_of_a_loop_that_ended_is_refused() {
        let (queue, inbox) = decision_queue();
        drop(inbox);
        assert_eq!(queue.commit(Input::Tick).await, Err(loop_ended()));
        assert_eq!(queue.try_tell(Input::Tick), Err(loop_ended()));
    }

    #[tokio::test]
    async fn a_loop_that_ends_before_it_answers_leaves_no_caller_waiting() {
        let (queue, mut inbox) = decision_queue();
        let (answer, ()) = tokio::join!(queue.commit(Input::Tick), async {
            drop(inbox.recv().await);
        });
        assert_eq!(answer, Err(loop_ended()));
    }

    #[tokio::test]
    async fn a_panic_at_a_look_at_the_core_is_that_of_whoever_looks() {
        let (queue, mut inbox) = decision_queue();
        let asking = tokio::spawn(async move { queue.query::<()>(|_| panic!("not there")).await });
        let Some(Message::Query { look, .. }) = inbox.recv().await else { panic!("another message") };
        look(&Core::new(1));
        assert!(asking.await.unwrap_err().is_panic());
    }
}
