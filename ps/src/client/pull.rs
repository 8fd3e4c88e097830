//! Pulling the parameters from all shards, straight into the caller's buffer.

use std::{mem, time::Instant};

use super::{LinkError, ShardSet, lending::LentValues, retry::RetryBudget, unexpected_reply};
use crate::{
    PsError,
    codec::{ChunkedRange, Codec, CodecFault},
    rows::RowSelection,
    shard::{CHUNK_ELEMENTS, ReadCondition},
    wire::{Reply, Request, WireError},
};

/// Bytes read from one shard in its turn.
const TURN_BYTES: usize = 1 << 20;

/// What a pull brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PullStats {
    /// Barriers closed when it was read; the lowest of all shards.
    pub version: u64,
    /// The longest time a shard waited for the version.
    pub waited_us: u64,
    /// The rest of the call's time.
    pub transfer_us: u64,
    /// Pushes of all workers that were in on the first shard.
    pub pushes: u64,
}

/// What is pulled: of all parameters, or of some rows and what is no table.
#[derive(Debug, Clone, Copy)]
pub(super) struct PullRequest<'a> {
    pub condition: ReadCondition,
    pub rows: Option<&'a RowSelection>,
}

/// What a shard was asked for.
#[derive(Debug)]
pub(super) struct Requested {
    condition: ReadCondition,
    rows: Option<RowSelection>,
}

impl Requested {
    fn is(&self, wanted: PullRequest<'_>) -> bool {
        self.condition == wanted.condition && self.rows.as_ref() == wanted.rows
    }
}

/// How far the pull from one shard has come.
#[derive(Clone, Copy)]
enum PullState {
    NotRequested,
    Requested,
    Reading { got: Answer, at: usize },
    Done(Answer),
}

/// The header of one shard's answer.
#[derive(Clone, Copy)]
struct Answer {
    version: u64,
    pushes: u64,
    waited_us: u64,
    /// Newest version that a round went into when the last value was read.
    round_version: u64,
}

impl ShardSet {
    /// Waits for `condition` on every shard and reads the parameters into `into`, which has
    /// [`ShardSet::elements`] places.
    ///
    /// No barrier that applied a round lies between any two of them; single pushes may, chunk by chunk.
    pub fn pull(&mut self, condition: ReadCondition, into: &mut [f32]) -> Result<PullStats, PsError> {
        let pulled = self.pull_to_read(PullRequest { condition, rows: None }, into)?;
        self.copy_lent(into);
        Ok(pulled)
    }

    /// Waits for what is `wanted` on every shard and reads it into `into`, which is as long.
    pub(super) fn pull_wanted(
        &mut self,
        wanted: PullRequest<'_>,
        into: &mut [f32],
    ) -> Result<PullStats, PsError> {
        self.addresses.end_reading();
        self.cancel_token.check()?;
        let expected = self.elements_of(wanted.rows)?;
        if into.len() as u64 != expected {
            return Err(PsError::Length { what: "buffer", got: into.len() as u64, expected });
        }
        let started = Instant::now();
        // One for each shard: what one of them says is nothing that another one does.
        let mut retries: Vec<_> =
            self.conns.iter().map(|_| RetryBudget::new(self.options.retry_limit)).collect();
        let mut wanted = wanted;
        let mut waited_us = 0;
        loop {
            let answers = self.pull_once(wanted, into, &mut retries)?;
            waited_us += answers.iter().map(|a| a.waited_us).max().unwrap_or(0);
            let low = answers.iter().map(|a| a.version).min().unwrap_or(0);
            let newest_round = answers.iter().map(|a| a.round_version).max().unwrap_or(0);
            if newest_round > low {
                // Some shards were a round ahead: meet them there.
                wanted.condition = ReadCondition::version(newest_round);
                continue;
            }
            let took_us = started.elapsed().as_micros() as u64;
            let transfer_us = took_us.saturating_sub(waited_us);
            let pushes = answers.first().map_or(0, |a| a.pushes);
            return Ok(PullStats { version: low, waited_us, transfer_us, pushes });
        }
    }

