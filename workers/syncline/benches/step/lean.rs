//! The physical limit: the same bytes over one TCP connection to another process that applies the same optimizer.
//!
//! No engine, no Redis, no headers, no locks, no books. The peer applies each 256 KiB while it is in cache and sends
//! all parameters back when the last has come.

use std::{
    io::{self, IoSlice, Read, Write},
    net::{TcpListener, TcpStream},
    process::ExitCode,
};

use anyhow::{Context, Result};
use socket2::SockRef;
use syncline_ps::{
    optim::{self, OptimizerState},
    shard::CHUNK_ELEMENTS,
};

use super::{
    process::Process,
    training_step::{LEARNING_RATE, RULE, Step},
};

const BUFFER_BYTES: usize = 4 << 20;

/// The peer, with an open connection.
pub struct Lean {
    stream: TcpStream,
    _peer: Process,
}

impl Lean {
    /// Starts the peer and gives it the parameters.
    pub fn start(values: &[f32]) -> Result<Self> {
        let (peer, address) = Process::lean_peer()?;
        let mut stream = TcpStream::connect(address)?;
        prepare(&stream)?;
        stream.write_all(&(values.len() as u64).to_le_bytes())?;
        stream.write_all(bytemuck::cast_slice(values))?;
        Ok(Self { stream, _peer: peer })
    }

    /// One step: compute, send the gradients, take the parameters.
    pub fn step(&mut self, step: &mut Step) -> Result<()> {
        let stream = &mut self.stream;
        step.run(|values, gradients| {
            let mut parts: Vec<IoSlice<'_>> =
                gradients.iter().map(|g| IoSlice::new(bytemuck::cast_slice(g))).collect();
            let mut rest = &mut parts[..];
            while !rest.is_empty() {
                let sent = stream.write_vectored(rest)?;
                IoSlice::advance_slices(&mut rest, sent);
            }
            stream.read_exact(bytemuck::cast_slice_mut(values))
        })
        .map_err(anyhow::Error::from_boxed)?
        .context("the lean peer is gone")
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    SockRef::from(stream).set_send_buffer_size(BUFFER_BYTES)?;
    SockRef::from(stream).set_recv_buffer_size(BUFFER_BYTES)
}

/// This program as the peer.
pub fn run() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lean peer: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The peer's side, until its only caller hangs up.
fn serve() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    SockRef::from(&listener).set_recv_buffer_size(BUFFER_BYTES)?;
    println!("listening {}", listener.local_addr()?);
    let (mut stream, _) = listener.accept()?;
    prepare(&stream)?;
    let mut elements = [0; 8];
    stream.read_exact(&mut elements)?;
    let mut values = vec![0.0f32; u64::from_le_bytes(elements) as usize];
    stream.read_exact(bytemuck::cast_slice_mut(&mut values))?;
    let mut buffer = vec![0.0f32; CHUNK_ELEMENTS];
    let mut slots = OptimizerState::new(&RULE, 0);
    loop {
        for chunk in values.chunks_mut(CHUNK_ELEMENTS) {
            let gradient = &mut buffer[..chunk.len()];
            if stream.read_exact(bytemuck::cast_slice_mut(gradient)).is_err() {
                return Ok(());
            }
            optim::step(&RULE, chunk, &mut slots, gradient, LEARNING_RATE, 1.0);
        }
        stream.write_all(bytemuck::cast_slice(&values))?;
    }
}
