//! Answering a pull.

use std::{
    io::{self, IoSlice},
    sync::Arc,
};

use super::{connection::Connection, keep_alive::KeepAlive, lending::lend};
use crate::{
    codec::Codec,
    shard::{CHUNK_ELEMENTS, JobShard, JobTable, ReadCondition, ReadGrant},
    transport::Duplex,
    wire::{Reply, SessionKey},
};

/// Chunks handed to the kernel at once, 4 MiB. One large write costs less than many: the reader wakes up less
/// often.
const CHUNKS_PER_SEND: usize = 16;

/// Checks that a caller which waits is still connected, and tells it now and then that it waits.
#[derive(Default)]
pub(super) struct PresenceCheck(KeepAlive);

impl PresenceCheck {
    /// Whether the caller is still there. It is told now and then that it waits.
    pub(super) fn is_there<D: Duplex>(&mut self, connection: &mut Connection<'_, D>) -> bool {
        match self.0.send_if_due(connection) {
            Ok(false) => !connection.duplex.is_closed_by_peer(),
            told => told.is_ok(),
        }
    }

    /// Waits until the caller may be told, which `confirm` says; it asks whether the caller is still there.
    /// An error if the caller must not be told: whoever is not answered asks again, whoever serves the
    /// shard then.
    pub(super) fn until<D: Duplex>(
        &mut self,
        connection: &mut Connection<'_, D>,
        confirm: impl FnOnce(&mut dyn FnMut() -> bool) -> bool,
    ) -> io::Result<()> {
        match confirm(&mut || self.is_there(connection)) {
            true => Ok(()),
            false => Err(io::ErrorKind::Interrupted.into()),
        }
    }
}

/// Waits for the version and sends the values.
pub(super) fn serve<D: Duplex>(
    jobs: &JobTable,
    connection: &mut Connection<'_, D>,
    session: &SessionKey,
    condition: ReadCondition,
    codec: Codec,
) -> io::Result<()> {
    let job = match jobs.find(&session.run) {
        Ok(job) => job,
        Err(fault) => return connection.answer(Err(fault)),
    };
    let mut presence = PresenceCheck::default();
    match job.wait_readable(session.incarnation, condition, || presence.is_there(connection)) {
        Ok(grant) => {
            // A version that the standby lacks may not be worked on: it would be made again behind that work.
            if condition.needs_close() {
                presence.until(connection, |is_there| job.confirm_close(is_there))?;
            }
            send(&job, connection, &grant, codec)
        }
        Err(fault) => connection.answer_about(&job, Err(fault)),
    }
}

fn send<D: Duplex>(
    job: &Arc<JobShard>,
    connection: &mut Connection<'_, D>,
    grant: &ReadGrant,
    codec: Codec,
) -> io::Result<()> {
    let ReadGrant { version, pushes, waited_us, .. } = *grant;
    if grant.pinned.is_none()
        && let Some(slot) = lend(job, connection)?
    {
        let round_version = job.round_version();
        return connection.reply(&Reply::Lent { version, pushes, waited_us, round_version, slot }, 0);
    }
    let bytes = job.chunked_range().bytes_from(codec, 0);
    connection.reply_corked(&Reply::Pulled { version, pushes, waited_us }, bytes)?;
    match (&grant.pinned, codec) {
        (Some(values), Codec::Plain) => connection.duplex.write_all(bytemuck::cast_slice(values))?,
        (None, Codec::Plain) => send_all(job, connection)?,
        (pinned, codec) => send_encoded(job, connection, pinned.as_ref().map(|values| &values[..]), codec)?,
    }
    // A pinned copy does not change under the reader.
    let round_version = if grant.pinned.is_some() { 0 } else { job.round_version() };
    connection.reply(&Reply::PullEnd { round_version }, 0)
}