    fn pull_once(
        &mut self,
        wanted: PullRequest<'_>,
        into: &mut [f32],
        retries: &mut [RetryBudget],
    ) -> Result<Vec<Answer>, PsError> {
        let mut parts = vec![PullState::NotRequested; self.conns.len()];
        let mut waiting = true;
        while waiting {
            waiting = false;
            // Ask everybody before waiting for anybody.
            for (index, part) in parts.iter_mut().enumerate() {
                while matches!(part, PullState::NotRequested) {
                    let requested = match &self.conns[index].requested {
                        Some(before) if before.is(wanted) => Ok(()),
                        Some(_) => {
                            self.drop_link(index);
                            self.request_pull(index, wanted)
                        }
                        None => self.request_pull(index, wanted),
                    };
                    match requested {
                        Ok(()) => *part = PullState::Requested,
                        Err(error) => self.recover_pull(index, error, &mut retries[index])?,
                    }
                }
            }
            for (index, part) in parts.iter_mut().enumerate() {
                let step = match *part {
                    PullState::Requested => self.pull_answer(index, wanted),
                    PullState::Reading { got, at } => {
                        let range = self.part(index, wanted.rows);
                        let into = &mut into[range.start as usize..range.end as usize];
                        match self.pull_codec_of(wanted) {
                            Codec::Plain => self.read_turn(index, got, at, bytemuck::cast_slice_mut(into)),
                            codec => self.read_encoded_turn(index, got, at, codec, into),
                        }
                    }
                    PullState::NotRequested | PullState::Done(_) => continue,
                };
                waiting = true;
                match step {
                    // Also where it waits for a version, and says so.
                    Ok(next) => {
                        *part = next;
                        retries[index].progress();
                    }
                    Err(error) => {
                        *part = PullState::NotRequested;
                        self.recover_pull(index, error, &mut retries[index])?;
                    }
                }
            }
        }
        Ok(parts
            .iter()
            .filter_map(|p| if let PullState::Done(answer) = p { Some(*answer) } else { None })
            .collect())
    }

    /// After an error with one shard: tries again, or closes every connection that still owes an answer.
    fn recover_pull(
        &mut self,
        index: usize,
        error: LinkError,
        retry: &mut RetryBudget,
    ) -> Result<(), PsError> {
        self.recover(index, error, retry).inspect_err(|_| self.drop_requested())
    }

    pub(super) fn request_pull(&mut self, index: usize, wanted: PullRequest<'_>) -> Result<(), LinkError> {
        let (session, condition) = (self.session.clone(), wanted.condition);
        let codec = self.pull_codec_of(wanted);
        // The shard takes back what it had lent when it reads this, whatever it answers.
        self.conns[index].lent = None;
        let (link, _) = self.link(index)?;
        match wanted.rows {
            None => link.ask(&Request::Pull { session, condition, codec })?,
            Some(rows) => {
                let mut body = Vec::with_capacity(rows.bytes() as usize);
                rows.encode(&mut body);
                link.ask_with(&Request::PullRows { session, condition }, &body)?;
            }
        }
        self.conns[index].requested = Some(Requested { condition, rows: wanted.rows.cloned() });
        Ok(())
    }

    /// How the values of a pull travel: rows as they are, and what people look at, which is pinned, is always
    /// exact.
    fn pull_codec_of(&self, wanted: PullRequest<'_>) -> Codec {
        match wanted {
            PullRequest { condition: ReadCondition::Version { .. }, rows: None } => self.pull_codec,
            _ => Codec::Plain,
        }
    }

