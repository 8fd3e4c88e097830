//! Settings of a training by their names, for people: what a job had is looked up, and compared, long after
//! its file is gone.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, MapAccess, Visitor},
    ser::SerializeMap,
};

/// Most characters of a value: the list is kept in the record of its job.
const MAX_VALUE_CHARS: usize = 400;
/// Most characters of a name, and most settings: more than there are.
const MAX_NAME_CHARS: usize = 80;
const MAX_SETTINGS: usize = 100;

/// One setting, as `syncline submit --set NAME=VALUE` takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Its place in the job file, such as `settings.batch` or `data.source.csv.path`.
    pub name: String,
    /// What stands there: a text without quotes, and everything else as TOML has it. A long one ends in `…`.
    pub value: String,
}

/// Settings in the order of docs/job-file.md. It travels, is stored and is printed as a map of texts, in this
/// order.
///
/// ```
/// # use syncline_scheduler::spec::SettingList;
/// let mut list = SettingList::default();
/// list.push("settings.batch", "64");
/// list.push("settings.decay", "cosine");
/// let text = r#"{"settings.batch":"64","settings.decay":"cosine"}"#;
/// assert_eq!(serde_json::to_string(&list).unwrap(), text);
/// assert_eq!(list.get("settings.batch"), Some("64"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SettingList(Vec<Setting>);

impl SettingList {
    /// Adds a setting behind the others. A long value is cut, and what is beyond a hundred settings is left
    /// out.
    pub fn push(&mut self, name: &str, value: impl fmt::Display) {
        if self.0.len() < MAX_SETTINGS {
            let value = cut(value.to_string(), MAX_VALUE_CHARS);
            self.0.push(Setting { name: cut(name.to_owned(), MAX_NAME_CHARS), value });
        }
    }

    /// The value of the setting of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|setting| setting.name == name).map(|setting| setting.value.as_str())
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.0.iter()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn cut(mut text: String, most_chars: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(most_chars) {
        text.truncate(end);
        text.push('…');
    }
    text
}

impl Serialize for SettingList {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        self.0.iter().try_for_each(|Setting { name, value }| map.serialize_entry(name, value))?;
        map.end()
    }
}

/// From a map of texts, or from such a map as JSON in a text, as Redis has it; an empty text is an empty
/// list.
impl<'de> Deserialize<'de> for SettingList {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if from.is_human_readable() {
            from.deserialize_any(MapOrText)
        } else {
            from.deserialize_map(MapOrText)
        }
    }
}

struct MapOrText;

impl<'de> Visitor<'de> for MapOrText {
    type Value = SettingList;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of settings to texts")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<SettingList, E> {
        match text {
            "" => Ok(SettingList::default()),
            json => serde_json::from_str(json).map_err(E::custom),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SettingList, A::Error> {
        let mut list = SettingList::default();
        while let Some((name, value)) = map.next_entry::<String, String>()? {
            list.push(&name, value);
        }
        Ok(list)
    }
}

/// Settings that only the submission knows, such as the loss: the engine is given the graph that was derived
/// with them. They decide nothing any more, so that jobs which differ in nothing else are the same.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SubmittedSettings(pub SettingList);

impl PartialEq for SubmittedSettings {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(pairs: &[(&str, &str)]) -> SettingList {
        let mut list = SettingList::default();
        pairs.iter().for_each(|(name, value)| list.push(name, value));
        list
    }

    #[test]
    fn a_list_keeps_its_order_on_the_wire_in_json_and_in_a_text() {
        let list = list(&[("settings.seed", "3"), ("data.scale", "0.5"), ("a", "it's \"so\"")]);
        let json = serde_json::to_string(&list).unwrap();
        assert_eq!(serde_json::from_str::<SettingList>(&json).unwrap(), list);
        let text = serde_json::to_string(&json).unwrap();
        assert_eq!(serde_json::from_str::<SettingList>(&text).unwrap(), list);
        let bytes = postcard::to_stdvec(&list).unwrap();
        assert_eq!(postcard::from_bytes::<SettingList>(&bytes).unwrap(), list);
        assert!(serde_json::from_str::<SettingList>("\"\"").unwrap().is_empty());
        assert!(serde_json::from_str::<SettingList>("\"seed\"").is_err());
    }

    #[test]
    fn a_list_stays_small_whatever_it_is_given() {
        let long = "ä".repeat(5_000);
        let mut list = list(&[("a", &"ä".repeat(MAX_VALUE_CHARS)), (&long, &long)]);
        assert_eq!(list.0[0].value.chars().count(), MAX_VALUE_CHARS);
        assert_eq!(list.0[1].value.chars().count(), MAX_VALUE_CHARS + 1);
        assert!(list.0[1].value.ends_with("ä…") && list.0[1].name.chars().count() == MAX_NAME_CHARS + 1);
        (0..1_000).for_each(|n| list.push("n", n));
        assert_eq!(list.iter().count(), MAX_SETTINGS);
    }
}
