//! Receiving and sending the rows of a batch: a selection first, then what it selects, chunk by chunk.

use std::io;

use syncline_rpc::ShardFault;

use super::{
    connection::Connection,
    keep_alive::KeepAlive,
    pull::PresenceCheck,
    push::{PushRequest, answer_push, complete},
};
use crate::{
    rows::{Piece, RowFault, RowSelection, RowTables},
    shard::{Admission, CHUNK_ELEMENTS, JobShard, JobTable, PushAck, ReadCondition, ReadGrant, copy_pieces},
    transport::Duplex,
    wire::{Reply, SessionKey},
};

/// Answers one push. An error leaves what was applied so far resumable.
pub(super) fn serve_push<D: Duplex>(
    jobs: &JobTable,
    connection: &mut Connection<'_, D>,
    order: PushRequest<'_>,
    body: u64,
) -> io::Result<()> {
    let (session, mut left) = (order.session, body);
    let read = read_selection(jobs, connection, session, &mut left)?;
    let (job, selection) = match read {
        Ok(read) => read,
        Err(fault) => return refuse(connection, left, fault),
    };
    let pieces = || selected(&job, &selection, order.first_chunk);
    let expected = pieces().map(|piece| u64::from(piece.len)).sum::<u64>() * size_of::<f32>() as u64;
    if left != expected {
        let rows = selection.count();
        return connection.hang_up(format!("push of {left} bytes behind {rows} rows, expected {expected}"));
    }
    let ack = match job.admit(session.incarnation, order.seq, order.first_chunk, order.header) {
        Ok(Admission::Fresh) => receive(&job, connection, order, pieces(), &mut left)?,
        Ok(Admission::Duplicate) => job.duplicate_ack(session.incarnation),
        Err(fault) => Err(fault),
    };
    connection.drain(left)?;
    answer_push(&job, connection, ack)
}

/// Reads chunk after chunk and applies each at once.
fn receive<D: Duplex>(
    job: &JobShard,
    connection: &mut Connection<'_, D>,
    order: PushRequest<'_>,
    pieces: impl Iterator<Item = Piece>,
    left: &mut u64,
) -> io::Result<Result<PushAck, ShardFault>> {
    let PushRequest { session, seq, header, .. } = order;
    let (mut pieces, mut of_chunk) = (pieces.peekable(), Vec::new());
    let mut keep_alive = KeepAlive::default();
    while let Some(elements) = next_chunk(&mut pieces, &mut of_chunk) {
        let pushed = &mut connection.chunk[..elements];
        connection.duplex.read_exact(bytemuck::cast_slice_mut(pushed))?;
        *left -= size_of_val(pushed) as u64;
        if let Err(fault) = job.apply_rows(session.incarnation, seq, header, &of_chunk, pushed) {
            return Ok(Err(fault));
        }
        keep_alive.send_if_due(connection)?;
    }
    complete(job, connection, session, seq, header)
}

/// Waits for the version and sends what is selected.
pub(super) fn serve_pull<D: Duplex>(
    jobs: &JobTable,
    connection: &mut Connection<'_, D>,
    session: &SessionKey,
    condition: ReadCondition,
    body: u64,
) -> io::Result<()> {
    let mut left = body;
    let (job, selection) = match read_selection(jobs, connection, session, &mut left)? {
        Ok(_) if left > 0 => {
            let what = format!("{left} bytes behind the rows of a pull");
            return refuse(connection, left, ShardFault::Invalid { what });
        }
        Ok(read) => read,
        Err(fault) => return refuse(connection, left, fault),
    };
    let mut presence = PresenceCheck::default();
    match job.wait_readable(session.incarnation, condition, || presence.is_there(connection)) {
        Ok(grant) => {
            // A version that the standby lacks may not be worked on: it would be made again behind that work.
            if condition.needs_close() {
                presence.until(connection, |is_there| job.confirm_close(is_there))?;
            }
            send(&job, connection, &selection, &grant)
        }
        Err(fault) => connection.answer_about(&job, Err(fault)),
    }
}

