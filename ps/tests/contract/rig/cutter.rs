//! A proxy whose first connections break where the test says.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    thread,
};

/// Where one connection breaks.
#[derive(Debug, Clone, Copy)]
pub enum Cut {
    /// After this many bytes from the client.
    Up(u64),
    /// After this many bytes from the server.
    Down(u64),
}

/// Forwards connections to a shard. Connection i breaks at `cuts[i]`; later ones do not break.
pub struct Cutter {
    pub address: String,
}

impl Cutter {
    pub fn start(target: SocketAddr, cuts: Vec<Cut>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            for (number, client) in listener.incoming().enumerate() {
                let Ok(client) = client else { return };
                let (up, down) = match cuts.get(number) {
                    Some(Cut::Up(bytes)) => (*bytes, u64::MAX),
                    Some(Cut::Down(bytes)) => (u64::MAX, *bytes),
                    None => (u64::MAX, u64::MAX),
                };
                let server = TcpStream::connect(target).unwrap();
                forward(&client, &server, up);
                forward(&server, &client, down);
            }
        });
        Self { address }
    }
}

fn forward(from: &TcpStream, to: &TcpStream, limit: u64) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    thread::spawn(move || {
        let mut left = limit;
        let mut buffer = vec![0; 64 << 10];
        while left > 0 {
            let part = left.min(buffer.len() as u64) as usize;
            let Ok(read @ 1..) = from.read(&mut buffer[..part]) else { break };
            if to.write_all(&buffer[..read]).is_err() {
                break;
            }
            left -= read as u64;
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
}
