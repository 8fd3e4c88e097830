//! One tensor connection: a question, its answer, the next question.

use std::io::{self, IoSlice};

use syncline_engine::rpc::ShardFault;

use super::{Shared, blobs, pull, push};
use crate::{
    shard::CHUNK_ELEMENTS,
    wire::{Duplex, Reply, Request, WireError},
};

/// A connection with its long-lived buffers.
pub(super) struct Caller<'a, D> {
    pub conn: &'a mut D,
    /// Frames on their way out.
    out: Vec<u8>,
    /// One chunk: pushes arrive here, and what a socket did not take of a pull waits here.
    pub chunk: Box<[f32]>,
}

/// Serves until the caller hangs up. An error means that the connection is of no use any more.
pub(super) fn serve(shared: &Shared, conn: &mut impl Duplex) -> io::Result<()> {
    let mut caller = Caller::new(conn);
    let mut scratch = Vec::new();
    loop {
        let (request, body) = match Request::read(caller.conn, &mut scratch) {
            Ok(Some(next)) => next,
            Ok(None) => return Ok(()),
            Err(WireError::Io(error)) => return Err(error),
            Err(broken) => {
                caller.reply(&Reply::Fault(ShardFault::Invalid { what: broken.to_string() }), 0)?;
                return Err(broken.into());
            }
        };
        match request {
            Request::Push { at, seq, first_chunk, header } => {
                let order = push::Order { at: &at, seq, first_chunk, header: &header };
                push::serve(&shared.house, &mut caller, order, body)?;
            }
            Request::Pull { at, want } => pull::serve(&shared.house, &mut caller, &at, want)?,
            Request::Where { at } => {
                let place =
                    shared.house.find(&at.job, at.generation).and_then(|job| job.place(at.incarnation));
                caller.answer(place.map(Reply::Where))?;
            }
            Request::PutBlob { digest } => blobs::serve_put(&shared.blobs, &mut caller, digest, body)?,
            Request::GetBlob { digest, offset, length } => {
                blobs::serve_get(&shared.blobs, &mut caller, digest, offset, length)?;
            }
            Request::StatBlob { digest } => {
                caller.answer(shared.blobs.stat(&digest).map(|bytes| Reply::BlobStat { bytes }))?;
            }
        }
    }
}

impl<'a, D: Duplex> Caller<'a, D> {
    pub fn new(conn: &'a mut D) -> Self {
        Self { conn, out: Vec::new(), chunk: vec![0.0; CHUNK_ELEMENTS].into_boxed_slice() }
    }

    /// Sends an answer whose body of `body` bytes will follow.
    pub fn reply(&mut self, reply: &Reply, body: u64) -> io::Result<()> {
        reply.encode(body, &mut self.out);
        self.conn.write_all(&self.out)
    }

    /// Sends an answer that may be held back until its body follows.
    pub fn reply_ahead(&mut self, reply: &Reply, body: u64) -> io::Result<()> {
        reply.encode(body, &mut self.out);
        let sent = self.conn.send_now(&mut [IoSlice::new(&self.out)])?;
        self.conn.write_all(&self.out[sent..])
    }

    /// Sends an answer without body, or the fault.
    pub fn answer(&mut self, reply: Result<Reply, ShardFault>) -> io::Result<()> {
        self.reply(&reply.unwrap_or_else(Reply::Fault), 0)
    }

    /// Reads bytes that nobody wants, so that the fault behind them can be heard: closing a connection with unread
    /// bytes would throw the answer away.
    pub fn drain(&mut self, mut bytes: u64) -> io::Result<()> {
        while bytes > 0 {
            let buffer: &mut [u8] = bytemuck::cast_slice_mut(&mut self.chunk);
            let part = bytes.min(buffer.len() as u64) as usize;
            self.conn.read_exact(&mut buffer[..part])?;
            bytes -= part as u64;
        }
        Ok(())
    }
}
