//! Telling the standby what changes, one thread for each job.
//!
//! The thread sends a copy of the job and then every change, in the order in which it was made. It asks for
//! an answer after each run of changes, and those who wait for the standby are woken by it. A failure gives
//! the standby up, whole, where the job was in step, or waits for it; a copy that fails, or that training
//! would have to wait for, is given up alone, and begun again later.

use std::{
    io::{self, ErrorKind, Write},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use syncline_rpc::{
    ShardPeer,
    threads::{self, NoThread},
};
use tracing::{info, warn};

use super::{Shared, snapshot::SHARD_ITSELF};
use crate::{
    client::{Link, LinkError, unexpected_reply},
    shard::{Batch, Entry, JobShard, StandbyOp, Term},
    wire::{Reply, Request, SessionKey},
};

/// A standby that takes or says nothing for this long is lost.
const SILENCE_LIMIT: Duration = Duration::from_secs(3);
/// The same at the end of a copy.
const COPY_LIMIT: Duration = Duration::from_secs(30);
/// A standby that is told nothing is asked for a sign of life this often.
const PING_INTERVAL: Duration = Duration::from_millis(500);
/// Answers that may be on their way: more might find no room while the standby is still told things.
const MOST_AWAITED: usize = 256;
/// A standby that an engine let go which has not heard of it yet is back within this time.
const RETURN_PATIENCE: Duration = Duration::from_secs(10);
/// A copy that was given up is begun again after this time, doubled with each one in a row.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Starts to tell this standby about a job, unless somebody does.
pub(super) fn start(shared: &Arc<Shared>, job: &Arc<JobShard>, standby: &ShardPeer) {
    if !job.claim_standby(standby.term) {
        return;
    }
    let (held, followed, peer) = (shared.clone(), job.clone(), standby.clone());
    let run = move || {
        loop {
            let outcome = run(&held, &followed, &peer);
            followed.release_standby(peer.term);
            if let Err(error) = outcome {
                let error = error.into_error(&peer.address);
                warn!(job = %followed.job(), %error, "the process that follows is lost");
                return lose(&held, &followed, peer.term);
            }
            // Whoever wanted it again while it ended here was told that somebody does it.
            if !is_wanted(&held, &followed, peer.term) || !followed.claim_standby(peer.term) {
                return;
            }
        }
    };
    if let Err(error) = threads::spawn("ps-replicate", run) {
        warn!(job = %job.job(), %error, hint = NoThread::HINT, "no thread that tells a standby about a job");
        job.release_standby(standby.term);
        lose(shared, job, standby.term);
    }
}

/// Gives the standby up. Where the engine has done that already, nobody else says that the job goes on alone.
fn lose(shared: &Shared, job: &JobShard, term: Term) {
    job.lose_standby(term);
    if !shared.role.report_lost(term) {
        job.go_on_without_standby(term);
    }
}

/// Starts to tell the standby, if there is one, about a job that has just come.
pub(super) fn start_if_followed(shared: &Arc<Shared>, job: &Arc<JobShard>) {
    if let Some(standby) = shared.role.standby() {
        start(shared, job, &standby);
    }
}

/// Whether the standby of a frozen job is still to have all of it, or is likely to come back soon.
pub(super) fn is_still_copied(shared: &Shared, frozen: &JobShard) -> bool {
    frozen.is_frozen()
        && match shared.role.standby() {
            Some(standby) => !frozen.has_standby_in_step(standby.term),
            None => shared.role.let_go_within(RETURN_PATIENCE),
        }
}

/// Tells the standby about the job as long as somebody wants that. A copy that failed, or that training would
/// have had to wait for, is begun again later: it concerns no other job. An error: the standby was in step, or
/// the job waits for it, and it is lost.
fn run(shared: &Shared, job: &JobShard, peer: &ShardPeer) -> Result<(), LinkError> {
    let (mut pause, mut not_before) = (FIRST_PAUSE, Instant::now());
    while wait_to_begin(shared, job, peer.term, not_before) {
        let outcome = follow(shared, job, peer);
        if let Err(error) = outcome {
            // The standby refuses to follow a run that is over once it has the one after it. Where it was not
            // reached it may not know that the run is over, and would keep it as one that is in
            // step.
            let may_not_know = !job.is_over() || matches!(error, LinkError::Broken(_));
            let counts_on_it = job.has_standby_in_step(peer.term) || job.awaits_standby(peer.term);
            if counts_on_it && may_not_know {
                return Err(error);
            }
            job.lose_standby(peer.term);
            if is_wanted(shared, job, peer.term) {
                let (error, pause_s) = (error.into_error(&peer.address), pause.as_secs());
                warn!(job = %job.job(), pause_s, %error, "the copy of a job for its standby failed: it goes on without one until a copy succeeds");
            }
        } else if is_wanted(shared, job, peer.term) {
            let (address, pause_s) = (&peer.address, pause.as_secs());
            warn!(
                job = %job.job(), address, pause_s,
                "the copy of a job for its standby was too slow for what is pushed: it goes on without one until a copy succeeds"
            );
        }
        not_before = Instant::now() + pause;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    Ok(())
}

/// Follows the job to its end, or until another standby follows, or its copy is given up.
fn follow(shared: &Shared, job: &JobShard, peer: &ShardPeer) -> Result<(), LinkError> {
    let term = peer.term;
    let mut link = Link::open_shard(&peer.address, shared.here, &shared.token, SILENCE_LIMIT)?;
    link.set_read_timeout(Some(SILENCE_LIMIT))?;
    let session = SessionKey { run: job.run().clone(), incarnation: SHARD_ITSELF };
    link.ask(&Request::Replicate { session, term })?;
    acknowledged(&mut link)?;
    let (started, mut bytes) = (Instant::now(), 0);
    let is_copied = job.copy_for_standby(term, |piece| {
        if !is_wanted(shared, job, term) {
            // The engine's word that this process goes on alone may have come before there was anything to
            // give up.
            job.go_on_without_standby(term);
            return Ok(());
        }
        bytes += piece.len();
        link.channel().write_all(piece).map_err(LinkError::from)
    })?;
    if !is_copied {
        return Ok(());
    }
    link.set_read_timeout(Some(COPY_LIMIT))?;
    acknowledged(&mut link)?;
    link.set_read_timeout(Some(SILENCE_LIMIT))?;
    let mut told = Told::over(link, job, peer)?;
    let mut in_step = false;
    loop {
        if !in_step && job.set_standby_in_step(term) {
            in_step = true;
            let took_ms = started.elapsed().as_millis() as u64;
            info!(job = %job.job(), address = peer.address, bytes, took_ms, "a job has a standby");
        }
        match job.next_for_standby(term, PING_INTERVAL) {
            Batch::Over => return Ok(()),
            Batch::Idle => {
                shared.stopping()?;
                StandbyOp::Ping.entry().write(told.link.channel())?;
                acknowledged(&mut told.link)?;
            }
            Batch::Entries(entries) => told.tell(&entries)?,
        }
    }
}

/// The connection over which the standby is told of changes.
struct Told<'a> {
    job: &'a JobShard,
    peer: &'a ShardPeer,
    link: Link,
    /// Answers that are still to come: each change but a chunk is answered by itself.
    awaited: usize,
}

impl<'a> Told<'a> {
    fn over(link: Link, job: &'a JobShard, peer: &'a ShardPeer) -> io::Result<Self> {
        link.socket().keep_while_nothing_is_taken()?;
        Ok(Self { job, peer, link, awaited: 0 })
    }

    fn tell(&mut self, entries: &[Entry]) -> Result<(), LinkError> {
        for entry in entries {
            entry.write(self)?;
            self.awaited += usize::from(entry.op.is_awaited());
            if self.awaited == MOST_AWAITED {
                self.hear()?;
            }
        }
        while self.awaited > 0 {
            self.hear()?;
        }
        Ok(())
    }

    fn hear(&mut self) -> Result<(), LinkError> {
        let number = acknowledged(&mut self.link)?;
        self.awaited -= 1;
        self.job.acknowledge_standby(self.peer.term, number);
        Ok(())
    }
}

/// A standby that takes nothing may be busy with what it was told before: it is lost only if it says nothing
/// either.
impl Write for Told<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.link.channel().write(bytes) {
                Err(e)
                    if self.awaited > 0
                        && matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    self.hear().map_err(|error| match error {
                        LinkError::Broken(error) => error,
                        other => io::Error::other(other.into_error(&self.peer.address)),
                    })?;
                }
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.link.channel().flush()
    }
}

