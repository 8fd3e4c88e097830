//! Copies of inputs in memory from which a device reads them.

use std::{
    sync::{Mutex, PoisonError},
    thread,
};

use ort::memory::Allocator;
use ort::value::{DynTensor, TensorElementType};
use syncline_onnx::{ElementType, TensorView};

/// Floats for which a thread is worth its start: 4 MiB.
const LEAST_PART: usize = 1 << 20;

/// Copies a tensor to memory of `host`: that of `slot` if it is of the same kind, else anew. `view` has as
/// many numbers as its shape says. Large ones are copied on so many threads.
pub(super) fn stage<'s>(
    slot: &'s mut Option<DynTensor>,
    host: &Allocator,
    view: TensorView<'_>,
    threads: usize,
) -> ort::Result<&'s DynTensor> {
    let element = match view.element() {
        ElementType::F64 => TensorElementType::Float64,
        ElementType::I32 => TensorElementType::Int32,
        ElementType::I64 => TensorElementType::Int64,
        ElementType::U8 => TensorElementType::Uint8,
        ElementType::Bool => TensorElementType::Bool,
        _ => TensorElementType::Float32,
    };
    let fits = |tensor: &DynTensor| {
        let same = tensor.shape().iter().zip(view.shape()).all(|(a, b)| usize::try_from(*a) == Ok(*b));
        same && tensor.shape().len() == view.shape().len() && *tensor.data_type() == element
    };
    let tensor = match slot.take().filter(fits) {
        Some(tensor) => slot.insert(tensor),
        None => slot.insert(DynTensor::new(host, element, view.shape().to_vec())?),
    };
    match view {
        TensorView::F32 { data, .. } => {
            copy_to(tensor.try_extract_tensor_mut::<f32>()?.1, data, threads);
        }
        TensorView::F64 { data, .. } => tensor.try_extract_tensor_mut::<f64>()?.1.copy_from_slice(data),
        TensorView::I32 { data, .. } => tensor.try_extract_tensor_mut::<i32>()?.1.copy_from_slice(data),
        TensorView::I64 { data, .. } => tensor.try_extract_tensor_mut::<i64>()?.1.copy_from_slice(data),
        TensorView::U8 { data, .. } => tensor.try_extract_tensor_mut::<u8>()?.1.copy_from_slice(data),
        TensorView::Bool { data, .. } => tensor.try_extract_tensor_mut::<bool>()?.1.copy_from_slice(data),
    }
    Ok(tensor)
}

/// Copies to page-locked memory, on several threads where it is much: one alone is slower than the bus.
fn copy_to(locked: &mut [f32], from: &[f32], threads: usize) {
    copy_on(thread::Builder::new, locked, from, threads);
}

/// The same on threads that `builder` makes, as far as the system gives them: this one copies what they do
/// not.
fn copy_on(builder: impl Fn() -> thread::Builder, locked: &mut [f32], from: &[f32], threads: usize) {
    let parts = (from.len() / LEAST_PART).clamp(1, threads.max(1));
    if parts == 1 {
        return locked.copy_from_slice(from);
    }
    let each = from.len().div_ceil(parts);
    let left = Mutex::new(locked.chunks_mut(each).zip(from.chunks(each)));
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let copy = || {
        while let Some((locked, from)) = next() {
            locked.copy_from_slice(from);
        }
    };
    thread::scope(|scope| {
        let helpers = (1..parts).map(|_| builder().spawn_scoped(scope, copy));
        // At a limit on threads the next one would be refused as well.
        helpers.take_while(Result::is_ok).for_each(drop);
        copy();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_threads_copies_all_of_it() {
        for (elements, threads) in
            [(0, 4), (5, 4), (LEAST_PART * 3 + 1, 1), (LEAST_PART * 3 + 1, 2), (LEAST_PART * 3, 8)]
        {
            let from: Vec<f32> = (0..elements).map(|n| n as f32).collect();
            let mut locked = vec![-1.0; elements];
            copy_to(&mut locked, &from, threads);
            assert!(locked == from, "{elements} on {threads}");
        }
    }

    #[test]
    fn where_the_system_gives_no_thread_one_copies_all_of_it() {
        let from: Vec<f32> = (0..LEAST_PART * 3 + 1).map(|n| n as f32).collect();
        let mut locked = vec![-1.0; from.len()];
        // No system has room for such a stack, and says what it says at the limit on threads.
        copy_on(|| thread::Builder::new().stack_size(1 << 60), &mut locked, &from, 3);
        assert!(locked == from);
    }
}
