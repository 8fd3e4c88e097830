//! What is fixed as long as a job has these parameters, and whether it makes sense. An order, a saved job and
//! a copy from another shard are checked alike: nothing is made of a layout before that, because the places
//! for tables are as many as it says.

use std::collections::HashSet;

use syncline_scheduler::{
    ids::RunId,
    spec::{ElementRange, Layout, Optimizer},
};

use super::chunk::CHUNK_ELEMENTS;

/// What is fixed as long as a job has these parameters.
pub(super) struct JobSettings {
    pub run: RunId,
    pub optimizer: Optimizer,
    pub clip_norm: Option<f32>,
    pub layout: Layout,
    pub index: u32,
    pub shards: Vec<String>,
    pub range: ElementRange,
}

/// Elements of the layout of a job that shard `index` of `shards` holds a part of. The fault is what makes no
/// sense, in words.
pub(crate) fn check_settings(
    layout: &Layout,
    optimizer: &Optimizer,
    clip_norm: Option<f32>,
    (index, shards): (u32, usize),
) -> Result<u64, String> {
    let Some(elements) = layout.elements() else { return Err("too many parameters".into()) };
    if !layout.is_ordered() {
        return Err("a buffer before a trained parameter".into());
    }
    if let Some(fault) = layout.tables_fault() {
        return Err(fault);
    }
    let mut names = HashSet::new();
    if !layout.0.iter().all(|p| names.insert(&p.name) && p.name != "__metadata__") {
        return Err("a parameter name that is taken".into());
    }
    if let Some(fault) = layout.settings_fault() {
        return Err(fault);
    }
    if index as usize >= shards {
        return Err("a shard number beyond the shards".into());
    }
    if clip_norm.is_some_and(|norm| !(norm.is_finite() && norm > 0.0)) {
        return Err("a norm to clip to that is no positive number".into());
    }
    match optimizer.fault() {
        Some(fault) => Err(fault),
        None => Ok(elements),
    }
}

/// Elements of `range` that the optimizer moves.
pub(super) fn trained_in(layout: &Layout, range: ElementRange) -> u64 {
    layout.trained_elements().clamp(range.start, range.end) - range.start
}

/// Bytes of the parameters in `range`, with what the optimizer keeps of each that it moves.
pub(crate) fn part_bytes(layout: &Layout, range: ElementRange, optimizer: &Optimizer) -> u64 {
    let moments = trained_in(layout, range).saturating_mul(optimizer.moments());
    range.len().saturating_add(moments).saturating_mul(size_of::<f32>() as u64)
}

/// The chunks that make up `range`: elements of each, and how many of them the optimizer moves.
pub(super) fn chunk_sizes(
    layout: &Layout,
    range: ElementRange,
) -> impl Iterator<Item = (usize, usize)> + use<> {
    let (elements, trained) = (range.len(), trained_in(layout, range));
    (0..elements).step_by(CHUNK_ELEMENTS).map(move |at| {
        let size = (elements - at).min(CHUNK_ELEMENTS as u64);
        (size as usize, trained.saturating_sub(at).min(size) as usize)
    })
}

#[cfg(test)]
mod tests {
    use syncline_scheduler::spec::Parameter;

    use super::*;

    #[test]
    fn chunks_make_up_the_range_and_buffers_come_last() {
        let chunk = CHUNK_ELEMENTS;
        let layout = Layout(vec![
            Parameter::trained("w", vec![chunk as u64 + 3]),
            Parameter::buffer("m", vec![chunk as u64]),
        ]);
        let sizes = |start, end| chunk_sizes(&layout, ElementRange { start, end }).collect::<Vec<_>>();
        let (first, end) = (chunk as u64, 2 * chunk as u64 + 3);
        assert_eq!(sizes(0, end), [(chunk, chunk), (chunk, 3), (3, 0)]);
        assert_eq!(sizes(first + 1, end), [(chunk, 2), (2, 0)]);
        assert_eq!(sizes(end, end), []);
    }
}
