//! One tensor connection: a question, its answer, the next question.

use std::{io, sync::Arc, time::Duration};
use syncline_scheduler::ids::ContentDigest;

use syncline_rpc::{GREETING_TIMEOUT, ShardFault};

use super::{
    Shared, blob_check, blob_mirror, blobs,
    blobs::Durability,
    checkpoint_mirror,
    connection::Connection,
    follower,
    keep_alive::{KEEP_ALIVE_INTERVAL, with_keep_alive},
    lending, local, norms, pull,
    push::{self, PushRequest},
    rows,
};
use crate::{
    codec::Codec,
    transport::{Channel, Duplex},
    wire::{Reply, Request, WireError},
};

/// A caller that takes nothing is hung up on after this long.
const STALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Sets how long a caller may stop in the middle of a message, whichever way it goes.
pub(super) fn limit(channel: &mut Channel) -> io::Result<()> {
    channel.set_read_timeout(Some(GREETING_TIMEOUT))?;
    channel.set_write_timeout(Some(STALL_TIMEOUT))
}

/// Serves until the caller hangs up. An error means that the connection is of no use any more.
pub(super) fn serve(shared: &Arc<Shared>, mut channel: Channel) -> io::Result<()> {
    limit(&mut channel)?;
    let mut connection = Connection::new(&mut channel);
    let mut scratch = Vec::new();
    // Counts the memory that is shared with this caller.
    let mut memory = None;
    loop {
        let Some((request, body)) = next_request(shared, &mut connection, &mut scratch)? else {
            return Ok(());
        };
        if request.needs_the_one_that_serves() && !shared.role.serves() {
            // Whoever asks here asks the process that serves once it knows where that is.
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        if request.run().is_some_and(|run| shared.jobs.awaits_engine(run)) {
            // Who is told that the job is over would wait for another task in vain, once an engine that knows
            // the job has asked for it.
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        if request.gives_back_parameters() {
            connection.lending.give_back();
        }
        match request {
            Request::Push { session, seq, first_chunk, header, codec } => {
                let order = PushRequest { session: &session, seq, first_chunk, header: &header, codec };
                push::serve(&shared.jobs, &mut connection, order, body)?;
            }
            Request::Pull { session, condition, codec } => {
                pull::serve(&shared.jobs, &mut connection, &session, condition, codec)?
            }
            Request::PushRows { session, seq, first_chunk, header } => {
                let (session, header, codec) = (&session, &header, Codec::Plain);
                let order = PushRequest { session, seq, first_chunk, header, codec };
                rows::serve_push(&shared.jobs, &mut connection, order, body)?;
            }
            Request::PullRows { session, condition } => {
                rows::serve_pull(&shared.jobs, &mut connection, &session, condition, body)?
            }
            Request::Norm { session, round } => norms::serve(&shared.jobs, &mut connection, &session, round)?,
            Request::PushCursor { session } => push::serve_cursor(&shared.jobs, &mut connection, &session)?,
            Request::PutBlob { digest } => {
                let kept = || blob_mirror::send_to_standby(shared, digest);
                blobs::serve_put(&shared.blobs, &mut connection, digest, body, Durability::Now, kept)?;
            }
            Request::MirrorBlob { digest } => {
                blobs::serve_put(&shared.blobs, &mut connection, digest, body, Durability::Now, || ())?;
            }
            Request::PutValue { digest } => {
                blobs::serve_put(&shared.blobs, &mut connection, digest, body, Durability::Soon, || ())?;
            }
            Request::GetBlob { digest, offset, length } => {
                serve_get(shared, &mut connection, digest, offset, length)?;
            }
            Request::PushInPlace { session, seq, first_chunk, header } => {
                let (session, header, codec) = (&session, &header, Codec::Plain);
                let order = PushRequest { session, seq, first_chunk, header, codec };
                lending::serve_push(&shared.jobs, &mut connection, order)?;
            }
            Request::LendParameters { session } => {
                lending::lend_parameters(&shared.jobs, &mut connection, &session)?;
            }
            Request::TakeGradients { session } => {
                lending::take_gradients(&shared.jobs, &shared.connections, &mut connection, &session)?;
            }
            Request::Echo => connection.echo(body)?,
            Request::LocalSocket => {
                let path = shared.local_socket.clone();
                connection.answer(Ok(Reply::LocalSocket { path }))?;
            }
            Request::ShareMemory { bytes } => {
                local::share_memory(&shared.connections, &mut connection, bytes, &mut memory)?;
            }
            Request::StatBlob { digest } => serve_stat(shared, &mut connection, digest)?,
            Request::CheckBlob { digest } => serve_check(shared, &mut connection, digest)?,
            Request::ListBlobs { first } => blobs::serve_list(&shared.blobs, &mut connection, &first)?,
            Request::ListCheckpoints => checkpoint_mirror::serve_list(shared, &mut connection)?,
            Request::GetCheckpoint { session, number } => {
                checkpoint_mirror::serve_get(shared, &mut connection, &session.run, number)?;
            }
            Request::Replicate { session, term } => {
                return follower::serve(shared, &mut connection, &session, term);
            }
        }
    }
}

/// Sends a part of a blob, which the standby may have alone.
fn serve_get<D: Duplex>(
    shared: &Shared,
    connection: &mut Connection<'_, D>,
    digest: ContentDigest,
    offset: u64,
    length: u64,
) -> io::Result<()> {
    if matches!(shared.blobs.stat(&digest), Ok(None))
        && let Err(away) = fetch_from_standby(shared, connection, digest)?
    {
        return connection.answer(Err(away));
    }
    blobs::serve_get(&shared.blobs, connection, digest, offset, length)
}

/// Says whether a blob is here, or with the standby, from where it comes.
fn serve_stat<D: Duplex>(
    shared: &Shared,
    connection: &mut Connection<'_, D>,
    digest: ContentDigest,
) -> io::Result<()> {
    let mut found = shared.blobs.stat_and_touch(&digest);
    // Whoever gives a blob is told that it is not here, and gives it; whoever wants it asks for its bytes
    // then.
    if matches!(found, Ok(None)) && fetch_from_standby(shared, connection, digest)? == Ok(true) {
        found = shared.blobs.stat_and_touch(&digest);
    }
    connection.answer(found.map(|bytes| Reply::BlobStat { bytes }))
}

/// Says the same of a blob once it is known to be whole here.
fn serve_check<D: Duplex>(
    shared: &Shared,
    connection: &mut Connection<'_, D>,
    digest: ContentDigest,
) -> io::Result<()> {
    // Most that are asked for are new: no thread is begun where there is nothing to read.
    if matches!(shared.blobs.stat(&digest), Ok(Some(_)))
        && let Err(fault) =
            with_keep_alive(connection, KEEP_ALIVE_INTERVAL, || blob_check::check(shared, &digest))?
    {
        return connection.answer(Err(fault));
    }
    serve_stat(shared, connection, digest)
}

/// Looks for a blob on the standby, and tells the caller meanwhile that this goes on: a large one takes
/// minutes.
fn fetch_from_standby<D: Duplex>(
    shared: &Shared,
    connection: &mut Connection<'_, D>,
    digest: ContentDigest,
) -> io::Result<Result<bool, ShardFault>> {
    // Each new blob is looked for: no thread is begun where there is nobody to ask.
    if shared.role.serves_beside_another_for().is_none() {
        return Ok(Ok(false));
    }
    with_keep_alive(connection, KEEP_ALIVE_INTERVAL, || blob_mirror::fetch_from_standby(shared, digest))
}

/// Reads the next request and the length of its body; `None` if the caller has hung up.
fn next_request<D: Duplex>(
    shared: &Shared,
    connection: &mut Connection<'_, D>,
    scratch: &mut Vec<u8>,
) -> io::Result<Option<(Request, u64)>> {
    connection.duplex.wait_readable()?;
    // A stop ends the connection between two questions even if the next one has come in already.
    shared.stopping()?;
    match Request::read(connection.duplex, scratch) {
        Ok(next) => Ok(next),
        Err(WireError::Io(error)) => Err(error),
        Err(broken) => {
            connection.reply(&Reply::Fault(ShardFault::Garbled { what: broken.to_string() }), 0)?;
            Err(broken.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, sync::atomic::Ordering, thread};

    use syncline_rpc::{ReplicaRole, ShardPeer};
    use syncline_scheduler::{
        ids::{ContentDigest, Incarnation},
        sync::PushMode,
    };

    use super::{
        super::{pull::tests::shard, rig},
        *,
    };
    use crate::{
        content::digest_of,
        shard::{PushCursor, PushHeader},
        transport::Socket,
        wire::SessionKey,
    };

    #[test]
    fn who_wants_a_blob_is_told_that_the_process_is_away_that_may_have_it_and_who_gives_it_may_give_it() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::for_test(dir.path());
        rig::follow_orders(&shared, ReplicaRole::Primary { term: 1 }, None);
        let (socket, mut caller) = Socket::with_peer();
        let served = thread::spawn(move || serve(&shared, Channel::Socket(socket)));
        let (digest, mut scratch) = (ContentDigest::LOWEST, Vec::new());
        let mut ask = |request: Request| {
            let mut bytes = Vec::new();
            request.encode(0, &mut bytes);
            caller.write_all(&bytes).unwrap();
            Reply::read(&mut caller, &mut scratch).unwrap().0
        };
        assert_eq!(ask(Request::StatBlob { digest }), Reply::BlobStat { bytes: None });
        let got = ask(Request::GetBlob { digest, offset: 0, length: 1 });
        assert!(matches!(got, Reply::Fault(ShardFault::SecondAway { .. })), "{got:?}");
        drop(caller);
        let _ = served.join().unwrap();
    }

    #[test]
    fn a_process_that_follows_takes_blobs_from_the_one_that_serves_alone_and_hangs_up_on_others() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::for_test(dir.path());
        rig::follow_orders(&shared, ReplicaRole::Standby { term: 2 }, None);
        let digest = digest_of(b"blob");
        let answer_to = |request: Request| {
            let (socket, mut caller) = Socket::with_peer();
            let (mut bytes, mut scratch) = (Vec::new(), Vec::new());
            request.encode(4, &mut bytes);
            bytes.extend_from_slice(b"blob");
            caller.write_all(&bytes).unwrap();
            let held = shared.clone();
            let served = thread::spawn(move || serve(&held, Channel::Socket(socket)));
            let answer = Reply::read(&mut caller, &mut scratch).map(|(reply, _)| reply);
            drop(caller);
            let _ = served.join().unwrap();
            answer.ok()
        };
        for request in [Request::PutBlob { digest }, Request::PutValue { digest }] {
            assert_eq!(answer_to(request.clone()), None, "{request:?}");
            assert_eq!(shared.blobs.stat(&digest), Ok(None), "{request:?}");
        }
        assert_eq!(answer_to(Request::MirrorBlob { digest }), Some(Reply::BlobStored));
        assert_eq!(shared.blobs.stat(&digest), Ok(Some(4)));
    }

    #[test]
    fn who_asks_for_a_blob_that_is_being_fetched_from_the_standby_waits_for_it_and_is_told_so() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::for_test(dir.path());
        // Nobody listens there: a second fetch would fail.
        let peer = Some(ShardPeer { term: 2, address: "127.0.0.1:1".into() });
        rig::follow_orders(&shared, ReplicaRole::Primary { term: 1 }, peer);
        let (socket, mut caller) = Socket::with_peer();
        let digest = digest_of(b"blob");
        let fetched = shared.blob_fetches.begin(digest);
        let held = shared.clone();
        let served = thread::spawn(move || serve(&held, Channel::Socket(socket)));
        let (mut bytes, mut scratch) = (Vec::new(), Vec::new());
        Request::StatBlob { digest }.encode(0, &mut bytes);
        caller.write_all(&bytes).unwrap();
        let mut hear = || Reply::read(&mut caller, &mut scratch).unwrap().0;
        assert_eq!(hear(), Reply::Waiting);
        std::fs::write(shared.blobs.path(&digest), b"blob").unwrap();
        drop(fetched);
        let answer = loop {
            match hear() {
                Reply::Waiting => {}
                answer => break answer,
            }
        };
        assert_eq!(answer, Reply::BlobStat { bytes: Some(4) });
        drop(caller);
        let _ = served.join().unwrap();
    }

    #[test]
    fn who_asks_for_a_cursor_is_told_that_the_shard_waits_for_its_standby() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, job, term) = (Shared::for_test(dir.path()), Arc::new(shard(&[0.0; 3])), 7);
        rig::follow_orders(&shared, ReplicaRole::Primary { term: 1 }, None);
        shared.jobs.restore(job.clone());
        assert!(job.copy_for_standby(term, |_| io::Result::Ok(())).unwrap());
        assert!(job.set_standby_in_step(term));
        let (mode, worker) = (PushMode::Apply, Incarnation(1));
        let skipped = PushHeader { learning_rate: 1.0, weight: 1.0, scale: 1.0, skip: true, mode, covers: 1 };
        job.complete(worker, 1, &skipped).unwrap();
        let (socket, mut caller) = Socket::with_peer();
        let held = shared.clone();
        let served = thread::spawn(move || serve(&held, Channel::Socket(socket)));
        let session = SessionKey { run: job.run().clone(), incarnation: worker };
        let (mut bytes, mut scratch) = (Vec::new(), Vec::new());
        Request::PushCursor { session }.encode(0, &mut bytes);
        caller.write_all(&bytes).unwrap();
        assert_eq!(Reply::read(&mut caller, &mut scratch).unwrap().0, Reply::Waiting);
        job.acknowledge_standby(term, 2);
        let cursor = PushCursor { watermark: 1, next_chunk: 0, pushes: 1 };
        let mut next = || Reply::read(&mut caller, &mut scratch).unwrap().0;
        let mut answer = next();
        while answer == Reply::Waiting {
            answer = next();
        }
        assert_eq!(answer, Reply::PushCursor(cursor));
        shared.stopping.store(true, Ordering::SeqCst);
        drop(caller);
        let _ = served.join().unwrap();
    }
}
