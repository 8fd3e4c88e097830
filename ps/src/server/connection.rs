//! A tensor connection on the serving side, with its buffers.

use std::io::{self, IoSlice};

use syncline_rpc::ShardFault;

use super::lending::Lending;
use crate::{
    codec::{Codec, CodecFault},
    shard::{CHUNK_ELEMENTS, JobShard},
    transport::Duplex,
    wire::Reply,
};

/// A connection with its long-lived buffers.
pub(super) struct Connection<'a, D> {
    pub duplex: &'a mut D,
    /// Frames on their way out.
    out: Vec<u8>,
    /// One chunk: pushes arrive here, and what a socket did not take of a pull waits here.
    pub chunk: Box<[f32]>,
    /// One chunk as it was encoded; empty until one comes.
    encoded: Vec<u8>,
    pub lending: Lending<'a>,
}

impl<'a, D: Duplex> Connection<'a, D> {
    pub fn new(duplex: &'a mut D) -> Self {
        let chunk = vec![0.0; CHUNK_ELEMENTS].into_boxed_slice();
        Self { duplex, out: Vec::new(), chunk, encoded: Vec::new(), lending: Lending::default() }
    }

    /// Sends an answer whose body of `body` bytes will follow.
    pub fn reply(&mut self, reply: &Reply, body: u64) -> io::Result<()> {
        reply.encode(body, &mut self.out);
        self.duplex.write_all(&self.out)
    }

    /// Sends the first elements of [`Connection::chunk`], of which `trained` are no buffers, in fewer bytes.
    pub fn send_encoded(&mut self, codec: Codec, trained: usize, buffers: usize) -> io::Result<()> {
        self.encoded.resize(codec.chunk_bytes(trained, buffers), 0);
        codec.encode(&mut self.chunk[..trained + buffers], trained, &mut self.encoded);
        self.duplex.write_all(&self.encoded)
    }

    /// Sends an answer that the kernel may hold back until its body follows, if there is one: it would hold
    /// it back for 0.2 s.
    pub fn reply_corked(&mut self, reply: &Reply, body: u64) -> io::Result<()> {
        if body == 0 {
            return self.reply(reply, 0);
        }
        reply.encode(body, &mut self.out);
        let sent = self.duplex.try_write_vectored(&mut [IoSlice::new(&self.out)])?;
        self.duplex.write_all(&self.out[sent..])
    }

    /// Sends an answer without body, or the fault.
    pub fn answer(&mut self, reply: Result<Reply, ShardFault>) -> io::Result<()> {
        self.reply(&reply.unwrap_or_else(Reply::Fault), 0)
    }

    /// Answers about a job, unless it is frozen or set aside, or was until just now, and only that speaks
    /// against it: who is told that a job is over would wait for another task in vain, and is hung up on
    /// instead.
    pub fn answer_about(&mut self, job: &JobShard, reply: Result<Reply, ShardFault>) -> io::Result<()> {
        match reply {
            Err(ShardFault::Closed { .. }) if job.may_go_on() => Err(io::ErrorKind::ConnectionRefused.into()),
            reply => self.answer(reply),
        }
    }

    /// Says what is wrong with a request, and ends the connection: the rest of it cannot be told from the
    /// next frame.
    pub fn hang_up(&mut self, what: String) -> io::Result<()> {
        self.answer(Err(ShardFault::Invalid { what: what.clone() }))?;
        Err(io::Error::new(io::ErrorKind::InvalidData, what))
    }

    /// Reads one chunk of a push, which takes so many bytes, and decodes it: `elements`, the first `trained`
    /// of them a gradient.
    pub fn read_chunk(
        &mut self,
        codec: Codec,
        trained: usize,
        elements: usize,
        bytes: usize,
    ) -> io::Result<Result<&[f32], CodecFault>> {
        let values = &mut self.chunk[..elements];
        if codec == Codec::Plain {
            self.duplex.read_exact(bytemuck::cast_slice_mut(values))?;
            return Ok(Ok(values));
        }
        if self.encoded.len() < bytes {
            self.encoded.resize(bytes, 0);
        }
        let encoded = &mut self.encoded[..bytes];
        self.duplex.read_exact(encoded)?;
        Ok(codec.decode(encoded, trained, values).map(|()| &*values))
    }

