//! Pushing a gradient to all shards, each its part.
//!
//! Parts are sent in turns, so that all shards work at the same time although one thread sends. After a broken
//! connection the shard is asked how far the push came, and it goes on from there.

use std::{io, time::Instant};

use super::{Link, LinkError, ShardSet, gather::Gather, retry::RetryBudget, unexpected_reply};
use crate::{
    PsError,
    shard::{CHUNK_BYTES, PushAck, PushHeader, ReadCondition},
    wire::{Reply, Request},
};

/// Bytes that one shard gets in its turn.
const TURN_BYTES: u64 = 1 << 20;
/// How many times the silence a push may take to be acknowledged: it may close a barrier first.
const ACK_SILENCE_LIMITS: u32 = 4;

/// A push that every shard has acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PushStats {
    /// Pushes of all workers that were in on the first shard, this one included.
    pub pushes: u64,
    /// How far the worker's clock was then ahead of the lowest, on the shard where that was most.
    pub lead: u64,
    pub took_us: u64,
}

/// How far the push to one shard has come.
enum PushState {
    /// The connection may be new: if it is, the shard is asked where to begin.
    Unstarted,
    /// Frame and bytes of the flat array that are still to be sent.
    Sending {
        head: Vec<u8>,
        head_sent: usize,
        at: u64,
        end: u64,
    },
    Sent,
    Done {
        pushes: u64,
        lead: u64,
    },
}

impl ShardSet {
    /// Pushes number `seq` and returns when every shard has acknowledged it. Numbers count iterations from 1: the push
    /// begins right behind the last one and stands for `header.covers` of them.
    ///
    /// `gradients`: slices in layout order, together [`ShardSet::elements`]; ignored if `header.skip`.
    pub fn push(&mut self, seq: u64, header: PushHeader, gradients: &[&[f32]]) -> Result<PushStats, PsError> {
        self.push_and_request(seq, header, gradients, None)
    }

    /// As [`ShardSet::push`]; each shard is also asked for `next`, behind the push and before its acknowledgement, so
    /// that it goes from one to the other without waiting for us. The values, which contain this push, must be read at
    /// once with [`ShardSet::pull`] for the same version, or given up with [`ShardSet::drop_requested`].
    pub fn push_and_request(
        &mut self,
        seq: u64,
        header: PushHeader,
        gradients: &[&[f32]],
        next: Option<ReadCondition>,
    ) -> Result<PushStats, PsError> {
        self.cancel_token.check()?;
        self.drop_requested();
        let started = Instant::now();
        let gather = Gather::new(gradients);
        if !header.skip && gather.elements() != self.elements {
            return Err(PsError::Length {
                what: "gradient",
                got: gather.elements(),
                expected: self.elements,
            });
        }
        let mut parts: Vec<PushState> = self.conns.iter().map(|_| PushState::Unstarted).collect();
        let outcome = self.push_parts(seq, &header, &gather, next, &mut parts);
        if let Err(error) = outcome {
            // What a shard has still to say about this push must not be taken for the answer to another.
            for index in (0..parts.len()).filter(|&i| !matches!(parts[i], PushState::Done { .. })) {
                self.drop_link(index);
            }
            return Err(error);
        }
        let done = |part: &PushState| match part {
            PushState::Done { pushes, lead } => Some((*pushes, *lead)),
            _ => None,
        };
        let pushes = parts.first().and_then(done).map_or(0, |(pushes, _)| pushes);
        let lead = parts.iter().filter_map(done).map(|(_, lead)| lead).max().unwrap_or(0);
        Ok(PushStats { pushes, lead, took_us: started.elapsed().as_micros() as u64 })
    }

