//! What one task is, as it is kept: in memory as postcard, in Redis as JSON that a person can read.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, MapAccess, SeqAccess, Visitor, value},
};

use crate::{
    ids::{ContentDigest, NodeName},
    tasks::{BlobValue, Bytes, ClassIndex},
};

/// One task. As JSON an array of these five.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "Fields")]
pub(super) struct TaskRecord {
    pub class: ClassIndex,
    pub arguments: Vec<Argument>,
    /// Tasks that must have ended before it, besides those of its arguments.
    pub after: Vec<u32>,
    pub name: Option<NodeName>,
    /// The task that gives what this one gives.
    pub parent: Option<u32>,
}

type Fields = (ClassIndex, Vec<Argument>, Vec<u32>, Option<NodeName>, Option<u32>);

impl From<Fields> for TaskRecord {
    fn from((class, arguments, after, name, parent): Fields) -> Self {
        Self { class, arguments, after, name, parent }
    }
}

impl Serialize for TaskRecord {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { class, arguments, after, name, parent } = self;
        (class, arguments, after, name, parent).serialize(to)
    }
}

/// One argument, an [`Arg`](crate::tasks::Arg) with its tasks by their index in the graph, and short in JSON.
/// Formats that do not say what comes have it as serde derives it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub(super) enum Argument {
    Value(Bytes),
    Blob(BlobValue),
    Output(u32),
    Outputs(Vec<u32>),
    Outcome(u32),
    Outcomes(Vec<u32>),
}

impl TaskRecord {
    /// Tasks without whose values it is skipped.
    pub(super) fn values_of(&self) -> impl Iterator<Item = u32> + '_ {
        self.arguments.iter().filter(|arg| !arg.takes_outcomes()).flat_map(Argument::tasks).copied()
    }

    /// Tasks whose outcomes it takes.
    pub(super) fn outcomes_of(&self) -> impl Iterator<Item = u32> + '_ {
        self.arguments.iter().filter(|arg| arg.takes_outcomes()).flat_map(Argument::tasks).copied()
    }

    /// Tasks that give its arguments.
    pub(super) fn arguments_of(&self) -> impl Iterator<Item = u32> + '_ {
        self.values_of().chain(self.outcomes_of())
    }

    /// Tasks that have to end before it.
    pub(super) fn inputs(&self) -> impl Iterator<Item = u32> + '_ {
        self.arguments_of().chain(self.after.iter().copied())
    }

    /// Blobs that hold arguments which are too large to travel.
    pub(super) fn blobs(&self) -> impl Iterator<Item = &BlobValue> {
        self.arguments.iter().filter_map(|arg| if let Argument::Blob(blob) = arg { Some(blob) } else { None })
    }
}

impl Argument {
    fn tasks(&self) -> &[u32] {
        match self {
            Self::Value(_) | Self::Blob(_) => &[],
            Self::Output(task) | Self::Outcome(task) => std::slice::from_ref(task),
            Self::Outputs(tasks) | Self::Outcomes(tasks) => tasks,
        }
    }

    fn takes_outcomes(&self) -> bool {
        matches!(self, Self::Outcome(_) | Self::Outcomes(_))
    }
}

impl Serialize for Argument {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if !to.is_human_readable() {
            return Self::serialize(self, to);
        }
        match self {
            Self::Value(bytes) => bytes.serialize(to),
            Self::Blob(blob) => blob.serialize(to),
            Self::Output(task) => task.serialize(to),
            Self::Outputs(tasks) => tasks.serialize(to),
            Self::Outcome(task) => BTreeMap::from([("outcome", task)]).serialize(to),
            Self::Outcomes(tasks) => BTreeMap::from([("outcomes", tasks)]).serialize(to),
        }
    }
}

/// The fields of an object: those of a blob, or one of the other two.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    digest: Option<ContentDigest>,
    bytes: Option<u64>,
    outcome: Option<u32>,
    outcomes: Option<Vec<u32>>,
}

impl<'de> Deserialize<'de> for Argument {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if from.is_human_readable() {
            return from.deserialize_any(ByShape);
        }
        Self::deserialize(from)
    }
}

/// Text is a value, a number a task, a list tasks, an object a blob or what names tasks whose outcomes are
/// taken.
struct ByShape;

impl<'de> Visitor<'de> for ByShape {
    type Value = Argument;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a task, a list of tasks, a blob or outcomes")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Argument, E> {
        Bytes::deserialize(value::StrDeserializer::new(text)).map(Argument::Value)
    }

    fn visit_u64<E: Error>(self, task: u64) -> Result<Argument, E> {
        u32::try_from(task).map(Argument::Output).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, tasks: A) -> Result<Argument, A::Error> {
        Vec::deserialize(value::SeqAccessDeserializer::new(tasks)).map(Argument::Outputs)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Argument, A::Error> {
        match Object::deserialize(value::MapAccessDeserializer::new(object))? {
            Object { digest: Some(digest), bytes: Some(bytes), .. } => {
                Ok(Argument::Blob(BlobValue { digest, bytes }))
            }
            Object { outcome: Some(task), .. } => Ok(Argument::Outcome(task)),
            Object { outcomes: Some(tasks), .. } => Ok(Argument::Outcomes(tasks)),
            _ => Err(A::Error::custom("an object that is no blob and names no outcomes")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_from_json_and_from_postcard() {
        let arguments = vec![
            Argument::Value(vec![7, b'a', b'\\'].into()),
            Argument::Blob(BlobValue { digest: ContentDigest::from_bytes([0xab; 32]), bytes: 1 << 40 }),
            Argument::Output(5),
            Argument::Outputs(vec![1, 2]),
            Argument::Outputs(vec![]),
            Argument::Outcome(6),
            Argument::Outcomes(vec![7, 8]),
        ];
        let record = TaskRecord {
            class: ClassIndex(3),
            arguments,
            after: vec![0, 4],
            name: Some("resize".parse().unwrap()),
            parent: Some(9),
        };
        let json = serde_json::to_string(&record).unwrap();
        assert!(json.starts_with(r#"[3,["\\x07a\\x5c",{"digest":"#), "{json}");
        assert!(
            json.ends_with(r#"},5,[1,2],[],{"outcome":6},{"outcomes":[7,8]}],[0,4],"resize",9]"#),
            "{json}"
        );
        assert_eq!(serde_json::from_str::<TaskRecord>(&json).unwrap(), record);
        let bytes = postcard::to_stdvec(&record).unwrap();
        assert_eq!(postcard::from_bytes::<TaskRecord>(&bytes).unwrap(), record);
    }

    #[test]
    fn what_is_no_argument_is_refused() {
        for bad in ["null", "-1", "4294967296", "1.5", "true", "{}", "[\"x\"]", "\"\\\\x0\""] {
            assert!(serde_json::from_str::<Argument>(bad).is_err(), "{bad}");
        }
    }
}