    fn pull_answer(&mut self, index: usize, wanted: PullRequest<'_>) -> Result<PullState, LinkError> {
        let rows = wanted.rows;
        let (range, silence) = (self.part(index, rows), self.options.silence_limit);
        let expected = match self.pull_codec_of(wanted) {
            Codec::Plain => range.len() * 4,
            codec => self.chunked(index).bytes_from(codec, 0),
        };
        let (link, _) = self.link(index)?;
        // The version may take as long as the slowest worker; a shard that waits for it says so. It is the
        // turn of the others then: what they send must be taken before they count this client among
        // those that vanished.
        link.set_read_timeout(Some(silence))?;
        let Some(answer) = link.answer_or_sign()? else { return Ok(PullState::Requested) };
        match answer {
            (Reply::Pulled { version, pushes, waited_us }, body) if body == expected => {
                Ok(PullState::Reading { got: Answer { version, pushes, waited_us, round_version: 0 }, at: 0 })
            }
            (Reply::Lent { version, pushes, waited_us, round_version, slot }, 0) if rows.is_none() => {
                let lent = link.lent.as_ref().and_then(|slots| LentValues::new(slots, slot, range));
                let conn = &mut self.conns[index];
                conn.requested = None;
                let unknown = || LinkError::Protocol(WireError::Unexpected(format!("slot {slot}")));
                conn.lent = Some(lent.ok_or_else(unknown)?);
                // If a round was applied while the values were copied: ask again.
                Ok(match round_version <= version {
                    true => PullState::Done(Answer { version, pushes, waited_us, round_version }),
                    false => PullState::NotRequested,
                })
            }
            (reply, _) => Err(unexpected_reply(&reply)),
        }
    }

    fn read_turn(
        &mut self,
        index: usize,
        got: Answer,
        at: usize,
        bytes: &mut [u8],
    ) -> Result<PullState, LinkError> {
        let alone = self.conns.len() == 1;
        let (link, _) = self.link(index)?;
        let until = if alone { bytes.len() } else { (at + TURN_BYTES).min(bytes.len()) };
        link.read_body(&mut bytes[at..until])?;
        if until < bytes.len() {
            return Ok(PullState::Reading { got, at: until });
        }
        self.read_end(index, got)
    }

    /// Reads one chunk, the `at`th, or all that are left of an only shard.
    fn read_encoded_turn(
        &mut self,
        index: usize,
        got: Answer,
        at: usize,
        codec: Codec,
        into: &mut [f32],
    ) -> Result<PullState, LinkError> {
        let (cut, alone) = (self.chunked(index), self.conns.len() == 1);
        let (first, count) = (at as u32, cut.count());
        let until = if alone { count } else { (first + 1).min(count) };
        let mut bytes = mem::take(&mut self.encoded);
        for chunk in first..until {
            let (trained, buffers) = cut.chunk(chunk);
            bytes.resize(codec.chunk_bytes(trained, buffers), 0);
            self.link(index)?.0.read_body(&mut bytes)?;
            let values = &mut into[chunk as usize * CHUNK_ELEMENTS..][..trained + buffers];
            match codec.decode(&bytes, trained, values) {
                // The parameters themselves: whoever computes on them finds out.
                Ok(()) | Err(CodecFault::NotFinite) => {}
                Err(fault) => return Err(garbled(fault)),
            }
        }
        self.encoded = bytes;
        if until < count {
            return Ok(PullState::Reading { got, at: until as usize });
        }
        self.read_end(index, got)
    }

    fn chunked(&self, index: usize) -> ChunkedRange {
        ChunkedRange::new(self.conns[index].range, self.pull_trained)
    }

    fn read_end(&mut self, index: usize, got: Answer) -> Result<PullState, LinkError> {
        let (link, _) = self.link(index)?;
        let end = link.answer()?;
        self.conns[index].requested = None;
        match end {
            (Reply::PullEnd { round_version }, 0) if round_version <= got.version => {
                Ok(PullState::Done(Answer { round_version, ..got }))
            }
            // A round was applied while the values were read: ask again.
            (Reply::PullEnd { .. }, 0) => Ok(PullState::NotRequested),
            (reply, _) => Err(unexpected_reply(&reply)),
        }
    }
}