/// Sends every chunk in fewer bytes, of `pinned` or in its latest state.
fn send_encoded<D: Duplex>(
    job: &JobShard,
    connection: &mut Connection<'_, D>,
    pinned: Option<&[f32]>,
    codec: Codec,
) -> io::Result<()> {
    let cut = job.chunked_range();
    for index in 0..cut.count() {
        let (trained, buffers) = cut.chunk(index);
        let values = &mut connection.chunk[..trained + buffers];
        match pinned {
            Some(all) => values.copy_from_slice(&all[index as usize * CHUNK_ELEMENTS..][..values.len()]),
            None => job.read_chunks(index, 1, |chunks| values.copy_from_slice(chunks[0])),
        }
        connection.send_encoded(codec, trained, buffers)?;
    }
    Ok(())
}

/// Sends every chunk in its latest state.
fn send_all<D: Duplex>(job: &JobShard, connection: &mut Connection<'_, D>) -> io::Result<()> {
    let mut index = 0;
    while index < job.chunk_count() {
        index += send_chunks(job, connection, index)?;
    }
    Ok(())
}

/// Sends chunk `first` and some behind it from where they lie; returns how many. What the socket does not
/// take at once of a chunk is copied and sent without the lock: a slow reader must not hold up those who
/// push.
fn send_chunks<D: Duplex>(job: &JobShard, connection: &mut Connection<'_, D>, first: u32) -> io::Result<u32> {
    let Connection { duplex, chunk: rest_of_chunk, .. } = connection;
    let (count, left) = job.read_chunks(first, CHUNKS_PER_SEND, |chunks| {
        let mut parts: Vec<IoSlice<'_>> =
            chunks.iter().map(|c| IoSlice::new(bytemuck::cast_slice(c))).collect();
        let mut sent = duplex.try_write_vectored(&mut parts)?;
        for (count, chunk) in (0..).zip(chunks) {
            let bytes: &[u8] = bytemuck::cast_slice(chunk);
            // The first chunk goes in any case; one of which nothing went is read again later, in its then
            // latest state.
            if sent < bytes.len() && (sent > 0 || count == 0) {
                let rest = &bytes[sent..];
                bytemuck::cast_slice_mut(rest_of_chunk)[..rest.len()].copy_from_slice(rest);
                return Ok::<_, io::Error>((count + 1, rest.len()));
            }
            if sent < bytes.len() {
                return Ok((count, 0));
            }
            sent -= bytes.len();
        }
        Ok((chunks.len() as u32, 0))
    })?;
    duplex.write_all(&bytemuck::cast_slice::<f32, u8>(rest_of_chunk)[..left])?;
    Ok(count)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use syncline_rpc::OpenJob;
    use syncline_scheduler::{
        ids::{ContentDigest, EngineEpoch, Generation, Incarnation, RunId, ShardIndex},
        spec::{ElementRange, Layout, Optimizer, Parameter},
        sync::PushMode,
    };

    use super::{super::rig, *};
    use crate::shard::{PushHeader, PushedChunk};

    const EPOCH: EngineEpoch = EngineEpoch(1);

    /// A socket that takes so many bytes at once, in turn, and everything from who waits.
    struct Narrow {
        takes: Vec<usize>,
        got: Vec<u8>,
    }

    impl Duplex for Narrow {
        fn try_write_vectored(&mut self, parts: &mut [IoSlice<'_>]) -> io::Result<usize> {
            let all: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
            let most = self.takes.pop().unwrap_or(0);
            let sent = &all[..most.min(all.len())];
            self.got.extend_from_slice(sent);
            Ok(sent.len())
        }

        fn is_closed_by_peer(&self) -> bool {
            false
        }

        fn wait_readable(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl io::Read for Narrow {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Ok(0)
        }
    }

    impl io::Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.got.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A socket that takes nothing without waiting, and something happens while it is written to.
    pub(in crate::server) struct Meanwhile<'a, F> {
        /// What the other side has sent.
        pub sent: &'a [u8],
        pub happens: Option<F>,
        pub got: Vec<u8>,
    }

    impl<F> Duplex for Meanwhile<'_, F>
    where
        Self: io::Write,
    {
        fn try_write_vectored(&mut self, _: &mut [IoSlice<'_>]) -> io::Result<usize> {
            Ok(0)
        }

        fn is_closed_by_peer(&self) -> bool {
            false
        }

        fn wait_readable(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<F> io::Read for Meanwhile<'_, F> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.sent.read(into)
        }
    }

    impl<F: FnOnce()> io::Write for Meanwhile<'_, F> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if let Some(happens) = self.happens.take() {
                happens();
            }
            self.got.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A shard that holds `values`.
    pub(in crate::server) fn shard(values: &[f32]) -> JobShard {
        shard_that_clips(values, None)
    }

    /// The same of a job that shortens the mean of a round to this norm.
    pub(in crate::server) fn shard_that_clips(values: &[f32], clip_norm: Option<f32>) -> JobShard {
        shard_of("digits", values, clip_norm)
    }

    /// The same of the job of this name.
    pub(in crate::server) fn shard_of(job: &str, values: &[f32], clip_norm: Option<f32>) -> JobShard {
        let elements = values.len() as u64;
        let order = OpenJob {
            run: RunId { job: job.parse().unwrap(), generation: Generation(1) },
            shard: ShardIndex(0),
            shards: vec![String::new()],
            layout: Layout(vec![Parameter::trained("w", vec![elements])]),
            optimizer: Optimizer::Sgd { weight_decay: 0.0 },
            clip_norm,
            initial: ContentDigest::LOWEST,
            resumed: None,
            checkpoint: None,
            known_through: None,
        };
        let mut bytes: &[u8] = bytemuck::cast_slice(values);
        JobShard::read(&order, ElementRange { start: 0, end: elements }, EPOCH, &mut bytes).unwrap()
    }

    #[test]
    fn an_answer_ends_with_the_round_that_was_applied_while_it_was_sent() {
        for (mode, want) in [(PushMode::Apply, 0), (PushMode::Accumulate, 1)] {
            let (job, worker) = (Arc::new(shard(&[0.0; 3])), Incarnation(1));
            let header =
                PushHeader { learning_rate: 1.0, weight: 1.0, scale: 1.0, skip: false, mode, covers: 1 };
            let happens = || {
                let chunk = PushedChunk { worker, seq: 1, index: 0, header: &header, share: None };
                job.apply(chunk, &[1.0; 3]).unwrap();
                job.complete(worker, 1, &header).unwrap();
                job.add_barrier(EPOCH, rig::round_of(worker)).unwrap();
            };
            let grant = job.wait_readable(worker, ReadCondition::version(0), || true).unwrap();
            let mut socket = Meanwhile { sent: &[], happens: Some(happens), got: Vec::new() };
            send(&job, &mut Connection::new(&mut socket), &grant, Codec::Plain).unwrap();
            let (mut answer, mut scratch) = (&socket.got[..], Vec::new());
            let (head, body) = Reply::read(&mut answer, &mut scratch).unwrap();
            assert!(matches!(head, Reply::Pulled { version: 0, .. }), "{head:?}");
            answer = &answer[body as usize..];
            let (end, _) = Reply::read(&mut answer, &mut scratch).unwrap();
            assert_eq!((end, job.version()), (Reply::PullEnd { round_version: want }, 1));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

        #[test]
        fn a_slow_reader_gets_every_value_once(
            chunks in 0usize..20,
            tail in 0usize..1000,
            takes in prop::collection::vec(
                prop_oneof![Just(0), (0usize..20).prop_map(|n| n * CHUNK_ELEMENTS * 4), 0usize..5_000_000],
                0..8,
            ),
        ) {
            let values: Vec<f32> = (0..chunks * CHUNK_ELEMENTS + tail).map(|i| i as f32).collect();
            let (job, bytes): (_, &[u8]) = (shard(&values), bytemuck::cast_slice(&values));
            let mut socket = Narrow { takes, got: Vec::new() };
            send_all(&job, &mut Connection::new(&mut socket)).unwrap();
            prop_assert!(socket.got == bytes);
        }
    }
}
