//! Parameters and gradients that lie where both a worker and a shard on its machine read them.

use std::{
    io::{self, ErrorKind},
    os::fd::OwnedFd,
    ptr::NonNull,
    sync::{Arc, OnceLock},
};

use syncline_rpc::ShardFault;
use syncline_scheduler::spec::ElementRange;
use tracing::warn;

use super::{Link, LinkError, PullStats, ShardSet, pull::PullRequest, shards::ShardConn, unexpected_reply};
use crate::{
    PsError,
    shard::{ReadCondition, SlotShape},
    transport::{Access, Mapping, PAGE_BYTES, Pages, sealed_bytes, sealed_memory, take_pages},
    wire::{Reply, Request, SessionKey},
};

/// Memory for the gradients of a whole job, in layout order, which shards on this machine map: what is pushed
/// from here is not copied.
///
/// It may be written only while no push from here is under way; one is until [`ShardSet::push`] returns.
#[derive(Debug)]
pub struct GradientArea {
    memory: OwnedFd,
    mapping: Mapping,
    elements: usize,
}

impl GradientArea {
    /// Without any page: no shard may take it.
    fn create(elements: u64) -> io::Result<Self> {
        let elements = usize::try_from(elements).map_err(io::Error::other)?;
        let bytes = elements.checked_mul(size_of::<f32>()).ok_or(ErrorKind::OutOfMemory)?;
        let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
        let memory = sealed_memory(bytes)?;
        let mapping = Mapping::new(&memory, 0..bytes, Access::Write, Pages::WhenTouched)?;
        Ok(Self { memory, mapping, elements })
    }

    /// Takes the pages: neither a writer nor a shard that reads may find later that there are none.
    fn take_pages(&self) -> io::Result<()> {
        take_pages(&self.memory, 0..self.mapping.bytes())
    }

    /// The first of [`GradientArea::elements`] floats, which are there as long as `self` is.
    pub fn base(&self) -> NonNull<f32> {
        self.mapping.base().cast()
    }

    /// Floats that it holds: those of the whole job.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Whether the slices, one behind the other, are all that it holds.
    fn is(&self, slices: &[&[f32]]) -> bool {
        let mut next = self.base().as_ptr().cast_const();
        let follows = |slice: &&[f32]| {
            let at = slice.as_ptr();
            let fits = at == next || slice.is_empty();
            next = next.wrapping_add(slice.len());
            fits
        };
        slices.iter().map(|slice| slice.len()).sum::<usize>() == self.elements && slices.iter().all(follows)
    }
}

/// What a caller asks of shards on its machine.
#[derive(Clone, Copy)]
pub(super) struct LendRequest<'a> {
    pub session: &'a SessionKey,
    /// Elements of the whole job.
    pub elements: u64,
    /// Made for the first shard that may take it; `None`: gradients are sent.
    pub area: Option<&'a OnceLock<Option<Arc<GradientArea>>>>,
}

impl LendRequest<'_> {
    fn area(&self) -> Option<&Arc<GradientArea>> {
        let create = || {
            let made = GradientArea::create(self.elements);
            made.map(Arc::new)
                .inspect_err(|error| warn!(%error, "no memory to share for gradients: they are sent"))
                .ok()
        };
        self.area?.get_or_init(create).as_ref()
    }
}

/// The slots in which one shard lends its part of the parameters.
#[derive(Debug)]
pub(super) struct LentSlots {
    mapping: Mapping,
    shape: SlotShape,
}

/// Memory in which one shard on this machine lends parameters, for those who tell a device of it. The shard
/// writes there, and this process may only read.
#[derive(Debug, Clone)]
pub struct LentMemory(Arc<LentSlots>);

impl LentMemory {
    /// The first of [`LentMemory::bytes`] bytes, which are mapped as long as `self` or a copy of it lives.
    pub fn base(&self) -> NonNull<u8> {
        self.0.mapping.base()
    }

    /// Bytes that are mapped.
    pub fn bytes(&self) -> usize {
        self.0.mapping.bytes()
    }
}

/// Parameters that a shard has lent.
#[derive(Debug, Clone)]
pub(super) struct LentValues {
    slots: Arc<LentSlots>,
    slot: u32,
    /// What of the whole job it is.
    range: ElementRange,
}