fn garbled(fault: CodecFault) -> LinkError {
    LinkError::Protocol(WireError::Unexpected(fault.to_string()))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
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

    /// More than the buffers of both ends hold of one shard's half.
    const ELEMENTS: u64 = 16 << 20;

    /// Accepts one client of a shard, and takes its question.
    fn asked(listener: &TcpListener, token: &Token) -> TcpStream {
        let (mut stream, _) = listener.accept().unwrap();
        hello::receive_blocking(&mut stream, token, &[Role::Tensor], None).unwrap();
        // One that hangs fails the test.
        stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
        let question = Request::read(&mut stream, &mut Vec::new()).unwrap();
        assert!(matches!(question, Some((Request::Pull { .. }, _))), "{question:?}");
        stream
    }

    fn answer(stream: &mut TcpStream) -> std::io::Result<()> {
        let (mut out, body) = (Vec::new(), ELEMENTS / 2 * 4);
        Reply::Pulled { version: 1, pushes: 1, waited_us: 0 }.encode(body, &mut out);
        stream.write_all(&out)?;
        stream.write_all(&vec![0; body as usize])?;
        Reply::PullEnd { round_version: 1 }.encode(0, &mut out);
        stream.write_all(&out)
    }

    fn session() -> SessionKey {
        let run = RunId { job: "digits".parse().unwrap(), generation: Generation(1) };
        SessionKey { run, incarnation: Incarnation(1) }
    }

    #[test]
    fn an_interruption_is_not_counted_with_one_before_after_which_the_shard_was_there() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, token) = (listener.local_addr().unwrap().to_string(), Token::generate());
        let retry_limit = Duration::from_secs(4);
        thread::scope(|scope| {
            scope.spawn(|| {
                let (first, mut out) = (Instant::now(), Vec::new());
                drop(asked(&listener, &token));
                let mut stream = asked(&listener, &token);
                Reply::Waiting.encode(0, &mut out);
                while first.elapsed() < 2 * retry_limit {
                    stream.write_all(&out).unwrap();
                    thread::yield_now();
                }
                drop(stream);
                answer(&mut asked(&listener, &token)).unwrap();
            });
            let transport = TransportChoice::Only(Transport::Tcp);
            let options = ClientOptions { transport, retry_limit, ..ClientOptions::default() };
            let (addresses, cancel_token) = ([address].as_slice().into(), CancelToken::default());
            let connected = ShardSet::connect_with(
                &addresses,
                token.clone(),
                session(),
                ELEMENTS / 2,
                options,
                cancel_token,
            );
            let mut into = vec![1.0; ELEMENTS as usize / 2];
            let pulled = connected.unwrap().pull(ReadCondition::version(1), &mut into).unwrap();
            assert_eq!(pulled.version, 1);
        });
    }

    #[test]
    fn what_one_shard_sends_is_taken_while_another_one_waits_for_the_version() {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let addresses = listeners.each_ref().map(|listener| listener.local_addr().unwrap().to_string());
        let (token, is_sent) = (Token::generate(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = asked(&listeners[0], &token);
                let sent = answer(&mut stream);
                is_sent.store(true, Ordering::SeqCst);
                sent.unwrap();
                let _ = stream.read(&mut [0]);
            });
            scope.spawn(|| {
                let (mut stream, mut out) = (asked(&listeners[1], &token), Vec::new());
                Reply::Waiting.encode(0, &mut out);
                while !is_sent.load(Ordering::SeqCst) {
                    stream.write_all(&out).unwrap();
                    thread::yield_now();
                }
                answer(&mut stream).unwrap();
                let _ = stream.read(&mut [0]);
            });
            let transport = TransportChoice::Only(Transport::Tcp);
            let options = ClientOptions { transport, ..ClientOptions::default() };
            let (addresses, cancel_token) = (addresses.as_slice().into(), CancelToken::default());
            let connected =
                ShardSet::connect_with(&addresses, token.clone(), session(), ELEMENTS, options, cancel_token);
            let mut worker = connected.unwrap();
            let pulled = worker.pull(ReadCondition::version(1), &mut vec![1.0; ELEMENTS as usize]).unwrap();
            drop(worker);
            assert_eq!(pulled.version, 1);
        });
    }
}
