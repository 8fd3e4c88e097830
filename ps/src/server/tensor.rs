//! One tensor connection: a question, its answer, the next question.

use std::io;

use syncline_engine::rpc::ShardFault;

use super::{Shared, blobs, caller::Caller, norms, pull, push};
use crate::wire::{Duplex, Reply, Request, WireError};

/// Serves until the caller hangs up. An error means that the connection is of no use any more.
pub(super) fn serve(shared: &Shared, conn: &mut impl Duplex) -> io::Result<()> {
    let mut caller = Caller::new(conn);
    let mut scratch = Vec::new();
    loop {
        caller.conn.wait_for_bytes()?;
        // A stop ends the connection between two questions even if the next one has come in already.
        shared.stopping()?;
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
            Request::Norm { at, round } => norms::serve(&shared.house, &mut caller, &at, round)?,
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
                caller.answer(shared.blobs.claim(&digest).map(|bytes| Reply::BlobStat { bytes }))?;
            }
        }
    }
}
