//! A link that can be cut, for all or for some: what goes over it then is lost without a word, as in a
//! network that drops packets.

use std::{
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU16, Ordering},
    },
    thread,
};

pub struct Relay {
    address: SocketAddr,
    cut: Arc<Cut>,
    target: Arc<AtomicU16>,
}

/// Who is cut off.
#[derive(Default)]
struct Cut {
    all: AtomicBool,
    /// Numbers of processes.
    some: Mutex<Vec<u32>>,
}

impl Cut {
    /// Whether the caller whose end of the connection is this socket is cut off.
    fn is_of(&self, socket: Option<&str>) -> bool {
        let some = self.some.lock().unwrap();
        self.all.load(Ordering::Relaxed)
            || socket.is_some_and(|socket| some.iter().any(|pid| has_socket(*pid, socket)))
    }
}

impl Relay {
    /// Passes on to a port of this machine.
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, cut) = (listener.local_addr().unwrap(), Arc::<Cut>::default());
        let target = Arc::new(AtomicU16::new(port));
        let (is_cut, port) = (cut.clone(), target.clone());
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let far = TcpStream::connect(("127.0.0.1", port.load(Ordering::Relaxed)));
                let Ok(far) = far else { continue };
                // Else each small message would wait 40 ms for the acknowledgement of the one before.
                let _ = (near.set_nodelay(true), far.set_nodelay(true));
                let socket = near.peer_addr().ok().and_then(|caller| socket_of(caller, address));
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let (is_cut, socket) = (is_cut.clone(), socket.clone());
                    thread::spawn(move || pass_on(from, to, || is_cut.is_of(socket.as_deref())));
                }
            }
        });
        Self { address, cut, target }
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
        self.cut.all.store(true, Ordering::Relaxed);
    }

    /// From now on nothing comes through from this process, and nothing to it.
    pub fn cut_off(&self, pid: u32) {
        self.cut.some.lock().unwrap().push(pid);
    }

    pub fn mend(&self) {
        self.cut.all.store(false, Ordering::Relaxed);
        self.cut.some.lock().unwrap().clear();
    }
}

/// What the system calls the caller's end of a connection, if it is still open.
fn socket_of(caller: SocketAddr, called: SocketAddr) -> Option<String> {
    let ports = [caller, called].map(|end| format!(":{:04X}", end.port()));
    let connections = fs::read_to_string("/proc/net/tcp").unwrap();
    let of_caller = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_this = fields[1].ends_with(&ports[0]) && fields[2].ends_with(&ports[1]);
        is_this.then(|| format!("socket:[{}]", fields[9]))
    };
    connections.lines().skip(1).find_map(of_caller)
}

fn has_socket(pid: u32, socket: &str) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    open.filter_map(|file| fs::read_link(file.path()).ok()).any(|link| link.as_os_str() == socket)
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, is_cut: impl Fn() -> bool) {
    let mut bytes = [0; 16 << 10];
    let mut lost = false;
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        lost = lost || is_cut();
        // What has lost something is out of step for good: it ends when its ends give up.
        if !lost && to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
