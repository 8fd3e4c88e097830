//! A digest in a question: its 32 bytes, which take half of what its text does. For `#[serde(with = "...")]`.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use syncline_scheduler::ids::ContentDigest;

pub(super) fn serialize<S: Serializer>(digest: &ContentDigest, to: S) -> Result<S::Ok, S::Error> {
    digest.as_bytes().serialize(to)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ContentDigest, D::Error> {
    Deserialize::deserialize(from).map(ContentDigest::from_bytes)
}
