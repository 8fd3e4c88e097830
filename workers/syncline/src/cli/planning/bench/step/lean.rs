//! The physical limit of a step: the same bytes over one TCP connection to a peer that applies the same
//! optimizer.
//!
//! No engine, no Redis, no headers, no locks, no accounts. The peer applies each 256 KiB while it is in cache
//! and sends all parameters back when the last has come.

use std::{
    io::{self, IoSlice, Read, Write},
    net::TcpStream,
    thread,
};

use syncline_ps::{
    optim::{self, OptimizerState},
    shard::CHUNK_ELEMENTS,
};

use super::super::{
    lean::tcp_pair,
    training_step::{LEARNING_RATE, RULE},
};

/// An open connection to the peer, a thread that ends with it.
pub(super) struct LeanStep(TcpStream);

impl LeanStep {
    /// Starts the peer with parameters that begin as `values`.
    pub(super) fn start(values: Vec<f32>) -> io::Result<Self> {
        let (stream, peer) = tcp_pair()?;
        // Its end is ours: it reads until we hang up.
        thread::spawn(move || serve(peer, values));
        Ok(Self(stream))
    }

    /// Sends the gradients and takes the parameters.
    pub(super) fn exchange(&mut self, gradients: &[&[f32]], values: &mut [f32]) -> io::Result<()> {
        let mut parts: Vec<IoSlice<'_>> =
            gradients.iter().map(|gradient| IoSlice::new(bytemuck::cast_slice(gradient))).collect();
        let mut rest = &mut parts[..];
        while !rest.is_empty() {
            let sent = self.0.write_vectored(rest)?;
            IoSlice::advance_slices(&mut rest, sent);
        }
        self.0.read_exact(bytemuck::cast_slice_mut(values))
    }
}

/// The peer's side, until its only caller hangs up.
fn serve(mut stream: TcpStream, mut values: Vec<f32>) -> io::Result<()> {
    let mut buffer = vec![0.0f32; CHUNK_ELEMENTS];
    let mut state = OptimizerState::new(&RULE, 0);
    loop {
        for chunk in values.chunks_mut(CHUNK_ELEMENTS) {
            let gradient = &mut buffer[..chunk.len()];
            stream.read_exact(bytemuck::cast_slice_mut(gradient))?;
            optim::step(&RULE, chunk, &mut state, gradient, LEARNING_RATE, 1.0);
        }
        stream.write_all(bytemuck::cast_slice(&values))?;
    }
}
