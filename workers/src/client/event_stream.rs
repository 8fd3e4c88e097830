//! Everything that happens to a job, in its order.

use std::{collections::VecDeque, time::Duration};

use syncline_rpc::{
    StreamCursor,
    status::{Entry, JobEvent},
};
use syncline_scheduler::ids::{JobId, JobRef};
use tokio::time::Instant;

use super::{Client, ClientError};

/// Pause between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// What somebody who follows a job is told.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum JobNews {
    /// What happened next, with its position in the stream.
    Event(Box<Entry<JobEvent>>),
    /// Events are missing here: a job keeps its newest 200, and more came between two looks, or Redis has
    /// lost some.
    Missed,
}

/// The events of one job, see [`Client::watch`]. It has a client of its own, so that a task may have it.
pub struct EventStream {
    client: Client,
    /// With the submission that made it, once that is known.
    job: JobRef,
    cursor: Option<StreamCursor>,
    /// The last event that was told before some were lost: what is up to there is not told again.
    told: Option<StreamCursor>,
    read: VecDeque<JobNews>,
    is_over: bool,
    /// When the job was there, once it was.
    seen: Option<Instant>,
}

impl Client {
    /// Follows a job from the event behind a position on, and without one from its oldest event that is kept,
    /// until it is over. It is the job that has the name at the first look: one that takes it later is
    /// another.
    pub fn watch(&self, job: &JobId, after: Option<StreamCursor>) -> EventStream {
        EventStream {
            client: self.clone(),
            job: job.clone().into(),
            cursor: after,
            told: None,
            read: VecDeque::new(),
            is_over: false,
            seen: None,
        }
    }
}

impl EventStream {
    /// Where it is: whoever passes this to [`Client::watch`] goes on from here, today or tomorrow.
    pub fn cursor(&self) -> Option<StreamCursor> {
        self.cursor.or(self.told)
    }

    /// Waits for what happens next; `None` once the job is over and all was told. While no engine answers it
    /// goes on as long as the client is [patient](super::Patience), and may be called again after an
    /// error that [passes](ClientError::is_passing): nothing is lost or told twice. A job that was seen and
    /// is not known any more to an engine that has just taken the lead is waited for, as by
    /// [`wait`](Client::wait).
    ///
    /// # Errors
    /// E131 if there is no such job, E650 if it was replaced meanwhile; E300 if no engine is reached, E136 if
    /// none leads.
    pub async fn next(&mut self) -> Result<Option<JobNews>, ClientError> {
        loop {
            match self.next_while_seen().await {
                Err(error) if self.may_come_back(&error).await => tokio::time::sleep(LOOK_INTERVAL).await,
                news => return news,
            }
        }
    }

    /// Whether the job may be there all the same after this error.
    #[doc(hidden)]
    pub async fn may_come_back(&self, error: &ClientError) -> bool {
        match self.seen {
            Some(seen) => self.client.may_come_back(error, seen.elapsed()).await,
            None => false,
        }
    }

    /// As [`next`](Self::next), for whoever says what keeps it from seeing the job: an engine that does not
    /// know the job is an error.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    #[doc(hidden)]
    pub async fn next_while_seen(&mut self) -> Result<Option<JobNews>, ClientError> {
        loop {
            if let Some(news) = self.read.pop_front() {
                match &news {
                    JobNews::Event(entry) => self.cursor = Some(entry.cursor),
                    JobNews::Missed => self.told = self.cursor.take(),
                }
                return Ok(Some(news));
            }
            if self.is_over {
                return Ok(None);
            }
            self.look().await?;
            if self.read.is_empty() && !self.is_over {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        }
    }

    /// Reads what has happened since. Whether the job is over is asked before: what ended it is among its
    /// events. That does not read its workers, of which there may be thousands.
    async fn look(&mut self) -> Result<(), ClientError> {
        if self.job.nonce.is_none() {
            self.job = self.client.status(&self.job.id).await?.job.job_ref();
        }
        let is_over = self.client.is_over(&self.job).await?;
        self.seen = Some(Instant::now());
        let entries = self.client.events(&self.job.id, self.cursor.map(before)).await?;
        let told = self.told;
        let is_new = |entry: &Entry<JobEvent>| told.is_none_or(|told| entry.cursor > told);
        let news = news(self.cursor, entries.into_iter().filter(is_new).collect());
        if !news.is_empty() {
            // Events are read by the name: by now they may be those of another job.
            self.client.is_over(&self.job).await?;
        }
        self.read.extend(news);
        self.is_over = is_over;
        Ok(())
    }
}

/// The position in front of an event, so that reading from there shows whether it is still kept.
fn before(StreamCursor { at_ms, number }: StreamCursor) -> StreamCursor {
    match number.checked_sub(1) {
        Some(number) => StreamCursor { at_ms, number },
        None => StreamCursor { at_ms: at_ms.saturating_sub(1), number: u64::MAX },
    }
}

/// What is new to somebody who has read up to `cursor`, out of entries from there on. Where that one is gone,
/// so are those that came between.
fn news(cursor: Option<StreamCursor>, entries: Vec<Entry<JobEvent>>) -> Vec<JobNews> {
    let is_known = |entry: &Entry<JobEvent>| cursor == Some(entry.cursor);
    let missed = cursor.is_some() && !entries.first().is_some_and(is_known);
    let events =
        entries.into_iter().filter(|entry| !is_known(entry)).map(|entry| JobNews::Event(Box::new(entry)));
    missed.then_some(JobNews::Missed).into_iter().chain(events).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(at_ms: u64, number: u64) -> StreamCursor {
        StreamCursor { at_ms, number }
    }

    fn entry(cursor: StreamCursor) -> Entry<JobEvent> {
        let value = serde_json::from_str(r#"{"what": "paused", "at_ms": 1}"#).unwrap();
        Entry { cursor, value }
    }

    #[test]
    fn what_was_read_is_not_told_again_and_what_is_gone_is_told_as_missing_table() {
        let told = |cursor, entries: &[StreamCursor]| -> Vec<String> {
            let told = news(cursor, entries.iter().map(|cursor| entry(*cursor)).collect());
            let name = |news: &JobNews| match news {
                JobNews::Event(entry) => entry.cursor.to_string(),
                JobNews::Missed => "missed".to_owned(),
            };
            told.iter().map(name).collect()
        };
        let none: [&str; 0] = [];
        assert_eq!(told(None, &[at(5, 0), at(5, 1)]), ["5-0", "5-1"], "from the beginning");
        assert_eq!(told(Some(at(5, 0)), &[at(5, 0), at(5, 1)]), ["5-1"], "it goes on");
        assert_eq!(told(Some(at(5, 0)), &[at(5, 0)]), none, "nothing happened");
        assert_eq!(told(Some(at(5, 0)), &[at(9, 3)]), ["missed", "9-3"], "200 more came");
        assert_eq!(told(Some(at(5, 0)), &[]), ["missed"], "Redis has lost all");
    }

    #[test]
    fn a_task_of_its_own_may_have_the_events() {
        fn movable<T: Send + 'static>(_: impl Fn(EventStream) -> T) {}
        movable(|stream| stream);
        movable(|mut stream| async move { stream.next().await });
    }

    #[test]
    fn the_position_in_front_of_an_event_may_lie_in_the_millisecond_before() {
        assert_eq!(before(at(7, 2)), at(7, 1));
        assert_eq!(before(at(7, 0)), at(6, u64::MAX));
        assert_eq!(before(at(0, 0)), at(0, u64::MAX));
    }
}