    fn push_parts(
        &mut self,
        seq: u64,
        header: &PushHeader,
        gather: &Gather<'_>,
        next: Option<ReadCondition>,
        parts: &mut [PushState],
    ) -> Result<(), PsError> {
        let mut retry = RetryBudget::new(self.options.retry_limit);
        loop {
            let mut moving = false;
            for (index, part) in parts.iter_mut().enumerate() {
                let turn = match part {
                    PushState::Unstarted => self.begin(index, seq, header),
                    PushState::Sending { .. } => self.send_turn(index, part, gather, next),
                    PushState::Sent | PushState::Done { .. } => continue,
                };
                moving = true;
                match turn {
                    Ok(next) => *part = next,
                    Err(error) => {
                        *part = PushState::Unstarted;
                        self.recover(index, error, &mut retry)?;
                    }
                }
            }
            if moving {
                continue;
            }
            for (index, part) in parts.iter_mut().enumerate().filter(|(_, p)| matches!(p, PushState::Sent)) {
                match self.acknowledged(index, seq) {
                    Ok(ack) => {
                        *part = PushState::Done { pushes: ack.pushes, lead: ack.lead };
                        retry.progress();
                    }
                    Err(error) => {
                        *part = PushState::Unstarted;
                        self.recover(index, error, &mut retry)?;
                    }
                }
            }
            if parts.iter().all(|p| matches!(p, PushState::Done { .. })) {
                return Ok(());
            }
        }
    }

    /// Finds the first chunk to send: 0 on a connection that carried the last push, else what the shard answers.
    fn begin(&mut self, index: usize, seq: u64, header: &PushHeader) -> Result<PushState, LinkError> {
        let (session, range) = (self.session.clone(), self.conns[index].range);
        let (link, fresh) = self.link(index)?;
        let mut first_chunk = 0;
        if fresh {
            link.ask(&Request::PushCursor { session: session.clone() })?;
            let cursor = match link.answer()? {
                (Reply::PushCursor(cursor), 0) => cursor,
                (reply, _) => return Err(unexpected_reply(&reply)),
            };
            if cursor.watermark >= seq {
                return Ok(PushState::Done { pushes: cursor.pushes, lead: 0 });
            }
            if seq.checked_sub(header.covers.into()) == Some(cursor.watermark) {
                first_chunk = cursor.next_chunk;
            }
        }
        let (start, end) = (range.start * 4, range.end * 4);
        let at_byte =
            if header.skip { end } else { (start + u64::from(first_chunk) * CHUNK_BYTES as u64).min(end) };
        let mut head = Vec::with_capacity(160);
        Request::Push { session, seq, first_chunk, header: *header }.encode(end - at_byte, &mut head);
        Ok(PushState::Sending { head, head_sent: 0, at: at_byte, end })
    }

    fn send_turn(
        &mut self,
        index: usize,
        part: &mut PushState,
        gather: &Gather<'_>,
        next: Option<ReadCondition>,
    ) -> Result<PushState, LinkError> {
        let PushState::Sending { head, head_sent, at, end } = part else { return Ok(PushState::Sent) };
        // Alone, a shard gets all there is.
        let turn = if self.conns.len() == 1 { u64::MAX } else { TURN_BYTES };
        let until = at.saturating_add(turn).min(*end);
        let (link, _) = self.link(index)?;
        while *head_sent < head.len() || *at < until {
            let rest = head.get(*head_sent..).unwrap_or(&[]);
            let sent = match gather.write_some(link.channel(), rest, *at, until) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
                Ok(sent) => sent,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => 0,
                Err(e) => return Err(e.into()),
            };
            let of_head = sent.min(rest.len());
            *head_sent += of_head;
            *at += (sent - of_head) as u64;
        }
        if *at == *end {
            if let Some(condition) = next {
                self.request_pull(index, condition)?;
            }
            return Ok(PushState::Sent);
        }
        Ok(PushState::Sending { head: std::mem::take(head), head_sent: *head_sent, at: *at, end: *end })
    }

    fn acknowledged(&mut self, index: usize, seq: u64) -> Result<PushAck, LinkError> {
        let limit = self.options.silence_limit * ACK_SILENCE_LIMITS;
        let (link, _): (&mut Link, bool) = self.link(index)?;
        link.set_read_timeout(Some(limit))?;
        match link.answer()? {
            (Reply::Pushed(ack), 0) if ack.watermark >= seq => Ok(ack),
            (reply, _) => Err(unexpected_reply(&reply)),
        }
    }
}