/// Whether the standby of this term is still to be told about the job.
fn is_wanted(shared: &Shared, job: &JobShard, term: Term) -> bool {
    let follows = shared.role.standby().is_some_and(|standby| standby.term == term);
    follows && !job.is_over() && shared.stopping().is_ok()
}

/// Waits as long as standbys that failed before ask for, at least until `not_before`. False: this one is not
/// wanted any more.
fn wait_to_begin(shared: &Shared, job: &JobShard, term: Term, not_before: Instant) -> bool {
    while is_wanted(shared, job, term) {
        let own = not_before.saturating_duration_since(Instant::now());
        let left = shared.role.standby_pause().max(own);
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(PING_INTERVAL));
    }
    false
}

/// Number of the newest change that the standby has.
fn acknowledged(link: &mut Link) -> Result<u64, LinkError> {
    match link.answer()? {
        (Reply::Replicated { number }, 0) => Ok(number),
        (reply, _) => Err(unexpected_reply(&reply)),
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, net::TcpListener, sync::atomic::Ordering, thread::ScopedJoinHandle};

    use syncline_rpc::{ReplicaRole, ShardHello, threads::lock};
    use syncline_scheduler::{
        ids::{EngineEpoch, Incarnation, ShardIndex},
        sync::PushMode,
    };

    use super::{
        super::{
            followed_jobs::FollowedJob,
            pull::tests::shard,
            rig::{self, Two},
            role_change,
        },
        *,
    };
    use crate::{
        shard::{CHUNK_ELEMENTS, PushHeader, PushedChunk, read_op},
        transport::{Socket, connect_tcp},
        waiting::until,
    };

    const TERM: Term = 7;

    fn skipped() -> PushHeader {
        let mode = PushMode::Apply;
        PushHeader { learning_rate: 1.0, weight: 1.0, scale: 1.0, skip: true, mode, covers: 1 }
    }

    /// A job with a standby in step.
    fn followed() -> JobShard {
        let job = shard(&[0.0; 3]);
        assert!(job.copy_for_standby(TERM, |_| io::Result::Ok(())).unwrap() && job.set_standby_in_step(TERM));
        job
    }

    /// Tells of so many pushes of one chunk each, of so many elements, a standby that first `works`, takes
    /// nothing meanwhile, and then has what it was told before.
    fn tell_who_works(
        (socket, mut standby): (Socket, impl Read + Write + Send),
        (pushes, elements): (u64, u32),
        works: impl FnOnce(&mut dyn FnMut(Reply)) + Send,
    ) -> Result<(), LinkError> {
        let (job, worker) = (followed(), Incarnation(1));
        job.complete(worker, 1, &skipped()).unwrap();
        let ends = (1..=pushes).map(|seq| StandbyOp::Complete { worker, seq, header: skipped() }.entry());
        let chunk = |index| {
            let op = StandbyOp::Chunk { worker, seq: 1, index, header: skipped(), elements, share: 1.0 };
            Entry { op, numbers: vec![0.0; elements as usize].into() }
        };
        let entries: Vec<Entry> = ends.zip(0..).flat_map(|(end, index)| [end, chunk(index)]).collect();
        socket.set_write_timeout(Some(Duration::from_millis(10))).unwrap();
        let peer = ShardPeer { term: TERM, address: String::new() };
        let mut told = Told::over(Link::over(socket), &job, &peer)?;
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut out, mut scratch, mut numbers) = (Vec::new(), Vec::new(), vec![0.0; CHUNK_ELEMENTS]);
                let mut answer = |standby: &mut dyn Write, reply: Reply| {
                    reply.encode(0, &mut out);
                    let _ = standby.write_all(&out);
                };
                works(&mut |reply| answer(&mut standby, reply));
                answer(&mut standby, Reply::Replicated { number: 2 });
                // It reads on when that is heard, which is when nothing more can be written.
                if job.confirm(|| true) {
                    for number in 0..entries.len() as u64 {
                        let (op, _) = read_op(&mut standby, &mut scratch, &mut numbers).unwrap();
                        if op.is_awaited() && number > 0 {
                            answer(&mut standby, Reply::Replicated { number });
                        }
                    }
                }
            });
            let outcome = told.tell(&entries);
            job.stop_standby();
            outcome
        })
    }

    #[test]
    fn a_standby_that_takes_nothing_while_it_works_is_waited_for() {
        let ends = Socket::with_peer();
        ends.0.raw().set_send_buffer_size(128 << 10).unwrap();
        let outcome = tell_who_works(ends, (1_024, 4_096), |answer| answer(Reply::Waiting));
        assert!(outcome.is_ok(), "{outcome:?}");
    }

    /// Over real TCP: the system counts who takes nothing among those that vanished.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_standby_that_takes_nothing_for_longer_than_one_may_have_vanished_is_waited_for() {
        let vanished_timeout = Duration::from_millis(100);
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let socket = connect_tcp(&address, Duration::from_secs(60), &|_| {}).unwrap();
        let (standby, _) = listener.accept().unwrap();
        socket.raw().set_tcp_user_timeout(Some(vanished_timeout)).unwrap();
        // More than the buffers of both ends hold.
        let outcome = tell_who_works((socket, standby), (128, CHUNK_ELEMENTS as u32), |answer| {
            for _ in 0..20 {
                answer(Reply::Waiting);
                thread::sleep(vanished_timeout);
            }
        });
        assert!(outcome.is_ok(), "{outcome:?}");
    }

    #[test]
    fn a_copy_that_fails_is_begun_again_and_costs_no_other_job_its_standby() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::for_test(dir.path());
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let peer = Some(ShardPeer { term: TERM, address });
        rig::follow_orders(&shared, ReplicaRole::Primary { term: 1 }, peer);
        let (other, job) = (followed(), Arc::new(shard(&[0.0; 3])));
        start_if_followed(&shared, &job);
        listener.set_nonblocking(true).unwrap();
        let hello = ShardHello::alone(ShardIndex(0), 1, String::new(), 1);
        let mut tries = 0;
        until("the standby is tried twice", || {
            tries += usize::from(listener.accept().is_ok());
            assert_eq!(shared.role.complete_hello(&shared, &hello).lost, None);
            tries == 2
        });
        assert!(other.has_standby_in_step(TERM));
        shared.stopping.store(true, Ordering::SeqCst);
    }

    /// It was set aside, and the standby may keep what it was: only the engine can say that it goes on alone.
    #[test]
    fn a_standby_that_a_job_waits_for_and_that_is_not_reached_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::for_test(dir.path());
        let primary = ReplicaRole::Primary { term: 1 };
        // Nobody listens there.
        let peer = ShardPeer { term: TERM, address: "127.0.0.1:1".into() };
        rig::follow_orders(&shared, primary, Some(peer));
        let job = Arc::new(shard(&[0.0; 3]));
        shared.jobs.restore(job.clone());
        let standby = shared.role.await_standby(&job).unwrap();
        start(&shared, &job, &standby);
        let hello = ShardHello::alone(ShardIndex(0), 1, String::new(), 1);
        let lost = || shared.role.complete_hello(&shared, &hello).lost;
        until("the engine is told", || lost() == Some(TERM));
        assert!(!job.confirm(|| false), "it may let the standby serve");
        rig::follow_orders(&shared, primary, None);
        assert!(job.confirm(|| false));
    }

    /// A primary, and a standby that it can tell of its jobs.
    fn pair() -> (Two, ShardPeer) {
        let two = Two::new(|_| {});
        rig::follow_orders(&two.second, ReplicaRole::Standby { term: TERM }, None);
        let peer = ShardPeer { term: TERM, address: two.address.clone() };
        rig::follow_orders(&two.first, ReplicaRole::Primary { term: 1 }, Some(peer.clone()));
        (two, peer)
    }

    /// A job whose standby is in step, and the thread that tells that one of it.
    fn while_followed(
        happens: impl FnOnce(
            &Arc<Shared>,
            &Arc<Shared>,
            &Arc<JobShard>,
            ScopedJoinHandle<'_, Result<(), LinkError>>,
        ),
    ) {
        let (pair, peer) = pair();
        let (primary, standby) = (&pair.first, &pair.second);
        let job = Arc::new(shard(&[0.0; 3]));
        primary.jobs.restore(job.clone());
        thread::scope(|scope| {
            let told = scope.spawn(|| run(primary, &job, &peer));
            until("the standby follows", || standby.followed.in_step() > 0);
            happens(primary, standby, &job, told);
        });
    }

    #[test]
    fn a_run_that_is_over_and_has_made_room_at_the_standby_for_the_next_one_costs_nobody_the_standby() {
        while_followed(|primary, standby, job, told| {
            // The next run comes over another connection, and sooner than the end of this one.
            assert!(standby.followed.insert(&Arc::new(FollowedJob::new(shard(&[0.0; 3]))), TERM));
            primary.jobs.close(EngineEpoch(1), job.run()).unwrap();
            let outcome = told.join().unwrap();
            assert!(outcome.is_ok(), "{outcome:?}");
        });
    }

    #[test]
    fn a_standby_that_may_not_have_heard_that_a_job_is_over_is_lost() {
        while_followed(|primary, standby, job, told| {
            let followed = lock(&standby.followed.0).jobs[job.job()].clone();
            // It hangs.
            let change = lock(&followed.ended);
            primary.jobs.close(EngineEpoch(1), job.run()).unwrap();
            standby.connections.shut_down();
            let outcome = told.join().unwrap();
            drop(change);
            assert!(matches!(outcome, Err(LinkError::Broken(_))), "{outcome:?}");
        });
    }

    #[test]
    fn a_job_that_is_pushed_to_all_the_time_gets_a_standby_that_goes_on_as_it_would_have() {
        let (pair, _) = pair();
        let (primary, standby) = (&pair.first, &pair.second);
        let job = Arc::new(shard(&vec![0.0; 5 * CHUNK_ELEMENTS + 3]));
        primary.jobs.restore(job.clone());
        start_if_followed(primary, &job);
        let (worker, header) = (Incarnation(1), PushHeader { skip: false, ..skipped() });
        let push = |seq: u64| {
            for index in 0..job.chunk_count() {
                let (trained, _) = job.chunked_range().chunk(index);
                let chunk = PushedChunk { worker, seq, index, header: &header, share: None };
                job.apply(chunk, &vec![seq as f32; trained]).unwrap();
            }
            job.complete(worker, seq, &header).unwrap();
        };
        let mut pushes = 0;
        while standby.followed.in_step() == 0 {
            pushes += 1;
            push(pushes);
        }
        push(pushes + 1);
        assert!(job.confirm(|| true));
        assert_eq!(role_change::promote(standby, EngineEpoch(1), TERM + 1), Ok(1));
        let served = standby.jobs.find(job.run()).unwrap();
        assert_eq!(served.push_cursor(worker), job.push_cursor(worker));
        assert!(served.copy_values().unwrap() == job.copy_values().unwrap());
    }
}
