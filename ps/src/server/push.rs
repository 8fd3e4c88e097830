//! Receiving a push: one chunk into the buffer, applied at once while its bytes are in cache.

use std::io;

use syncline_engine::rpc::ShardFault;

use super::caller::Caller;
use crate::{
    shard::{Admission, CHUNK_ELEMENTS, House, JobShard, PushHeader, Tally},
    wire::{At, Duplex, Reply},
};

/// What the push's head said.
#[derive(Clone, Copy)]
pub(super) struct Order<'a> {
    pub at: &'a At,
    pub seq: u64,
    pub first_chunk: u32,
    pub header: &'a PushHeader,
}

/// Answers one push. An error leaves what was applied so far resumable.
pub(super) fn serve<D: Duplex>(
    house: &House,
    caller: &mut Caller<'_, D>,
    order: Order<'_>,
    body: u64,
) -> io::Result<()> {
    let job = match house.find(&order.at.job, order.at.generation) {
        Ok(job) => job,
        Err(fault) => {
            caller.drain(body)?;
            return caller.answer(Err(fault));
        }
    };
    if body != expected_bytes(&job, order) {
        // The rest cannot be told from the next frame: hang up after the answer.
        let what = format!("push of {body} bytes, expected {}", expected_bytes(&job, order));
        caller.answer(Err(ShardFault::Invalid { what: what.clone() }))?;
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let tally = match job.admit(order.at.incarnation, order.seq, order.first_chunk, order.header) {
        Ok(Admission::Fresh) => receive(&job, caller, order, body)?,
        Ok(Admission::Duplicate) => {
            caller.drain(body)?;
            job.tally(order.at.incarnation)
        }
        Err(fault) => {
            caller.drain(body)?;
            Err(fault)
        }
    };
    caller.answer(tally.map(Reply::Pushed))
}

fn expected_bytes(job: &JobShard, order: Order<'_>) -> u64 {
    if order.header.skip {
        return 0;
    }
    let before = u64::from(order.first_chunk) * CHUNK_ELEMENTS as u64;
    job.range().len().saturating_sub(before) * size_of::<f32>() as u64
}

fn receive<D: Duplex>(
    job: &JobShard,
    caller: &mut Caller<'_, D>,
    order: Order<'_>,
    body: u64,
) -> io::Result<Result<Tally, ShardFault>> {
    let Order { at, seq, first_chunk, header } = order;
    let mut left = body;
    let mut index = first_chunk;
    while left > 0 {
        let elements = CHUNK_ELEMENTS.min((left / size_of::<f32>() as u64) as usize);
        let gradient = &mut caller.chunk[..elements];
        caller.conn.read_exact(bytemuck::cast_slice_mut(gradient))?;
        left -= size_of_val(gradient) as u64;
        if let Err(fault) = job.apply(at.incarnation, seq, index, header, gradient) {
            caller.drain(left)?;
            return Ok(Err(fault));
        }
        index += 1;
    }
    Ok(job.complete(at.incarnation, seq, header))
}
