//! A worker that is told to stop in the middle of a push.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::Mutex,
};

use syncline_ps::transport::Transport;

use super::*;

/// Stands before a shard. As long as a test has the lock, nothing gets through to it.
struct Gate {
    address: String,
    lock: Arc<Mutex<()>>,
}

impl Gate {
    fn before(shard: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, lock) = (listener.local_addr().unwrap().to_string(), Arc::<Mutex<()>>::default());
        let gate = lock.clone();
        thread::spawn(move || {
            for worker in listener.incoming() {
                let (worker, shard) = (worker.unwrap(), TcpStream::connect(shard).unwrap());
                let (mut answers, mut to) = (shard.try_clone().unwrap(), worker.try_clone().unwrap());
                thread::spawn(move || io::copy(&mut answers, &mut to));
                let gate = gate.clone();
                thread::spawn(move || let_through(worker, shard, &gate));
            }
        });
        Self { address, lock }
    }
}

fn let_through(mut worker: TcpStream, mut shard: TcpStream, gate: &Mutex<()>) {
    let mut piece = [0; 4096];
    while let Ok(read @ 1..) = worker.read(&mut piece) {
        let _is_open = gate.lock().unwrap();
        if shard.write_all(&piece[..read]).is_err() {
            break;
        }
    }
    let _ = shard.shutdown(Shutdown::Both);
}

#[test]
fn a_push_that_one_shard_has_reaches_the_others_before_a_worker_that_is_told_to_stop_leaves() {
    let rig = Rig::start();
    rig.barrier(0, &[(1, 2)]);
    let gate = Gate::before(rig.shards[1].address());
    let addresses = vec![rig.addresses()[0].clone(), gate.address.clone()];
    let (worker, gradient) = (1, GradientUse::LocalStep { first: 1, last: 2 });
    let local = |seq| rig.iteration(worker, It { superstep: 0, seq, range: range(0, 4), gradient });
    let mut context = rig.context(worker);
    context.transport = TransportChoice::Only(Transport::Tcp);
    let (context, tracker) = (&context, &TaskTracker::default());
    let (give, tasks) = mpsc::channel();
    let (finish, mut finished) = async_mpsc::unbounded_channel();
    let give = move |assignment: Assignment| {
        tracker.queue(&assignment.key);
        give.send(assignment).unwrap();
    };
    thread::scope(|scope| {
        let setup = |_: &JobId| {
            Ok(JobSetup { epoch: EPOCH, nonce: 0, train: rig.train.clone(), shards: addresses.clone() })
        };
        let ended = scope.spawn(move || execute(context, &tasks, &finish, tracker, setup));
        // The first step of the round pulls, and pushes nothing.
        give(local(1));
        until("the first step is done", || tracker.is_idle());
        let closed = gate.lock.lock().unwrap();
        give(local(2));
        until("the round is pushed", || rig.state(0).progress.watermarks.contains_key(&Incarnation(worker)));
        tracker.close();
        drop(closed);
        give(local(3));
        drop(give);
        assert_eq!(ended.join().unwrap(), End::Stopped);
    });
    let reported: Vec<Finished> = std::iter::from_fn(|| finished.blocking_recv()).collect();
    assert_eq!(seqs(&reported), [1, 2]);
    for shard in [0, 1] {
        assert_eq!(rig.state(shard).progress.watermarks.get(&Incarnation(worker)), Some(&2), "shard {shard}");
    }
}