/// Sends what is selected, each chunk in its latest state, or in that of the pinned version.
fn send<D: Duplex>(
    job: &JobShard,
    connection: &mut Connection<'_, D>,
    selection: &RowSelection,
    grant: &ReadGrant,
) -> io::Result<()> {
    let ReadGrant { version, pushes, waited_us, .. } = *grant;
    let pieces = || selected(job, selection, 0);
    let bytes = pieces().map(|piece| u64::from(piece.len)).sum::<u64>() * size_of::<f32>() as u64;
    connection.reply_corked(&Reply::Pulled { version, pushes, waited_us }, bytes)?;
    let (mut pieces, mut of_chunk) = (pieces().peekable(), Vec::new());
    let mut filled = 0;
    while let Some(elements) = next_chunk(&mut pieces, &mut of_chunk) {
        if filled + elements > CHUNK_ELEMENTS {
            connection.duplex.write_all(bytemuck::cast_slice(&connection.chunk[..filled]))?;
            filled = 0;
        }
        let into = &mut connection.chunk[filled..filled + elements];
        match (&grant.pinned, of_chunk.first()) {
            (Some(values), Some(first)) => {
                copy_pieces(&values[first.chunk as usize * CHUNK_ELEMENTS..], &of_chunk, into);
            }
            _ => job.read_pieces(&of_chunk, into),
        }
        filled += elements;
    }
    connection.duplex.write_all(bytemuck::cast_slice(&connection.chunk[..filled]))?;
    // A pinned copy does not change under the reader.
    let round_version = if grant.pinned.is_some() { 0 } else { job.round_version() };
    connection.reply(&Reply::PullEnd { round_version }, 0)
}

/// What is selected of the shard's range, from chunk `first_chunk` on.
fn selected<'a>(
    job: &'a JobShard,
    selection: &'a RowSelection,
    first_chunk: u32,
) -> impl Iterator<Item = Piece> + 'a {
    let pieces = move |tables: &'a RowTables| tables.pieces(selection, job.range(), first_chunk);
    job.tables().into_iter().flat_map(pieces)
}

/// Takes the pieces of the next chunk; returns how many elements they have together.
fn next_chunk(
    pieces: &mut std::iter::Peekable<impl Iterator<Item = Piece>>,
    of_chunk: &mut Vec<Piece>,
) -> Option<usize> {
    of_chunk.clear();
    let chunk = pieces.peek()?.chunk;
    let mut elements = 0;
    while let Some(piece) = pieces.next_if(|piece| piece.chunk == chunk) {
        elements += piece.len as usize;
        of_chunk.push(piece);
    }
    Some(elements)
}

type Job = std::sync::Arc<JobShard>;

/// Reads which rows are meant, if there is such a job and it has tables.
fn read_selection<D: Duplex>(
    jobs: &JobTable,
    connection: &mut Connection<'_, D>,
    session: &SessionKey,
    left: &mut u64,
) -> io::Result<Result<(Job, RowSelection), ShardFault>> {
    let job = match jobs.find(&session.run) {
        Ok(job) => job,
        Err(fault) => return Ok(Err(fault)),
    };
    let Some(tables) = job.tables() else {
        let what = format!("rows of job {}, which has no tables", session.run.job);
        return Ok(Err(ShardFault::Invalid { what }));
    };
    let invalid = |fault: RowFault| ShardFault::Invalid { what: fault.to_string() };
    let selection = RowSelection::read(tables, connection.duplex, left)?.map_err(invalid);
    Ok(selection.map(|selection| (job, selection)))
}

/// Reads the rest of a body and answers with a fault: the connection goes on.
fn refuse<D: Duplex>(connection: &mut Connection<'_, D>, left: u64, fault: ShardFault) -> io::Result<()> {
    connection.drain(left)?;
    connection.answer(Err(fault))
}
