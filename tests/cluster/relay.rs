//! A link that can be cut: what goes over it then is lost without a word, as in a network that drops packets.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU16, Ordering},
    },
    thread,
};

pub struct Relay {
    address: SocketAddr,
    is_cut: Arc<AtomicBool>,
    target: Arc<AtomicU16>,
}

impl Relay {
    /// Passes on to a port of this machine.
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, is_cut) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let target = Arc::new(AtomicU16::new(port));
        let (cut, port) = (is_cut.clone(), target.clone());
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let far = TcpStream::connect(("127.0.0.1", port.load(Ordering::Relaxed)));
                let Ok(far) = far else { continue };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let cut = cut.clone();
                    thread::spawn(move || pass_on(from, to, &cut));
                }
            }
        });
        Self { address, is_cut, target }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Where it is reached.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// New connections go to another port from now on: who listens there had to know of the relay before.
    pub fn point_to(&self, port: u16) {
        self.target.store(port, Ordering::Relaxed);
    }

    /// From now on nothing comes through.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
    }

    pub fn mend(&self) {
        self.is_cut.store(false, Ordering::Relaxed);
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut bytes = [0; 16 << 10];
    let mut lost = false;
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        lost |= is_cut.load(Ordering::Relaxed);
        // What has lost something is out of step for good: it ends when its ends give up.
        if !lost && to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
