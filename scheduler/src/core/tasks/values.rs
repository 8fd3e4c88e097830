//! What tasks gave, for as long as somebody needs it.

use std::collections::{BTreeSet, HashMap};

use crate::{
    ids::ContentDigest,
    tasks::{Preview, Value},
};

/// What a task gave, and what that looks like if people may look at it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ValueWithPreview {
    pub value: Value,
    pub preview: Option<Preview>,
}

impl ValueWithPreview {
    /// As Redis holds it: the value behind a line of `:` and the preview.
    fn to_stored(&self) -> Vec<u8> {
        let value = self.value.to_stored();
        match &self.preview {
            Some(preview) => [b":", preview.as_str().as_bytes(), b"\n", &value].concat(),
            None => value,
        }
    }

    /// From what Redis holds.
    pub(super) fn from_stored(stored: &[u8]) -> Option<Self> {
        let Some(rest) = stored.strip_prefix(b":") else {
            return Some(Self { value: Value::from_stored(stored)?, preview: None });
        };
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let preview = std::str::from_utf8(&rest[..end]).ok()?.to_owned().into();
        Some(Self { value: Value::from_stored(&rest[end + 1..])?, preview: Some(preview) })
    }
}

/// A value and how many tasks will still take it.
#[derive(Debug, Clone, PartialEq)]
struct RefCountedValue {
    given: ValueWithPreview,
    uses: u32,
    /// It stays when nobody takes it any more: it is a result.
    stays: bool,
}

/// The values of one job. Empty ones are not kept: whoever takes them knows that they are empty.
#[derive(Debug, Clone, Default)]
pub(super) struct Values {
    kept: HashMap<u32, RefCountedValue>,
    /// Values that each blob holds: a task and the one that it continues may give the same.
    blobs: HashMap<ContentDigest, u32>,
    changed: BTreeSet<u32>,
}

impl PartialEq for Values {
    fn eq(&self, other: &Self) -> bool {
        self.kept == other.kept && self.blobs == other.blobs
    }
}

impl Values {
    /// Keeps what a task gave for the `uses` tasks that will take it; forever if it `stays`.
    pub(super) fn insert(&mut self, task: u32, given: ValueWithPreview, uses: u32, stays: bool) {
        if given.value.is_empty() {
            return;
        }
        if let Some(blob) = given.value.blob() {
            *self.blobs.entry(blob.digest).or_default() += 1;
        }
        self.kept.insert(task, RefCountedValue { given, uses, stays });
        self.changed.insert(task);
    }

    /// What a task that is done gave.
    pub(super) fn get(&self, task: u32) -> Value {
        self.kept.get(&task).map(|kept| kept.given.value.clone()).unwrap_or_default()
    }

    /// What is kept of what a task gave.
    pub(super) fn kept(&self, task: u32) -> Option<&ValueWithPreview> {
        self.kept.get(&task).map(|kept| &kept.given)
    }

    /// One that would have taken the value of `task` has ended. Returns the blob that nobody needs any more.
    pub(super) fn use_up(&mut self, task: u32) -> Option<ContentDigest> {
        let kept = self.kept.get_mut(&task)?;
        kept.uses = kept.uses.saturating_sub(1);
        if kept.uses > 0 || kept.stays { None } else { self.remove(task) }
    }

    /// A task that had taken the value of `task` takes it once more.
    pub(super) fn add_use(&mut self, task: u32) {
        if let Some(kept) = self.kept.get_mut(&task) {
            kept.uses += 1;
        }
    }

    /// Nobody takes a value any more: drops all that are not results. Returns the blobs that nobody needs any
    /// more.
    pub(super) fn drop_intermediate(&mut self) -> Vec<ContentDigest> {
        self.kept.values_mut().for_each(|kept| kept.uses = 0);
        let tasks: Vec<u32> = self.kept.iter().filter(|(_, kept)| !kept.stays).map(|(t, _)| *t).collect();
        let released = tasks.into_iter().filter_map(|task| self.remove(task)).collect();
        // Of many that were kept for a while a few results may be left, for days.
        self.kept.shrink_to_fit();
        self.blobs.shrink_to_fit();
        released
    }

