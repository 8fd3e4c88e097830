//! What a worker on this machine reads and writes where it lies: the job's parameters in our memory, its
//! gradients in its own.

use std::{
    io,
    os::fd::OwnedFd,
    ptr,
    sync::{Arc, Weak},
    time::Duration,
};

use syncline_rpc::ShardFault;

use super::{
    connection::Connection,
    connections::{Connections, CountedMemory},
    keep_alive::{KEEP_ALIVE_INTERVAL, LARGE_BYTES, with_keep_alive},
    push::{PushRequest, answer_push, complete},
};
use crate::{
    shard::{Admission, CHUNK_ELEMENTS, JobShard, JobTable, PushedChunk},
    transport::{Access, Channel, Duplex, Mapping, PAGE_BYTES, Pages, Transport, sealed_bytes},
    wire::{Reply, SessionKey},
};

/// What one connection was lent, and what it has given.
#[derive(Default)]
pub(super) struct Lending<'c> {
    loan: Option<Loan>,
    gradients: Option<Gradients<'c>>,
}

/// Parameters that the caller maps. Given back when the connection ends. A caller that stays does not keep a
/// job that has ended.
struct Loan {
    job: Weak<JobShard>,
    slot: Option<u32>,
}

/// The part of the caller's gradients that this shard's range is.
struct Gradients<'c> {
    job: Weak<JobShard>,
    mapping: Mapping,
    elements: usize,
    /// From the mapping's start to the first gradient.
    offset: usize,
    _counted: CountedMemory<'c>,
}

impl Lending<'_> {
    /// The caller reads the slot no more that it was lent last.
    pub(super) fn give_back(&mut self) {
        if let Some(loan) = &mut self.loan {
            loan.give_back();
        }
    }
}

impl Loan {
    /// Lends a slot with the latest values, if one is free.
    fn lend(&mut self, job: &JobShard) -> Option<u32> {
        self.give_back();
        self.slot = job.lend();
        self.slot
    }

