//! Something between worker and shard changes bytes of frames.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use syncline_ps::{
    client::{CancelToken, ClientOptions, ShardSet},
    shard::ReadCondition,
    transport::{Transport, TransportChoice},
};

use super::rig::{Rig, UNIT, client_options, session};

/// Flips a bit behind the start of every fifth message that begins with a frame, and passes everything on.
fn garble(
    mut from: TcpStream,
    mut to: TcpStream,
    frames: Arc<AtomicU32>,
    changed: Arc<AtomicU32>,
) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            return to.shutdown(Shutdown::Write);
        }
        if buffer.starts_with(b"SL") && read > 16 && frames.fetch_add(1, Ordering::Relaxed) % 5 == 4 {
            // Of the start in one message, of the head in another.
            let at = [2, 8, 15, 16, read.min(30) - 1][changed.fetch_add(1, Ordering::Relaxed) as usize % 5];
            buffer[at] ^= 0x40;
        }
        to.write_all(&buffer[..read])?;
    }
}

/// The address of a proxy that garbles in both directions, and how often it did.
fn garbling_proxy(shard: String) -> (String, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (frames, changed) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let count = changed.clone();
    thread::spawn(move || {
        for from in listener.incoming() {
            let (from, to) = (from.unwrap(), TcpStream::connect(&shard).unwrap());
            let both = || (from.try_clone().unwrap(), to.try_clone().unwrap());
            let ((a, b), (c, d)) = (both(), both());
            let (frames, changed) = (frames.clone(), changed.clone());
            let (more_frames, more_changed) = (frames.clone(), changed.clone());
            thread::spawn(move || garble(a, b, frames, changed));
            thread::spawn(move || garble(d, c, more_frames, more_changed));
        }
    });
    (address, count)
}

#[test]
fn frames_that_are_changed_on_their_way_are_sent_again_and_every_push_counts_once() {
    let rig = Rig::with_job(1, 100);
    let (address, changed) = garbling_proxy(rig.addresses().remove(0));
    let options = ClientOptions {
        transport: TransportChoice::Only(Transport::Tcp),
        in_place: false,
        ..client_options()
    };
    let addresses = [address];
    let addresses = addresses.as_slice().into();
    let token = rig.token.clone();
    let mut worker =
        ShardSet::connect_with(&addresses, token, session(1), 100, options, CancelToken::default()).unwrap();
    let mut values = [0.0; 100];
    worker.pull(ReadCondition::version(0), &mut values).unwrap();
    let first = values;
    for seq in 1..=40 {
        worker.push(seq, UNIT, &[&[1.0; 100]]).unwrap();
        worker.pull(ReadCondition::version(0), &mut values).unwrap();
    }
    assert!(changed.load(Ordering::Relaxed) >= 10, "{changed:?}");
    assert_eq!(rig.state(0).pushes, 40);
    assert_eq!(values, first.map(|value: f32| value - 40.0));
}
