//! Answering a pull.

use std::io;

use syncline_scheduler::sync::UpdateMode;

use super::tensor::Caller;
use crate::{
    shard::{House, JobShard, Ready, Want},
    wire::{At, Duplex, Reply},
};

/// Waits for the version and sends the values.
pub(super) fn serve<D: Duplex>(
    house: &House,
    caller: &mut Caller<'_, D>,
    at: &At,
    want: Want,
) -> io::Result<()> {
    let conn = &caller.conn;
    let ready = house
        .find(&at.job, at.generation)
        .and_then(|job| job.wait(at.incarnation, want, || !conn.hung_up()).map(|ready| (job, ready)));
    match ready {
        Ok((job, ready)) => send(&job, caller, &ready),
        Err(fault) => caller.answer(Err(fault)),
    }
}

fn send<D: Duplex>(job: &JobShard, caller: &mut Caller<'_, D>, ready: &Ready) -> io::Result<()> {
    let Ready { version, pushes, waited_us, .. } = *ready;
    // A pinned copy does not change under the reader.
    let exact = job.mode() == UpdateMode::PerBarrier || ready.pinned.is_some();
    caller.reply_ahead(&Reply::Pulled { version, pushes, waited_us, exact }, job.range().len() * 4)?;
    let version = match &ready.pinned {
        Some(values) => {
            caller.conn.write_all(bytemuck::cast_slice(values))?;
            version
        }
        None => {
            for index in 0..job.chunk_count() {
                send_chunk(job, caller, index)?;
            }
            job.version()
        }
    };
    caller.reply(&Reply::PullEnd { version }, 0)
}

/// Sends a chunk from where it lies. What the socket does not take at once is copied and sent without the lock:
/// a slow reader must not hold up those who push.
fn send_chunk<D: Duplex>(job: &JobShard, caller: &mut Caller<'_, D>, index: u32) -> io::Result<()> {
    let Caller { conn, chunk, .. } = caller;
    let left = job.read_chunk(index, |values| {
        let sent = conn.send_now(bytemuck::cast_slice(values))?;
        let rest = &bytemuck::cast_slice::<f32, u8>(values)[sent..];
        bytemuck::cast_slice_mut(chunk)[..rest.len()].copy_from_slice(rest);
        Ok::<_, io::Error>(rest.len())
    })?;
    conn.write_all(&bytemuck::cast_slice::<f32, u8>(chunk)[..left])
}
