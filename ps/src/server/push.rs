//! Receiving a push: one chunk into the buffer, applied at once while its bytes are in cache.

use std::io;

use syncline_rpc::ShardFault;

use super::{
    connection::Connection,
    keep_alive::{KEEP_ALIVE_INTERVAL, KeepAlive, LARGE_BYTES, with_keep_alive},
    pull::PresenceCheck,
};
use crate::{
    codec::Codec,
    shard::{Admission, CHUNK_ELEMENTS, JobShard, JobTable, PushAck, PushHeader, PushedChunk},
    transport::Duplex,
    wire::{Reply, SessionKey},
};

/// The fields of a push's head.
#[derive(Clone, Copy)]
pub(super) struct PushRequest<'a> {
    pub session: &'a SessionKey,
    pub seq: u64,
    pub first_chunk: u32,
    pub header: &'a PushHeader,
    pub codec: Codec,
}

/// Says how far the pushes of a worker have come.
pub(super) fn serve_cursor<D: Duplex>(
    jobs: &JobTable,
    connection: &mut Connection<'_, D>,
    session: &SessionKey,
) -> io::Result<()> {
    let job = match jobs.find(&session.run) {
        Ok(job) => job,
        Err(fault) => return connection.answer(Err(fault)),
    };
    // What closes the round may be the very push whose end is asked for.
    PresenceCheck::default().until(connection, |is_there| job.wait_while_busy(is_there))?;
    let cursor = job.push_cursor(session.incarnation);
    if cursor.is_ok() {
        PresenceCheck::default().until(connection, |is_there| job.confirm(is_there))?;
    }
    connection.answer_about(&job, cursor.map(Reply::PushCursor))
}

/// Answers one push. An error leaves what was applied so far resumable.
pub(super) fn serve<D: Duplex>(
    jobs: &JobTable,
    connection: &mut Connection<'_, D>,
    order: PushRequest<'_>,
    body: u64,
) -> io::Result<()> {
    let job = match jobs.find(&order.session.run) {
        Ok(job) => job,
        Err(fault) => {
            connection.drain(body)?;
            return connection.answer(Err(fault));
        }
    };
    let expected = expected_bytes(&job, order);
    if body != expected {
        return connection.hang_up(format!("push of {body} bytes, expected {expected}"));
    }
    let ack = match job.admit(order.session.incarnation, order.seq, order.first_chunk, order.header) {
        Ok(Admission::Fresh) => receive(&job, connection, order, body)?,
        Ok(Admission::Duplicate) => {
            connection.drain(body)?;
            job.duplicate_ack(order.session.incarnation)
        }
        Err(fault) => {
            connection.drain(body)?;
            Err(fault)
        }
    };
    answer_push(&job, connection, ack)
}

/// Acknowledges a push when the standby has it. Whoever is not answered sends the push again, to whoever
/// serves the shard then.
pub(super) fn answer_push<D: Duplex>(
    job: &JobShard,
    connection: &mut Connection<'_, D>,
    ack: Result<PushAck, ShardFault>,
) -> io::Result<()> {
    if ack.is_ok() {
        PresenceCheck::default().until(connection, |is_there| job.confirm(is_there))?;
    }
    connection.answer_about(job, ack.map(Reply::Pushed))
}

fn expected_bytes(job: &JobShard, order: PushRequest<'_>) -> u64 {
    if order.header.skip {
        return 0;
    }
    if order.codec != Codec::Plain {
        return job.chunked_range().bytes_from(order.codec, order.first_chunk);
    }
    let before = u64::from(order.first_chunk) * CHUNK_ELEMENTS as u64;
    job.range().len().saturating_sub(before) * size_of::<f32>() as u64
}

fn receive<D: Duplex>(
    job: &JobShard,
    connection: &mut Connection<'_, D>,
    order: PushRequest<'_>,
    body: u64,
) -> io::Result<Result<PushAck, ShardFault>> {
    let PushRequest { session, seq, first_chunk, header, codec } = order;
    let mut left = body;
    let mut index = first_chunk;
    let mut keep_alive = KeepAlive::default();
    while left > 0 {
        let (trained, buffers) = job.chunked_range().chunk(index);
        let bytes = codec.chunk_bytes(trained, buffers);
        let pushed = connection.read_chunk(codec, trained, trained + buffers, bytes)?;
        left -= bytes as u64;
        let applied = match pushed {
            Ok(pushed) => {
                let worker = session.incarnation;
                job.apply(PushedChunk { worker, seq, index, header, share: None }, pushed)
            }
            Err(fault) => Err(ShardFault::Invalid { what: format!("chunk {index} of push {seq}: {fault}") }),
        };
        if let Err(fault) = applied {
            connection.drain(left)?;
            return Ok(Err(fault));
        }
        index += 1;
        keep_alive.send_if_due(connection)?;
    }
    complete(job, connection, session, seq, header)
}

/// Counts a push that is in. The round that it may close takes its time where the shard is large.
pub(super) fn complete<D: Duplex>(
    job: &JobShard,
    connection: &mut Connection<'_, D>,
    session: &SessionKey,
    seq: u64,
    header: &PushHeader,
) -> io::Result<Result<PushAck, ShardFault>> {
    let complete = || job.complete(session.incarnation, seq, header);
    if job.bytes() < LARGE_BYTES {
        return Ok(complete());
    }
    with_keep_alive(connection, KEEP_ALIVE_INTERVAL, complete)
}
