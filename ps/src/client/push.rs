//! Pushing a gradient to all shards, each its part.
//!
//! Parts are sent in turns, so that all shards work at the same time although one thread sends. After a broken
//! connection the shard is asked how far the push came, and it goes on from there.

use std::{io, time::Instant};

use super::{Link, Shards, Trouble, gather::Gather, out_of_place, patience::Patience};
use crate::{
    PsError,
    shard::{CHUNK_BYTES, PushHeader, Tally, Want},
    wire::{Reply, Request},
};

/// Bytes that one shard gets in its turn.
const TURN_BYTES: u64 = 1 << 20;
/// How many times the silence a push may take to be acknowledged: it may close a barrier first.
const ACKNOWLEDGES: u32 = 4;

/// A push that every shard has acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pushed {
    /// Pushes of all workers that were in on the first shard, this one included.
    pub pushes: u64,
    /// How far the worker's clock was then ahead of the lowest, on the shard where that was most.
    pub lead: u64,
    pub took_us: u64,
}

/// How far the push to one shard has come.
enum Part {
    /// To be placed: the connection may be new, so the shard is asked.
    Unplaced,
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

impl Shards {
    /// Pushes number `seq` and returns when every shard has acknowledged it. Numbers count iterations from 1: the push
    /// begins right behind the last one and stands for `header.covers` of them.
    ///
    /// `gradients`: slices in layout order, together [`Shards::elements`]; ignored if `header.skip`.
    pub fn push(&mut self, seq: u64, header: PushHeader, gradients: &[&[f32]]) -> Result<Pushed, PsError> {
        self.push_and_ask(seq, header, gradients, None)
    }

    /// As [`Shards::push`]; each shard is also asked for `next`, behind the push and before its acknowledgement, so
    /// that it goes from one to the other without waiting for us. The values, which contain this push, must be read at
    /// once with [`Shards::pull`] for the same version, or given up with [`Shards::forget_asked`].
    pub fn push_and_ask(
        &mut self,
        seq: u64,
        header: PushHeader,
        gradients: &[&[f32]],
        next: Option<Want>,
    ) -> Result<Pushed, PsError> {
        self.canceller.check()?;
        self.forget_asked();
        let started = Instant::now();
        let gather = Gather::new(gradients);
        if !header.skip && gather.elements() != self.elements {
            return Err(PsError::Length {
                what: "gradient",
                got: gather.elements(),
                expected: self.elements,
            });
        }
        let mut parts: Vec<Part> = self.seats.iter().map(|_| Part::Unplaced).collect();
        let outcome = self.push_parts(seq, &header, &gather, next, &mut parts);
        if let Err(error) = outcome {
            // What a shard has still to say about this push must not be taken for the answer to another.
            for index in (0..parts.len()).filter(|&i| !matches!(parts[i], Part::Done { .. })) {
                self.drop_link(index);
            }
            return Err(error);
        }
        let done = |part: &Part| match part {
            Part::Done { pushes, lead } => Some((*pushes, *lead)),
            _ => None,
        };
        let pushes = parts.first().and_then(done).map_or(0, |(pushes, _)| pushes);
        let lead = parts.iter().filter_map(done).map(|(_, lead)| lead).max().unwrap_or(0);
        Ok(Pushed { pushes, lead, took_us: started.elapsed().as_micros() as u64 })
    }

    fn push_parts(
        &mut self,
        seq: u64,
        header: &PushHeader,
        gather: &Gather<'_>,
        next: Option<Want>,
        parts: &mut [Part],
    ) -> Result<(), PsError> {
        let mut patience = Patience::new(self.options.patience);
        loop {
            let mut moving = false;
            for (index, part) in parts.iter_mut().enumerate() {
                let turn = match part {
                    Part::Unplaced => self.place(index, seq, header),
                    Part::Sending { .. } => self.send_turn(index, part, gather, next),
                    Part::Sent | Part::Done { .. } => continue,
                };
                moving = true;
                match turn {
                    Ok(next) => *part = next,
                    Err(trouble) => {
                        *part = Part::Unplaced;
                        self.recover(index, trouble, &mut patience)?;
                    }
                }
            }
            if moving {
                continue;
            }
            for (index, part) in parts.iter_mut().enumerate().filter(|(_, p)| matches!(p, Part::Sent)) {
                match self.acknowledged(index, seq) {
                    Ok(tally) => {
                        *part = Part::Done { pushes: tally.pushes, lead: tally.lead };
                        patience.progress();
                    }
                    Err(trouble) => {
                        *part = Part::Unplaced;
                        self.recover(index, trouble, &mut patience)?;
                    }
                }
            }
            if parts.iter().all(|p| matches!(p, Part::Done { .. })) {
                return Ok(());
            }
        }
    }

    /// Finds out where to begin. A connection that stood through the last push begins at the front.
    fn place(&mut self, index: usize, seq: u64, header: &PushHeader) -> Result<Part, Trouble> {
        let (at, range) = (self.at.clone(), self.seats[index].range);
        let (link, fresh) = self.link(index)?;
        let mut first_chunk = 0;
        if fresh {
            link.ask(&Request::Where { at: at.clone() })?;
            let place = match link.answer()? {
                (Reply::Where(place), 0) => place,
                (reply, _) => return Err(out_of_place(&reply)),
            };
            if place.watermark >= seq {
                return Ok(Part::Done { pushes: place.pushes, lead: 0 });
            }
            if seq.checked_sub(header.covers.into()) == Some(place.watermark) {
                first_chunk = place.next_chunk;
            }
        }
        let (start, end) = (range.start * 4, range.end * 4);
        let at_byte =
            if header.skip { end } else { (start + u64::from(first_chunk) * CHUNK_BYTES as u64).min(end) };
        let mut head = Vec::with_capacity(160);
        Request::Push { at, seq, first_chunk, header: *header }.encode(end - at_byte, &mut head);
        Ok(Part::Sending { head, head_sent: 0, at: at_byte, end })
    }

    fn send_turn(
        &mut self,
        index: usize,
        part: &mut Part,
        gather: &Gather<'_>,
        next: Option<Want>,
    ) -> Result<Part, Trouble> {
        let Part::Sending { head, head_sent, at, end } = part else { return Ok(Part::Sent) };
        // Alone, a shard gets all there is.
        let turn = if self.seats.len() == 1 { u64::MAX } else { TURN_BYTES };
        let until = at.saturating_add(turn).min(*end);
        let (link, _) = self.link(index)?;
        while *head_sent < head.len() || *at < until {
            let rest = head.get(*head_sent..).unwrap_or(&[]);
            let sent = match gather.write_some(link.socket_mut(), rest, *at, until) {
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
            if let Some(want) = next {
                self.ask_pull(index, want)?;
            }
            return Ok(Part::Sent);
        }
        Ok(Part::Sending { head: std::mem::take(head), head_sent: *head_sent, at: *at, end: *end })
    }

    fn acknowledged(&mut self, index: usize, seq: u64) -> Result<Tally, Trouble> {
        let limit = self.options.silence * ACKNOWLEDGES;
        let (link, _): (&mut Link, bool) = self.link(index)?;
        link.limit_reads(Some(limit))?;
        match link.answer()? {
            (Reply::Pushed(tally), 0) if tally.watermark >= seq => Ok(tally),
            (reply, _) => Err(out_of_place(&reply)),
        }
    }
}
