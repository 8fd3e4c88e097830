//! How much the classes weigh, as people write it and as messages hold it.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, SeqAccess, Unexpected, Visitor, value::SeqAccessDeserializer},
};

/// How much each class weighs. As text a list of numbers, or `balanced`.
#[derive(Debug, Clone, PartialEq)]
pub enum ClassWeights {
    /// One weight per class, finite and not negative; empty if all count alike.
    Each(Vec<f32>),
    /// So much that all count alike in sum: of C classes, one with n_c of n training labels weighs n / (C
    /// n_c); as `pos_weight`, the labels 1 of a class weigh as many times as much as it has labels 0 for
    /// each. Whoever has the training set puts the numbers here: nothing is derived without them.
    Balanced,
}

impl ClassWeights {
    /// What stands for [`Balanced`](Self::Balanced) in a text.
    pub const BALANCED: &str = "balanced";

    /// The weights; none where all count alike, or while they are not counted.
    pub fn each(&self) -> &[f32] {
        match self {
            Self::Each(weights) => weights,
            Self::Balanced => &[],
        }
    }
}

impl Default for ClassWeights {
    fn default() -> Self {
        Self::Each(Vec::new())
    }
}

impl From<Vec<f32>> for ClassWeights {
    fn from(weights: Vec<f32>) -> Self {
        Self::Each(weights)
    }
}

/// In a message, which says nothing of its types, a list that may be missing.
impl Serialize for ClassWeights {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Balanced if to.is_human_readable() => Self::BALANCED.serialize(to),
            Self::Each(weights) if to.is_human_readable() => weights.serialize(to),
            Self::Balanced => None::<&[f32]>.serialize(to),
            Self::Each(weights) => Some(weights).serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for ClassWeights {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if from.is_human_readable() {
            return from.deserialize_any(Written);
        }
        Ok(Option::deserialize(from)?.map_or(Self::Balanced, Self::Each))
    }
}

struct Written;

impl<'de> Visitor<'de> for Written {
    type Value = ClassWeights;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"balanced\", or a list of numbers such as [1.0, 2.0]")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<ClassWeights, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(ClassWeights::Each)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ClassWeights, E> {
        match text {
            ClassWeights::BALANCED => Ok(ClassWeights::Balanced),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }
}