    /// Keeps what a task gave no longer. Returns the blob that nobody needs any more.
    pub(super) fn remove(&mut self, task: u32) -> Option<ContentDigest> {
        let kept = self.kept.remove(&task)?;
        self.changed.insert(task);
        let digest = kept.given.value.blob()?.digest;
        let held = self.blobs.get_mut(&digest)?;
        *held -= 1;
        if *held > 0 {
            return None;
        }
        self.blobs.remove(&digest);
        Some(digest)
    }

    /// Whether a value that is kept is this blob.
    pub(super) fn holds(&self, digest: ContentDigest) -> bool {
        self.blobs.contains_key(&digest)
    }

    /// Every blob that holds a value.
    pub(super) fn blobs(&self) -> impl Iterator<Item = ContentDigest> {
        self.blobs.keys().copied()
    }

    pub(super) fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Takes what has changed since the last call, as it is stored.
    pub(super) fn take_changes(&mut self) -> Vec<(String, Option<Vec<u8>>)> {
        let changed = std::mem::take(&mut self.changed);
        let stored = |task: u32| self.kept.get(&task).map(|kept| kept.given.to_stored());
        changed.into_iter().map(|task| (task.to_string(), stored(task))).collect()
    }

    /// All of them are in the store.
    pub(super) fn mark_stored(&mut self) {
        self.changed.clear();
    }

    pub(super) fn mark_all_changed(&mut self) {
        self.changed.extend(self.kept.keys());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::BlobValue;

    const A: ContentDigest = ContentDigest::from_bytes([0xaa; 32]);
    const B: ContentDigest = ContentDigest::from_bytes([0xbb; 32]);

    fn blob(digest: ContentDigest) -> ValueWithPreview {
        let value = Value::Blob(BlobValue { digest, bytes: 1 });
        ValueWithPreview { value, preview: None }
    }

    #[test]
    fn what_was_given_is_read_back_with_its_preview() {
        let preview = |text: &str| Some(Preview::from(text.to_owned()));
        let small = Value::Inline(b"\n:=".to_vec().into());
        for (preview, begins) in [(None, "="), (preview(""), ":\n="), (preview("é=@:"), ":é=@:\n=")] {
            let given = ValueWithPreview { value: small.clone(), preview };
            let stored = given.to_stored();
            assert!(stored.starts_with(begins.as_bytes()), "{stored:?}");
            assert_eq!(ValueWithPreview::from_stored(&stored), Some(given));
        }
        for bad in [&b":"[..], b":x", b":x\n", b":x\ny", b":\xff\n="] {
            assert_eq!(ValueWithPreview::from_stored(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_value_goes_with_its_last_use_unless_it_is_a_result() {
        let mut values = Values::default();
        values.insert(1, blob(A), 2, false);
        values.insert(2, blob(B), 1, true);
        assert_eq!(values.use_up(1), None);
        assert_eq!(values.use_up(1), Some(A));
        assert_eq!(values.use_up(1), None, "it is gone");
        assert_eq!(values.use_up(2), None);
        assert_eq!(values.get(2), blob(B).value);
        let stored = format!("@{}:1", "b".repeat(64)).into_bytes();
        assert_eq!(values.take_changes(), [("1".into(), None), ("2".into(), Some(stored))]);
    }

    #[test]
    fn a_blob_that_two_values_share_goes_with_the_second() {
        let mut values = Values::default();
        values.insert(1, blob(A), 1, false);
        values.insert(2, blob(A), 1, false);
        assert_eq!(values.use_up(1), None);
        assert_eq!(values.drop_intermediate(), [A]);
        assert_eq!(values.blobs().count(), 0);
    }
}
