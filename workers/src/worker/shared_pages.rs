//! Memory that a worker shares with shards on its machine and that its GPU reads and writes by itself:
//! parameters come to it, and gradients from it, without a copy by the processor.

use std::{ptr::NonNull, sync::Arc};

use syncline_ps::client::{GradientArea, LentMemory, ShardSet};
use syncline_runtime::{Device, HostMemory, PageLock, Runtime};
use tracing::warn;

/// What of it is locked. On the CPU, which reads and writes there anyway, nothing.
pub(super) struct SharedPages {
    /// `None` on the CPU.
    runtime: Option<Runtime>,
    gradients: Option<PageLock>,
    pub(super) lent: Vec<Lent>,
}

/// Memory in which a shard lends parameters.
pub(super) struct Lent {
    /// Address of its first byte, by which it is known.
    first: usize,
    /// `None` where it could not be locked: parameters are copied from there.
    _lock: Option<PageLock>,
}

/// Where gradients go that shards read.
#[derive(Debug)]
struct Gradients(Arc<GradientArea>);

/// Where parameters come from.
#[derive(Debug)]
struct Parameters(LentMemory);

// SAFETY: the area is mapped at one place as long as it lives.
#[expect(unsafe_code, reason = "a GPU writes through a pointer that no borrow protects")]
unsafe impl HostMemory for Gradients {
    fn base(&self) -> NonNull<u8> {
        self.0.base().cast()
    }

    fn bytes(&self) -> usize {
        self.0.elements() * size_of::<f32>()
    }

    fn is_writable(&self) -> bool {
        true
    }
}

// SAFETY: the same holds for what is lent.
#[expect(unsafe_code, reason = "a GPU reads through a pointer that no borrow protects")]
unsafe impl HostMemory for Parameters {
    fn base(&self) -> NonNull<u8> {
        self.0.base()
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn is_writable(&self) -> bool {
        false
    }
}

impl SharedPages {
    pub(super) fn new(runtime: &Runtime, device: Device) -> Self {
        let runtime = (device != Device::Cpu).then(|| runtime.clone());
        Self { runtime, gradients: None, lent: Vec::new() }
    }

    /// Whether gradients are best written to `area` by whoever computes them: on a GPU only if it does that
    /// by itself.
    pub(super) fn take_gradients(&mut self, area: &Arc<GradientArea>) -> bool {
        if let Some(runtime) = &self.runtime {
            self.gradients = lock(runtime, "gradients", Gradients(area.clone()));
        }
        self.runtime.is_none() || self.gradients.is_some()
    }

    /// Looks where shards lend parameters, after a pull: a connection that was opened again has another
    /// place.
    pub(super) fn follow(&mut self, shards: &ShardSet) {
        let Some(runtime) = &self.runtime else { return };
        let memory: Vec<LentMemory> = shards.lent_memory().collect();
        self.lent.retain(|lent| memory.iter().any(|memory| memory.base().addr().get() == lent.first));
        for memory in memory {
            let first = memory.base().addr().get();
            if !self.lent.iter().any(|lent| lent.first == first) {
                let _lock = lock(runtime, "parameters", Parameters(memory));
                self.lent.push(Lent { first, _lock });
            }
        }
    }
}

fn lock(runtime: &Runtime, what: &'static str, memory: impl HostMemory + 'static) -> Option<PageLock> {
    let refused = |error| warn!(%error, what, "the GPU cannot share memory with shards: it is copied");
    runtime.lock_pages(Arc::new(memory)).map_err(refused).ok()
}
