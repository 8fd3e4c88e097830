//! Pushing a gradient to all shards, each its part.
//!
//! Parts are sent in turns, so that all shards work at the same time although one thread sends. After a
//! broken connection the shard is asked how far the push came, and it goes on from there. A part that is
//! compressed is encoded while it is sent.

use std::{
    io::{self, IoSlice, Write},
    time::Instant,
};

use syncline_rpc::ShardFault;
use syncline_scheduler::sync::PushMode;

use super::{
    Link, LinkError, ShardSet, encoder::NotFinite, gather::Gather, pull::PullRequest, retry::RetryBudget,
    shards::ShardConn, unexpected_reply,
};
use crate::{
    PsError,
    codec::Codec,
    rows::RowSelection,
    shard::{PushAck, PushHeader, ReadCondition},
    wire::{Reply, Request},
};

/// Bytes that one shard gets in its turn.
const TURN_BYTES: u64 = 1 << 20;
/// Encoded bytes of one turn: a chunk or two.
const ENCODED_TURN_BYTES: u64 = 1 << 17;
/// How many times the silence a push may take to be acknowledged: it may close a barrier first.
const ACK_SILENCE_LIMITS: u32 = 4;

/// A push that every shard has acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PushStats {
    /// Pushes of all workers that were in on the first shard, this one included.
    pub pushes: u64,
    /// How far the worker's clock was then ahead of the lowest, on the shard where that was most.
    pub lead: u64,
    /// Time from the call to the last acknowledgement, broken connections included.
    pub took_us: u64,
}

/// A push, as it is to be sent.
struct Push<'a> {
    seq: u64,
    /// What travels in front of it.
    header: PushHeader,
    gather: Gather<'a>,
    /// Factor on the gradient before it is encoded: what was kept back is not to be scaled.
    scale: f32,
    /// What of the parameters it is for, where there are tables.
    rows: Option<&'a RowSelection>,
    /// What is asked for behind it.
    next: Option<PullRequest<'a>>,
    /// It lies where shards that map it need not be sent it.
    in_place: bool,
}

/// How far the push to one shard has come.
enum PushState {
    /// The connection may be new: if it is, the shard is asked where to begin.
    Unstarted,
    /// Frame and bytes that are still to be sent: of the flat array, or of the shard's encoded part.
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
    /// Pushes number `seq` and returns when every shard has acknowledged it. Numbers count iterations from 1:
    /// the push begins right behind the last one and stands for `header.covers` of them.
    ///
    /// `gradients`: slices in layout order, together [`ShardSet::elements`]; ignored if `header.skip`.
    pub fn push(&mut self, seq: u64, header: PushHeader, gradients: &[&[f32]]) -> Result<PushStats, PsError> {
        self.push_and_request(seq, header, gradients, None)
    }

    /// As [`ShardSet::push`]; each shard is also asked for `next`, behind the push and before its
    /// acknowledgement, so that it goes from one to the other without waiting for us. The values, which
    /// contain this push, must be read at once with [`ShardSet::pull`] for the same version, or given up
    /// with [`ShardSet::drop_requested`].
    pub fn push_and_request(
        &mut self,
        seq: u64,
        header: PushHeader,
        gradients: &[&[f32]],
        next: Option<ReadCondition>,
    ) -> Result<PushStats, PsError> {
        let next = next.map(|condition| PullRequest { condition, rows: None });
        self.push_selected(seq, header, gradients, None, next)
    }