impl LentSlots {
    fn map(memory: OwnedFd, shape: SlotShape) -> io::Result<Self> {
        let (memory, bytes) = sealed_bytes(memory)?;
        if shape.slot_bytes.checked_mul(shape.slots.into()) != Some(bytes as u64) {
            let what = format!("{bytes} bytes are not {} slots of {}", shape.slots, shape.slot_bytes);
            return Err(io::Error::new(ErrorKind::InvalidData, what));
        }
        let mapping = Mapping::new(&memory, 0..bytes, Access::Read, Pages::WhenTouched)?;
        Ok(Self { mapping, shape })
    }
}

impl LentValues {
    /// The values of `slot`, if there is one and it holds a range.
    pub(super) fn new(slots: &Arc<LentSlots>, slot: u32, range: ElementRange) -> Option<Self> {
        let SlotShape { slot_bytes, slots: count } = slots.shape;
        let fits = slot < count && range.len() * size_of::<f32>() as u64 <= slot_bytes;
        fits.then(|| Self { slots: slots.clone(), slot, range })
    }

    #[expect(unsafe_code, reason = "the numbers lie in memory that the shard maps")]
    fn values(&self) -> &[f32] {
        let at = self.slot as usize * self.slots.shape.slot_bytes as usize;
        // SAFETY: the memory cannot shrink. The shard, which belongs to our user and has shown that it knows
        // the cluster's token, writes there only when we have given the slot back: with the next push
        // or pull, which need `&mut ShardSet` and so end this borrow. A connection gives it back,
        // too, when it is cut. A shard that cuts its connections, because it stops or another process
        // serves, writes to no slot from then on (`Shared::cut_connections`). From here it is not cut because
        // a shard has moved, as long as this is read (`Addresses::begin_reading`), but where the
        // calls of the job are ended from another thread. What is computed then goes nowhere, and
        // each element is one of the numbers that were written.
        unsafe { self.slots.mapping.floats(at, self.range.len() as usize) }
    }

    /// The part of them that `range` of the whole job is.
    fn part(&self, range: ElementRange) -> Option<&[f32]> {
        let (start, end) =
            (range.start.checked_sub(self.range.start)?, range.end.checked_sub(self.range.start)?);
        self.values().get(start as usize..end as usize)
    }
}

