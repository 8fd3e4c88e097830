//! A proxy whose first connections break where the test says, over the transport of these tests.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener},
    os::{fd::OwnedFd, unix::net::UnixListener},
    path::Path,
    thread,
    time::Duration,
};

use syncline_ps::{
    client::connect,
    transport::{Channel, Duplex, Memory, Socket, Transport, TransportChoice, connect_tcp},
    wire::{Reply, Request},
};
use syncline_rpc::{
    ShardFault, Token,
    hello::{self, Role},
};

/// Where one connection breaks.
#[derive(Debug, Clone, Copy)]
pub enum Cut {
    /// After this many bytes from the client.
    Up(u64),
    /// After this many bytes from the server.
    Down(u64),
    /// It does not break: after this many bytes from the client nothing moves any more.
    Hang(u64),
}

/// Forwards connections to a shard. Connection i breaks at `cuts[i]`; later ones do not break.
pub struct Cutter {
    pub address: String,
    _dir: tempfile::TempDir,
}

/// A listener for connections that are cut, and the shard behind it.
struct Front {
    token: Token,
    target: SocketAddr,
    cuts: Vec<Cut>,
}

impl Cutter {
    pub fn start(target: SocketAddr, token: &Token, cuts: Vec<Cut>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap().to_string();
        let front = Front { token: token.clone(), target, cuts };
        if super::super::super::TRANSPORT == Transport::Tcp {
            thread::spawn(move || front.serve(tcp.incoming().map_while(|s| Some(OwnedFd::from(s.ok()?)))));
            return Self { address, _dir: dir };
        }
        let path = dir.path().join("cutter");
        let unix = UnixListener::bind(&path).unwrap();
        let token = token.clone();
        thread::spawn(move || name_the_socket(&tcp, &token, &path));
        thread::spawn(move || front.serve(unix.incoming().map_while(|s| Some(OwnedFd::from(s.ok()?)))));
        Self { address, _dir: dir }
    }
}

/// Answers over TCP where the unix socket is.
fn name_the_socket(tcp: &TcpListener, token: &Token, path: &Path) {
    for stream in tcp.incoming() {
        let (mut stream, mut scratch) = (stream.unwrap(), Vec::new());
        if hello::receive_blocking(&mut stream, token, &[Role::Tensor], None).is_err() {
            continue;
        }
        if let Ok(Some((Request::LocalSocket, 0))) = Request::read(&mut stream, &mut scratch) {
            Reply::LocalSocket { path: Some(path.to_str().unwrap().into()) }.encode(0, &mut scratch);
            let _ = stream.write_all(&scratch);
        }
    }
}

impl Front {
    fn serve(&self, incoming: impl Iterator<Item = OwnedFd>) {
        for (number, client) in incoming.enumerate() {
            let cut = self.cuts.get(number).copied().unwrap_or(Cut::Up(u64::MAX));
            let (token, target) = (self.token.clone(), self.target.to_string());
            thread::spawn(move || {
                let transport = if super::super::super::TRANSPORT == Transport::Tcp {
                    Transport::Tcp
                } else {
                    Transport::Unix
                };
                let client = Socket::accepted(client.into(), transport).unwrap();
                if let Some((client, server)) = connect_both(client, &target, &token) {
                    forward(client, server, cut);
                }
            });
        }
    }
}

/// The client and the shard. With shared memory the client has greeted, else that is for the shard to answer.
fn connect_both(mut client: Socket, target: &str, token: &Token) -> Option<(Channel, Channel)> {
    let limit = Duration::from_secs(5);
    if super::super::super::TRANSPORT != Transport::Shm {
        let server = connect_tcp(target, limit, &|_| {}).ok()?;
        return Some((Channel::Socket(client), Channel::Socket(server)));
    }
    hello::receive_blocking(&mut client, token, &[Role::Tensor], None).ok()?;
    let (mut client, mut scratch) = (Channel::Socket(client), Vec::new());
    let bytes = loop {
        match Request::read(&mut client, &mut scratch) {
            Ok(Some((Request::ShareMemory { bytes }, 0))) => break bytes,
            // Nothing is lent through a proxy: the values travel.
            Ok(Some((Request::LendParameters { .. }, 0))) => {}
            Ok(Some((Request::TakeGradients { .. }, 0))) => client.read_exact(&mut [0]).ok()?,
            _ => return None,
        }
        let what = "a proxy lends nothing".into();
        Reply::Fault(ShardFault::Invalid { what }).encode(0, &mut scratch);
        client.write_all(&scratch).ok()?;
    };
    Reply::SharedMemory.encode(0, &mut scratch);
    client.write_all(&scratch).ok()?;
    let (memory, descriptor) = Memory::create(bytes).unwrap();
    client.upgrade_server(memory, &descriptor).ok()?;
    let server = connect(target, None, token, limit, TransportChoice::Only(Transport::Tcp), 0).ok()?;
    Some((client, server))
}

/// Carries bytes both ways until so many have gone one way, or an end is gone.
fn forward(mut client: Channel, mut server: Channel, cut: Cut) {
    let (mut up, mut down) = match cut {
        Cut::Up(bytes) | Cut::Hang(bytes) => (bytes, u64::MAX),
        Cut::Down(bytes) => (u64::MAX, bytes),
    };
    for channel in [&mut client, &mut server] {
        channel.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    }
    let mut buffer = vec![0; 64 << 10];
    while up > 0 && down > 0 {
        let open = pass(&mut client, &mut server, &mut up, &mut buffer)
            && pass(&mut server, &mut client, &mut down, &mut buffer);
        if !open {
            break;
        }
    }
    while matches!(cut, Cut::Hang(_)) && !client.is_closed_by_peer() {
        thread::sleep(Duration::from_millis(10));
    }
    client.socket().shut_down();
    server.socket().shut_down();
}

/// Carries what is there, at most `left` bytes; whether both ends are still open.
fn pass(from: &mut Channel, to: &mut Channel, left: &mut u64, buffer: &mut [u8]) -> bool {
    while *left > 0 {
        let part = (*left).min(buffer.len() as u64) as usize;
        match from.read(&mut buffer[..part]) {
            Ok(0) => return false,
            Ok(count) if to.write_all(&buffer[..count]).is_ok() => *left -= count as u64,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return true,
            Ok(_) | Err(_) => return false,
        }
    }
    true
}