    /// Pushes a gradient for all parameters, or for these rows and what is no table.
    pub(super) fn push_selected(
        &mut self,
        seq: u64,
        header: PushHeader,
        gradients: &[&[f32]],
        rows: Option<&RowSelection>,
        next: Option<PullRequest<'_>>,
    ) -> Result<PushStats, PsError> {
        self.addresses.end_reading();
        self.cancel_token.check()?;
        self.drop_requested();
        self.conns.iter_mut().for_each(|conn| conn.lent = None);
        let started = Instant::now();
        self.retry_upgrades(started);
        let gather = Gather::new(gradients);
        let expected = self.elements_of(rows)?;
        if !header.skip && gather.elements() != expected {
            return Err(PsError::Length { what: "gradient", got: gather.elements(), expected });
        }
        let in_place = !header.skip && !self.compresses() && rows.is_none() && self.lie_in_area(gradients);
        let mut push = Push { seq, header, gather, scale: 1.0, rows, next, in_place };
        if self.compresses() {
            // The shards will not see what is wrong with a factor that is in the numbers already.
            if let Some(what) = header.fault() {
                return Err(PsError::Refused { fault: ShardFault::Invalid { what } });
            }
            push.scale = header.scale;
            // What carries no weight is not worth its bytes, and must not use up what was kept back.
            push.header = PushHeader { scale: 1.0, skip: header.is_empty(), ..header };
        }
        let mut parts: Vec<PushState> = self.conns.iter().map(|_| PushState::Unstarted).collect();
        let outcome = self.push_parts(&push, &mut parts);
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
        let took = started.elapsed();
        if !push.header.skip {
            self.observe_push(took);
        }
        Ok(PushStats { pushes, lead, took_us: took.as_micros() as u64 })
    }

    fn push_parts(&mut self, push: &Push<'_>, parts: &mut [PushState]) -> Result<(), PsError> {
        let mut retry = RetryBudget::new(self.options.retry_limit);
        // How far each shard has said that it came, in bytes.
        let mut furthest = vec![0; parts.len()];
        let mut all_sent_at = None;
        loop {
            let mut moving = false;
            for (index, part) in parts.iter_mut().enumerate() {
                let turn = match part {
                    PushState::Unstarted => self.begin(index, push),
                    PushState::Sending { .. } => self.send_turn(index, part, push),
                    PushState::Sent | PushState::Done { .. } => continue,
                };
                moving = true;
                match turn {
                    Ok(next) => {
                        // A shard that has taken more than before the break is no shard that fails.
                        if let (PushState::Unstarted, PushState::Sending { at, .. }) = (&*part, &next)
                            && *at > furthest[index]
                        {
                            furthest[index] = *at;
                            retry.progress();
                        }
                        *part = next;
                    }
                    Err(error) => {
                        *part = PushState::Unstarted;
                        self.recover(index, error, &mut retry)?;
                    }
                }
            }
            if moving {
                continue;
            }
            let waits_since = *all_sent_at.get_or_insert_with(Instant::now);
            for (index, part) in parts.iter_mut().enumerate().filter(|(_, p)| matches!(p, PushState::Sent)) {
                match self.acknowledged(index, push.seq) {
                    // It is the turn of the others.
                    Ok(None) => {}
                    Ok(Some(ack)) => {
                        *part = PushState::Done { pushes: ack.pushes, lead: ack.lead };
                        retry.progress();
                    }
                    Err(error) => {
                        *part = PushState::Unstarted;
                        self.recover(index, error, &mut retry)?;
                    }
                }
            }
            let has_it = |part: &PushState| matches!(part, PushState::Done { .. });
            if parts.iter().all(has_it) {
                return Ok(());
            }
            // Whoever sends what it was asked for behind the push counts this client among those that
            // vanished soon, which takes nothing while another shard waits: it is asked again
            // when all have the push.
            if waits_since.elapsed() >= self.options.silence_limit {
                (0..parts.len())
                    .filter(|index| has_it(&parts[*index]))
                    .for_each(|index| self.drop_if_requested(index));
            }
        }
    }