    /// Sends back the body of a question, at most [`ECHO_BYTES`](crate::wire::ECHO_BYTES).
    pub fn echo(&mut self, body: u64) -> io::Result<()> {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.chunk);
        let bytes = &mut bytes[..body as usize];
        self.duplex.read_exact(bytes)?;
        Reply::Echo.encode(body, &mut self.out);
        self.out.extend_from_slice(bytes);
        self.duplex.write_all(&self.out)
    }

    /// Reads and drops bytes, so that the fault can be answered: closing a connection with unread bytes would
    /// discard the answer.
    pub fn drain(&mut self, mut bytes: u64) -> io::Result<()> {
        while bytes > 0 {
            let buffer: &mut [u8] = bytemuck::cast_slice_mut(&mut self.chunk);
            let part = bytes.min(buffer.len() as u64) as usize;
            self.duplex.read_exact(&mut buffer[..part])?;
            bytes -= part as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        sync::Arc,
    };

    use syncline_scheduler::{
        ids::{EngineEpoch, Incarnation},
        sync::PushMode,
    };

    use super::{
        super::{norms, pull, push},
        *,
    };
    use crate::{
        shard::{JobTable, PushHeader, ReadCondition},
        wire::SessionKey,
    };

    /// Holds back what more follows of, as TCP does.
    #[derive(Default)]
    struct Holding {
        held: Vec<u8>,
        sent: Vec<u8>,
    }

    impl Duplex for Holding {
        fn try_write_vectored(&mut self, parts: &mut [IoSlice<'_>]) -> io::Result<usize> {
            parts.iter().for_each(|part| self.held.extend_from_slice(part));
            Ok(parts.iter().map(|part| part.len()).sum())
        }

        fn is_closed_by_peer(&self) -> bool {
            false
        }

        fn wait_readable(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Read for Holding {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Ok(0)
        }
    }

    impl Write for Holding {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.sent.append(&mut self.held);
            self.sent.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What was asked before the job was frozen is answered behind that, and its connection is not cut yet.
    #[test]
    fn nobody_is_told_that_a_job_is_over_that_is_being_set_aside() {
        let (jobs, epoch) = (JobTable::default(), EngineEpoch(1));
        let job = Arc::new(pull::tests::shard_that_clips(&[0.0; 3], Some(1.0)));
        jobs.restore(job.clone());
        job.freeze(epoch).unwrap();
        let session = SessionKey { run: job.run().clone(), incarnation: Incarnation(1) };
        let mode = PushMode::Apply;
        let header = PushHeader { learning_rate: 1.0, weight: 1.0, scale: 1.0, skip: true, mode, covers: 1 };
        type Ask<'a> = &'a dyn Fn(&mut Connection<'_, Holding>) -> io::Result<()>;
        let order = push::PushRequest {
            session: &session,
            seq: 1,
            first_chunk: 0,
            header: &header,
            codec: Codec::Plain,
        };
        let asked: [Ask<'_>; 4] = [
            &|connection| push::serve(&jobs, connection, order, 0),
            &|connection| push::serve_cursor(&jobs, connection, &session),
            &|connection| pull::serve(&jobs, connection, &session, ReadCondition::version(0), Codec::Plain),
            &|connection| norms::serve(&jobs, connection, &session, 0),
        ];
        let ask = |ask: Ask<'_>| {
            let mut duplex = Holding::default();
            let asked = ask(&mut Connection::new(&mut duplex));
            (asked.map_err(|error| error.kind()), duplex.sent.is_empty())
        };
        for is_asked in asked {
            assert_eq!(ask(is_asked), (Err(io::ErrorKind::ConnectionRefused), true));
        }
        jobs.close(epoch, job.run()).unwrap();
        for is_asked in asked {
            assert_eq!(ask(is_asked), (Ok(()), false), "it is over");
        }
    }

    #[test]
    fn only_an_answer_whose_body_follows_is_held_back() {
        for (body, is_held) in [(0, false), (1, true)] {
            let mut duplex = Holding::default();
            Connection::new(&mut duplex).reply_corked(&Reply::BlobList, body).unwrap();
            assert_eq!((duplex.sent.is_empty(), duplex.held.is_empty()), (is_held, !is_held), "{body}");
        }
    }
}