    fn give_back(&mut self) {
        if let Some(slot) = self.slot.take()
            && let Some(job) = self.job.upgrade()
        {
            job.give_back(slot);
        }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl<'c> Gradients<'c> {
    fn map(job: &Arc<JobShard>, memory: OwnedFd, connections: &'c Connections) -> Result<Self, ShardFault> {
        let refuse = |cause: String| ShardFault::Io { what: "cannot take gradients".into(), cause };
        let range = job.range();
        let (memory, bytes) = sealed_bytes(memory).map_err(|error| refuse(error.to_string()))?;
        let [start, end] = [range.start, range.end].map(|at| at as usize * size_of::<f32>());
        if bytes < end {
            return Err(refuse(format!("{bytes} bytes of memory, expected {end}")));
        }
        let first_page = start - start % PAGE_BYTES;
        let _counted = connections
            .count_shared(end - first_page)
            .ok_or_else(|| refuse("too many connections share memory".into()))?;
        // The caller takes the pages once it knows that it is heard, and before it pushes from there.
        let mapping = Mapping::new(&memory, first_page..end, Access::Read, Pages::WhenTouched)
            .map_err(|error| refuse(error.to_string()))?;
        let (job, elements) = (Arc::downgrade(job), range.len() as usize);
        Ok(Self { job, mapping, elements, offset: start - first_page, _counted })
    }

    #[expect(unsafe_code, reason = "the numbers lie in memory that the caller maps")]
    fn values(&self) -> &[f32] {
        // SAFETY: the memory cannot shrink. The caller, who holds the cluster's token, keeps to writing there
        // only while none of its pushes is under way; if it did otherwise, each element would be one
        // of the numbers it wrote, as if it had pushed them: they are only computed with, and no
        // length or place depends on them. Whatever has to be the same in two places, here and at a
        // standby, is computed from one copy of them: `JobShard::apply_shared`.
        unsafe { self.mapping.floats(self.offset, self.elements) }
    }
}

fn is(weak: &Weak<JobShard>, job: &Arc<JobShard>) -> bool {
    ptr::eq(weak.as_ptr(), Arc::as_ptr(job))
}

/// Lends a slot with the latest values, if the caller maps them and one is free. Who maps those of the job as
/// it was before it was set aside is hung up on: what it is now is lent over another connection. To copy a
/// large part, or to wait for another caller's copy, may take longer than the caller listens for.
pub(super) fn lend<D: Duplex>(
    job: &Arc<JobShard>,
    connection: &mut Connection<'_, D>,
) -> io::Result<Option<u32>> {
    match &mut connection.lending.loan {
        None => Ok(None),
        Some(loan) if !is(&loan.job, job) => Err(io::ErrorKind::ConnectionAborted.into()),
        Some(loan) if job.bytes() < LARGE_BYTES => Ok(loan.lend(job)),
        Some(_) => lend_with_keep_alive(job, connection, KEEP_ALIVE_INTERVAL),
    }
}

fn lend_with_keep_alive<D: Duplex>(
    job: &JobShard,
    connection: &mut Connection<'_, D>,
    interval: Duration,
) -> io::Result<Option<u32>> {
    // The thread that works has it meanwhile.
    let mut loan = connection.lending.loan.take();
    let lent = with_keep_alive(connection, interval, || loan.as_mut().and_then(|loan| loan.lend(job)));
    connection.lending.loan = loan;
    lent
}

/// Hands out the memory in which parameters of a job are lent.
pub(super) fn lend_parameters(
    jobs: &JobTable,
    connection: &mut Connection<'_, Channel>,
    session: &SessionKey,
) -> io::Result<()> {
    let job = match over_unix(connection).and_then(|()| jobs.find(&session.run)) {
        Ok(job) => job,
        Err(fault) => return connection.answer(Err(fault)),
    };
    let refuse = |cause: String| ShardFault::Io { what: "cannot lend parameters".into(), cause };
    let (memory, shape) = match job.lent_memory() {
        Ok(Some(lent)) => lent,
        Ok(None) => return connection.answer(Err(refuse("rows of tables are sent".into()))),
        Err(error) => return connection.answer(Err(refuse(error.to_string()))),
    };
    connection.answer(Ok(Reply::ParametersLent(shape)))?;
    connection.duplex.send_memory(memory)?;
    connection.lending.loan = Some(Loan { job: Arc::downgrade(&job), slot: None });
    Ok(())
}

/// Takes the memory in which the caller has its gradients.
pub(super) fn take_gradients<'c>(
    jobs: &JobTable,
    connections: &'c Connections,
    connection: &mut Connection<'c, Channel>,
    session: &SessionKey,
) -> io::Result<()> {
    if let Err(fault) = over_unix(connection) {
        return connection.answer(Err(fault));
    }
    // It comes behind the question, whatever is answered.
    let memory = connection.duplex.receive_memory()?;
    let job = jobs.find(&session.run);
    let taken = job.and_then(|job| Gradients::map(&job, memory, connections));
    let answer = taken.map(|gradients| {
        connection.lending.gradients = Some(gradients);
        Reply::GradientsTaken
    });
    connection.answer(answer)
}

fn over_unix(connection: &Connection<'_, Channel>) -> Result<(), ShardFault> {
    match connection.duplex.transport() {
        Transport::Unix => Ok(()),
        other => Err(ShardFault::Invalid { what: format!("memory cannot be handed over by {other}") }),
    }
}

/// Answers one push whose numbers lie in the caller's memory. An error leaves what was applied so far
/// resumable.
pub(super) fn serve_push(
    jobs: &JobTable,
    connection: &mut Connection<'_, Channel>,
    order: PushRequest<'_>,
) -> io::Result<()> {
    let PushRequest { session, seq, first_chunk, header, .. } = order;
    let job = match jobs.find(&session.run) {
        Ok(job) => job,
        Err(fault) => return connection.answer(Err(fault)),
    };
    let ack = match job.admit(session.incarnation, seq, first_chunk, header) {
        Ok(Admission::Fresh) => match apply_with_keep_alive(&job, connection, order)? {
            Ok(()) => complete(&job, connection, session, seq, header)?,
            Err(fault) => Err(fault),
        },
        Ok(Admission::Duplicate) => job.duplicate_ack(session.incarnation),
        Err(fault) => Err(fault),
    };
    answer_push(&job, connection, ack)
}

/// The same as [`apply`]. A standby may take what is applied more slowly than the caller listens for.
fn apply_with_keep_alive(
    job: &Arc<JobShard>,
    connection: &mut Connection<'_, Channel>,
    order: PushRequest<'_>,
) -> io::Result<Result<(), ShardFault>> {
    if job.bytes() < LARGE_BYTES {
        return Ok(apply(job, connection.lending.gradients.as_ref(), order));
    }
    // The thread that works has them meanwhile.
    let gradients = connection.lending.gradients.take();
    let applied = with_keep_alive(connection, KEEP_ALIVE_INTERVAL, || apply(job, gradients.as_ref(), order));
    connection.lending.gradients = gradients;
    applied
}

fn apply(
    job: &Arc<JobShard>,
    gradients: Option<&Gradients<'_>>,
    order: PushRequest<'_>,
) -> Result<(), ShardFault> {
    let PushRequest { session, seq, first_chunk, header, .. } = order;
    let Some(gradients) = gradients else {
        let what = format!("push {seq} of job {} lies in no memory that was handed over", session.run.job);
        return Err(ShardFault::Invalid { what });
    };
    // It was set aside and came back: over another connection the caller hands its memory over to what it is
    // now.
    if !is(&gradients.job, job) {
        let what = format!("push {seq} lies in memory of job {} as it was before", session.run.job);
        return Err(ShardFault::Garbled { what });
    }
    let chunks = gradients.values().chunks(CHUNK_ELEMENTS);
    let mut scratch = Vec::new();
    for (index, gradient) in (0..).zip(chunks).skip(first_chunk as usize) {
        let chunk = PushedChunk { worker: session.incarnation, seq, index, header, share: None };
        job.apply_shared(chunk, gradient, &mut scratch)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::unix::fs::MetadataExt, thread};

    use super::*;
    use crate::{
        server::pull::tests::shard,
        transport::{Socket, sealed_memory, take_pages},
    };

    #[test]
    fn who_is_lent_parameters_that_somebody_holds_hears_that_it_goes_on() {
        let job = Arc::new(shard(&[1.0, 2.0]));
        job.lent_memory().unwrap().unwrap();
        let (mut socket, mut caller) = Socket::with_peer();
        let end = socket.clone();
        let mut connection = Connection::new(&mut socket);
        connection.lending.loan = Some(Loan { job: Arc::downgrade(&job), slot: None });
        thread::scope(|scope| {
            let lent = job.read_chunks(0, 1, |_| {
                let lent =
                    scope.spawn(|| lend_with_keep_alive(&job, &mut connection, Duration::ZERO).unwrap());
                caller.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                assert_eq!(Reply::read(&mut caller, &mut Vec::new()).unwrap(), (Reply::Waiting, 0));
                lent
            });
            // Whoever says that it goes on may be full of it.
            scope.spawn(move || while Reply::read(&mut caller, &mut Vec::new()).is_ok() {});
            assert_eq!(lent.join().unwrap(), Some(0));
            end.shut_down();
        });
    }

    #[test]
    fn only_memory_that_holds_the_range_and_cannot_shrink_is_taken_and_counted() {
        let (connections, job) = (Connections::default(), Arc::new(shard(&[0.0; 100_000])));
        let bytes = 100_000 * size_of::<f32>();
        let map = |memory| Gradients::map(&job, memory, &connections);
        let dir = tempfile::tempdir().unwrap();
        let file = File::create_new(dir.path().join("unsealed")).unwrap();
        file.set_len(bytes as u64).unwrap();
        for (memory, says) in
            [(file.into(), "cannot take gradients"), (sealed_memory(bytes - 1).unwrap(), "expected 400000")]
        {
            let fault = map(memory).err().unwrap().to_string();
            assert!(fault.contains(says), "{fault}");
        }
        assert_eq!(connections.shared_bytes(), 0);
        let memory = sealed_memory(bytes).unwrap();
        let pages = memory.try_clone().unwrap();
        let taken = map(memory).unwrap();
        let allocated = File::from(pages.try_clone().unwrap()).metadata().unwrap().blocks();
        assert_eq!(allocated, 0, "they are the caller's to take");
        take_pages(&pages, 0..bytes).unwrap();
        assert_eq!((taken.values(), connections.shared_bytes()), (&[0.0; 100_000][..], bytes));
        let ended = Arc::downgrade(&job);
        drop(job);
        assert!(ended.upgrade().is_none(), "a caller that stays keeps no job");
        drop(taken);
        assert_eq!(connections.shared_bytes(), 0);
    }
}