    /// Finds the first chunk to send: 0 on a connection that carried the last push, else what the shard
    /// answers.
    fn begin(&mut self, index: usize, push: &Push<'_>) -> Result<PushState, LinkError> {
        let &Push { seq, header, .. } = push;
        let session = self.session.clone();
        let has_it = self.conns[index].encoder.as_ref().is_some_and(|encoder| encoder.has_acknowledged(seq));
        let (link, fresh) = self.link(index)?;
        let mut first_chunk = 0;
        if fresh || has_it {
            link.ask(&Request::PushCursor { session: session.clone() })?;
            let cursor = match link.answer()? {
                (Reply::PushCursor(cursor), 0) => cursor,
                (reply, _) => return Err(unexpected_reply(&reply)),
            };
            if cursor.watermark >= seq {
                self.commit(index, seq);
                return Ok(PushState::Done { pushes: cursor.pushes, lead: 0 });
            }
            if seq.checked_sub(header.covers.into()) == Some(cursor.watermark) {
                first_chunk = cursor.next_chunk;
            }
        }
        let (first_byte, end) = self.bytes_from(index, push.rows, first_chunk);
        let mut head = Vec::with_capacity(160);
        if let Some(rows) = push.rows.filter(|_| !header.skip) {
            let bytes = rows.bytes() + end - first_byte;
            Request::PushRows { session, seq, first_chunk, header }.encode(bytes, &mut head);
            rows.encode(&mut head);
            return Ok(PushState::Sending { head, head_sent: 0, at: first_byte, end });
        }
        if push.in_place && self.conns[index].link.as_ref().is_some_and(|link| link.takes_gradients) {
            Request::PushInPlace { session, seq, first_chunk, header }.encode(0, &mut head);
            return Ok(PushState::Sending { head, head_sent: 0, at: end, end });
        }
        let (codec, at, end) = match &mut self.conns[index].encoder {
            _ if header.skip => (Codec::Plain, end, end),
            Some(encoder) => {
                let weight = (header.mode == PushMode::Accumulate).then_some(header.weight);
                let (at, end) = encoder.begin(seq, first_chunk, weight);
                (encoder.codec(), at, end)
            }
            None => (Codec::Plain, first_byte, end),
        };
        Request::Push { session, seq, first_chunk, header, codec }.encode(end - at, &mut head);
        Ok(PushState::Sending { head, head_sent: 0, at, end })
    }

    fn send_turn(
        &mut self,
        index: usize,
        part: &mut PushState,
        push: &Push<'_>,
    ) -> Result<PushState, LinkError> {
        let PushState::Sending { head, head_sent, at, end } = part else { return Ok(PushState::Sent) };
        let alone = self.conns.len() == 1;
        self.link(index)?;
        let ShardConn { link: Some(link), encoder, .. } = &mut self.conns[index] else {
            return Err(io::Error::from(io::ErrorKind::NotConnected).into());
        };
        // Alone, a shard gets all there is; what is to be encoded goes in turns, so that the link is busy
        // meanwhile.
        let turn = match encoder {
            Some(_) => ENCODED_TURN_BYTES,
            None if alone => u64::MAX,
            None => TURN_BYTES,
        };
        let until = at.saturating_add(turn).min(*end);
        let encoded = match encoder.as_mut().filter(|_| !push.header.skip) {
            Some(encoder) => Some(encoder.encode_to(until, &push.gather, push.scale)?),
            None => None,
        };
        while *head_sent < head.len() || *at < until {
            let rest = head.get(*head_sent..).unwrap_or(&[]);
            let wrote = match encoded {
                Some(bytes) => {
                    let body = &bytes[*at as usize..until as usize];
                    link.channel().write_vectored(&[IoSlice::new(rest), IoSlice::new(body)])
                }
                None => push.gather.write_some(link.channel(), rest, *at, until),
            };
            let sent = match wrote {
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
            if let Some(wanted) = push.next {
                self.request_pull(index, wanted)?;
            }
            return Ok(PushState::Sent);
        }
        Ok(PushState::Sending { head: std::mem::take(head), head_sent: *head_sent, at: *at, end: *end })
    }

    /// `None`: the shard says that it waits, as for its standby.
    fn acknowledged(&mut self, index: usize, seq: u64) -> Result<Option<PushAck>, LinkError> {
        let limit = self.options.silence_limit * ACK_SILENCE_LIMITS;
        let (link, _): (&mut Link, bool) = self.link(index)?;
        link.set_read_timeout(Some(limit))?;
        match link.answer_or_sign()? {
            None => Ok(None),
            Some((Reply::Pushed(ack), 0)) if ack.watermark >= seq => {
                self.commit(index, seq);
                Ok(Some(ack))
            }
            Some((reply, _)) => Err(unexpected_reply(&reply)),
        }
    }

    /// Shard `index` has push `seq`.
    fn commit(&mut self, index: usize, seq: u64) {
        let encoder = &mut self.conns[index].encoder;
        if let Some(encoder) = encoder {
            encoder.commit(seq);
        }
        encoder.take_if(|encoder| encoder.is_through());
    }

    /// Whether the next push is encoded for some shard, which keeps back what that loses.
    pub fn compresses(&self) -> bool {
        self.conns.iter().any(|conn| conn.encoder.is_some())
    }
}

impl From<NotFinite> for LinkError {
    fn from(_: NotFinite) -> Self {
        let what = "a gradient with a number that is not finite cannot be compressed".into();
        Self::Fault(ShardFault::Invalid { what })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        net::{TcpListener, TcpStream},
        sync::atomic::{AtomicBool, Ordering},
        thread,
        time::Duration,
    };

