//! Which execution provider runs which part of a model: asked of ONNX Runtime, not of ourselves.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::{fmt, ptr, slice};

use ort::session::Session;
use ort::session::builder::SessionBuilder;
use ort::{AsPointer, sys};

/// Without it a session does not remember which provider took which node.
const RECORD: &str = "session.record_ep_graph_assignment_info";

/// How many nodes of a model each execution provider runs, after ONNX Runtime's rewrites.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placement {
    nodes: BTreeMap<String, usize>,
}

impl Placement {
    /// Has the session remember.
    pub(super) fn record(builder: SessionBuilder) -> ort::Result<SessionBuilder> {
        Ok(builder.with_config_entry(RECORD, "1")?)
    }

    /// Reads what a session remembers. Microseconds.
    #[expect(unsafe_code, reason = "ort wraps no call that tells where nodes were placed")]
    pub(super) fn of(session: &Session) -> ort::Result<Self> {
        let api = ort::api();
        // SAFETY: `result_from_status` takes the status over and frees it.
        let done = |status| unsafe { ort::Error::result_from_status(status) };
        let mut placement = Self::default();
        let (mut parts, mut count) = (ptr::null(), 0);
        // SAFETY: the session is alive, and ONNX Runtime fills in both places. What it points to belongs to
        // the session.
        done(unsafe { (api.Session_GetEpGraphAssignmentInfo)(session.ptr(), &mut parts, &mut count) })?;
        // SAFETY: it says `count` pointers lie there, in an array that is empty or not null.
        for &part in unsafe { items(parts, count) } {
            let (mut nodes, mut count, mut name) =
                (ptr::null::<*const sys::OrtEpAssignedNode>(), 0, ptr::null());
            // SAFETY: `part` comes from the session, which is alive; the places are ours.
            done(unsafe { (api.EpAssignedSubgraph_GetNodes)(part, &mut nodes, &mut count) })?;
            // SAFETY: as above.
            done(unsafe { (api.EpAssignedSubgraph_GetEpName)(part, &mut name) })?;
            // SAFETY: the name is a text with a zero byte at its end that lives as long as the session.
            let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
            *placement.nodes.entry(name.into_owned()).or_default() += count;
        }
        Ok(placement)
    }

    /// Nodes on a provider, as ONNX Runtime names it.
    pub fn nodes(&self, provider: &str) -> usize {
        self.nodes.get(provider).copied().unwrap_or(0)
    }

    #[cfg(test)]
    pub(super) fn from_counts(counts: &[(&str, usize)]) -> Self {
        Self { nodes: counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect() }
    }
}

/// # Safety
///
/// `first` points to `count` items that outlive the result; it may be null if there are none.
#[expect(unsafe_code, reason = "see Placement::of")]
unsafe fn items<'a, T>(first: *const T, count: usize) -> &'a [T] {
    // SAFETY: the caller's promise.
    if count == 0 { &[] } else { unsafe { slice::from_raw_parts(first, count) } }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nodes.is_empty() {
            return f.write_str("no nodes");
        }
        for (index, (provider, count)) in self.nodes.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{count} nodes on {provider}")?;
        }
        Ok(())
    }
}