impl Link {
    /// Asks a shard on this machine to lend its parameters and to take gradients where they lie. Without
    /// them, values travel through the connection: no fault of the shard is an error here.
    pub(super) fn lend(&mut self, request: LendRequest<'_>) -> Result<(), LinkError> {
        let session = request.session.clone();
        self.ask(&Request::LendParameters { session: session.clone() })?;
        match self.answer() {
            Ok((Reply::ParametersLent(shape), 0)) => {
                let slots = LentSlots::map(self.channel().receive_memory()?, shape)?;
                self.lent = Some(Arc::new(slots));
            }
            Ok((reply, _)) => return Err(unexpected_reply(&reply)),
            Err(LinkError::Fault(fault)) if is_over(&fault) => return Ok(()),
            Err(LinkError::Fault(fault)) => warn!(%fault, "parameters are received, not lent"),
            Err(error) => return Err(error),
        }
        let Some(area) = request.area() else { return Ok(()) };
        self.ask(&Request::TakeGradients { session })?;
        self.channel().send_memory(&area.memory)?;
        match self.answer() {
            Ok((Reply::GradientsTaken, 0)) => self.takes_gradients = true,
            Ok((reply, _)) => return Err(unexpected_reply(&reply)),
            Err(LinkError::Fault(fault)) if is_over(&fault) => {}
            Err(LinkError::Fault(fault)) => warn!(%fault, "gradients are sent, not taken where they lie"),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl ShardSet {
    /// Where gradients lie that shards on this machine need not be sent; `None` if no shard takes them so.
    /// Only who asks has the memory for them taken, all of it at once.
    pub fn gradient_area(&self) -> Option<Arc<GradientArea>> {
        let takes = |link: &Link| link.takes_gradients;
        let any = self.conns.iter().any(|conn| conn.link.as_ref().is_some_and(takes));
        let area = self.area.get().cloned().flatten().filter(|_| any)?;
        let taken = area
            .take_pages()
            .inspect_err(|error| warn!(%error, "no memory to share for gradients: they are sent"));
        taken.is_ok().then_some(area)
    }

    /// The memory of each connected shard that lends parameters: another one after it was connected again.
    pub fn lent_memory(&self) -> impl Iterator<Item = LentMemory> {
        let slots = |conn: &ShardConn| conn.link.as_ref()?.lent.clone();
        self.conns.iter().filter_map(slots).map(LentMemory)
    }

    /// Whether these are the gradients of the whole job, where they need not be sent.
    pub(super) fn lie_in_area(&self, gradients: &[&[f32]]) -> bool {
        matches!(self.area.get(), Some(Some(area)) if area.is(gradients))
    }

    /// As [`ShardSet::pull`], but what shards on this machine lend stays where it is: [`ShardSet::values`]
    /// finds it until the next push or pull. `tensors`: the ranges that will be asked for. One that no
    /// shard lends as a whole is copied.
    pub fn pull_in_place(
        &mut self,
        condition: ReadCondition,
        into: &mut [f32],
        tensors: impl IntoIterator<Item = ElementRange>,
    ) -> Result<PullStats, PsError> {
        let pulled = self.pull_to_read(PullRequest { condition, rows: None }, into)?;
        for tensor in tensors {
            let lent = self.conns.iter().filter_map(|conn| conn.lent.as_ref());
            for lent in lent.filter(|lent| lent.part(tensor).is_none()) {
                copy_common(lent, tensor, into);
            }
        }
        Ok(pulled)
    }

    /// Pulls; what was lent stays as it is until the next push or pull, as no connection to a shard that has moved
    /// is cut before.
    pub(super) fn pull_to_read(
        &mut self,
        wanted: PullRequest<'_>,
        into: &mut [f32],
    ) -> Result<PullStats, PsError> {
        loop {
            let pulled = self.pull_wanted(wanted, into)?;
            if self.addresses.begin_reading(self.lenders()) {
                return Ok(pulled);
            }
        }
    }

    /// Positions of the shards that have lent what is read now.
    fn lenders(&self) -> impl Iterator<Item = usize> {
        self.conns.iter().enumerate().filter(|(_, conn)| conn.lent.is_some()).map(|(index, _)| index)
    }

    /// Copies what was lent, so that all values are in `into`.
    pub(super) fn copy_lent(&mut self, into: &mut [f32]) {
        for conn in &mut self.conns {
            if let Some(lent) = conn.lent.take() {
                copy_common(&lent, lent.range, into);
            }
        }
        self.addresses.end_reading();
    }

    /// The values of `range`, one of those that [`ShardSet::pull_in_place`] was told of: where a shard lends
    /// them, or else from `own`, into which was pulled.
    ///
    /// # Panics
    /// If `own` has no such range.
    pub fn values<'a>(&'a self, range: ElementRange, own: &'a [f32]) -> &'a [f32] {
        let lent = self.conns.iter().filter_map(|conn| conn.lent.as_ref()).find_map(|lent| lent.part(range));
        lent.unwrap_or_else(|| &own[range.start as usize..range.end as usize])
    }
}

/// Whether the shard has nothing to lend because the job is over or restored, which the first pull will say.
fn is_over(fault: &ShardFault) -> bool {
    matches!(
        fault,
        ShardFault::Closed { .. } | ShardFault::WrongGeneration { .. } | ShardFault::UnknownJob { .. }
    )
}

/// Copies to where it belongs what both have of the whole job.
fn copy_common(lent: &LentValues, tensor: ElementRange, into: &mut [f32]) {
    let common =
        ElementRange { start: tensor.start.max(lent.range.start), end: tensor.end.min(lent.range.end) };
    if common.start < common.end
        && let Some(values) = lent.part(common)
    {
        into[common.start as usize..common.end as usize].copy_from_slice(values);
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::unix::fs::MetadataExt};

    use super::*;

    #[test]
    fn memory_for_gradients_has_no_pages_until_somebody_is_to_write_there() {
        let area = GradientArea::create(100_000).unwrap();
        let pages = File::from(area.memory.try_clone().unwrap());
        let allocated = || pages.metadata().unwrap().blocks() * 512;
        assert_eq!(allocated(), 0);
        area.take_pages().unwrap();
        assert!(allocated() >= 400_000);
    }
}