    use syncline_rpc::{
        Token,
        hello::{self, Role},
    };
    use syncline_scheduler::ids::{Generation, Incarnation, RunId};

    use super::*;
    use crate::{
        client::{CancelToken, ClientOptions},
        transport::{Transport, TransportChoice},
        wire::SessionKey,
    };

    /// Long enough for the greeting of a shard on a busy machine.
    const SILENCE_LIMIT: Duration = Duration::from_secs(2);

    fn say(stream: &mut TcpStream, reply: Reply) {
        let mut out = Vec::new();
        reply.encode(0, &mut out);
        stream.write_all(&out).unwrap();
    }

    /// Accepts one client of a shard, and takes its push and the question behind it.
    fn pushed(listener: &TcpListener, token: &Token) -> TcpStream {
        let (mut stream, _) = listener.accept().unwrap();
        hello::receive_blocking(&mut stream, token, &[Role::Tensor], None).unwrap();
        // One that hangs fails the test.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut scratch = Vec::new();
        let mut next = |stream: &mut TcpStream| Request::read(stream, &mut scratch).unwrap().unwrap();
        let (push, bytes) = next(&mut stream);
        assert!(matches!(push, Request::Push { .. }), "{push:?}");
        stream.read_exact(&mut vec![0; bytes as usize]).unwrap();
        assert!(matches!(next(&mut stream), (Request::Pull { .. }, 0)));
        stream
    }

    #[test]
    fn who_sends_values_that_cannot_be_taken_while_another_shard_waits_is_hung_up_on_and_asked_again_later() {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let addresses = listeners.each_ref().map(|listener| listener.local_addr().unwrap().to_string());
        let (token, has_hung_up) = (Token::generate(), AtomicBool::new(false));
        let run = RunId { job: "digits".parse().unwrap(), generation: Generation(1) };
        let session = SessionKey { run, incarnation: Incarnation(1) };
        let ack = Reply::Pushed(PushAck { watermark: 1, pushes: 1, lead: 0 });
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = pushed(&listeners[0], &token);
                while !has_hung_up.load(Ordering::SeqCst) {
                    say(&mut stream, Reply::Waiting);
                    thread::yield_now();
                }
                say(&mut stream, ack.clone());
                let _ = stream.read(&mut [0]);
            });
            scope.spawn(|| {
                let mut stream = pushed(&listeners[1], &token);
                say(&mut stream, ack.clone());
                let hung_up = stream.read(&mut [0]);
                has_hung_up.store(true, Ordering::SeqCst);
                assert_eq!(hung_up.unwrap(), 0);
            });
            let transport = TransportChoice::Only(Transport::Tcp);
            let options =
                ClientOptions { transport, silence_limit: SILENCE_LIMIT, ..ClientOptions::default() };
            let (addresses, cancel_token) = (addresses.as_slice().into(), CancelToken::default());
            let connected =
                ShardSet::connect_with(&addresses, token.clone(), session, 2, options, cancel_token);
            let mode = PushMode::Apply;
            let header =
                PushHeader { learning_rate: 1.0, weight: 1.0, scale: 1.0, skip: false, mode, covers: 1 };
            let mut worker = connected.unwrap();
            let next = Some(ReadCondition::version(1));
            let pushed = worker.push_and_request(1, header, &[&[1.0; 2]], next).unwrap();
            drop(worker);
            assert_eq!(pushed.pushes, 1);
        });
    }
}
