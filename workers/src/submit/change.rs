//! Fields of a job file that somebody gives other values: `settings.batch=64`.

use std::str::FromStr;

use toml::{Table, Value};

use super::SubmitError;

/// Fields of the training node that may be named without it.
const TRAINING_FIELDS: [&str; 5] = ["model", "data", "settings", "after", "retries"];
/// Those that stand at the top of a file without nodes.
const TOP_FIELDS: [&str; 3] = ["model", "data", "settings"];

/// A field of a job file and the value that it is given: `settings.batch=64`, `data.split={test_every=4}`,
/// `test.retries=5`.
///
/// The key begins with the name of a node, or with a field of the training node. The value is one of TOML,
/// which takes the place of the one in the file; what is none is a text, so that `settings.policy=bsp` needs
/// no quotes, nor does `id=2024`.
///
/// ```
/// # use syncline_workers::submit::FieldChange;
/// let change: FieldChange = "settings.batch=64".parse()?;
/// # Ok::<(), syncline_workers::submit::SubmitError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct FieldChange {
    /// As it was given.
    text: String,
    keys: Vec<String>,
    value: Value,
    /// The value as it was given.
    given: String,
}

impl FromStr for FieldChange {
    type Err = SubmitError;

    fn from_str(text: &str) -> Result<Self, SubmitError> {
        let refused = |cause: &str| SubmitError::Change {
            change: text.to_owned(),
            cause: cause.to_owned(),
            is_misshapen: true,
        };
        let (key, value) = text.split_once('=').ok_or_else(|| refused("expected KEY=VALUE"))?;
        let keys = keys(key).ok_or_else(|| refused("the key is none: expected names with dots between"))?;
        let given = value.trim();
        let parsed =
            toml::from_str::<Table>(&format!("value = {given}")).ok().filter(|table| table.len() == 1);
        let value = parsed.and_then(|mut table| table.remove("value"));
        let value = value.unwrap_or_else(|| Value::String(given.to_owned()));
        Ok(Self { text: text.to_owned(), keys, value, given: given.to_owned() })
    }
}

/// The parts of a dotted key, as TOML reads it.
fn keys(key: &str) -> Option<Vec<String>> {
    let mut keys = Vec::new();
    let mut inner = Value::Table(toml::from_str(&format!("{key} = 0")).ok()?);
    while let Value::Table(table) = inner {
        let (name, value) = table.into_iter().next()?;
        keys.push(name);
        inner = value;
    }
    Some(keys)
}

impl FieldChange {
    /// Changes what a job file says. Whether there is such a field shows when the file is read.
    pub(super) fn apply(&self, file: &mut Table) -> Result<(), SubmitError> {
        let (first, rest) = self.keys.split_first().ok_or_else(|| self.refused("the key is empty"))?;
        if first == "id" && rest.is_empty() {
            file.insert("id".to_owned(), self.value.clone());
            return Ok(());
        }
        if !file.contains_key("node") {
            return self.apply_to_training(file);
        }
        let mut nodes: Vec<&mut Table> = file
            .get_mut("node")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
            .filter_map(Value::as_table_mut)
            .collect();
        let says =
            |node: &Table, field: &str, word: &str| node.get(field).and_then(Value::as_str) == Some(word);
        let named = nodes.iter().position(|node| says(node, "name", first)).map(|node| (node, rest));
        let of_training = || {
            let training = nodes.iter().position(|node| says(node, "do", "train"))?;
            TRAINING_FIELDS.contains(&first.as_str()).then_some((training, self.keys.as_slice()))
        };
        let Some((node, keys)) = named.or_else(of_training) else {
            let names: Vec<&str> = nodes.iter().filter_map(|node| node.get("name")?.as_str()).collect();
            let (names, fields) = (names.join(", "), TRAINING_FIELDS.join(", "));
            return Err(self.refused(format!(
                "`{first}` is neither a node ({names}) nor a field of the training node ({fields}) nor id"
            )));
        };
        let Some((last, way)) = keys.split_last() else {
            return Err(self.refused(format!("`{first}` is a node: name one of its fields as well")));
        };
        put(nodes.swap_remove(node), way, last, self.value.clone());
        Ok(())
    }

    /// The same where the file itself is the training node.
    fn apply_to_training(&self, file: &mut Table) -> Result<(), SubmitError> {
        let keys = self.keys.strip_prefix(&["train".to_owned()]).unwrap_or(&self.keys);
        match keys.split_last() {
            Some((last, way)) if TOP_FIELDS.contains(&keys[0].as_str()) => {
                put(file, way, last, self.value.clone());
                Ok(())
            }
            _ => Err(self.refused(format!(
                "`{}` is none of {} and id, which a file without `[[node]]` has",
                self.keys[0],
                TOP_FIELDS.join(", ")
            ))),
        }
    }

    /// The same change to a text, where TOML reads something else: `id=2024`.
    pub(super) fn as_text(&self) -> Option<Self> {
        let text = Value::String(self.given.clone());
        (!self.value.is_str()).then(|| Self { value: text, ..self.clone() })
    }

    /// Why it leads nowhere.
    fn refused(&self, cause: impl Into<String>) -> SubmitError {
        SubmitError::Change { change: self.text.clone(), cause: cause.into(), is_misshapen: true }
    }

    /// What TOML's reader says, without the place if that lies outside of the value: the key says it, and the
    /// reader leaves out fields that name a kind, such as `forward`.
    pub(super) fn without_other_place(&self, said: &str) -> String {
        let Some((what, place)) = said.rsplit_once("\nin `") else { return said.to_owned() };
        let is_within = place.contains(&format!("{}.", self.keys.join(".")));
        if is_within { said.to_owned() } else { what.trim_end().to_owned() }
    }

    /// Why there is no such field, or none that takes the value.
    pub(super) fn not_taken(&self, cause: String) -> SubmitError {
        SubmitError::Change { change: self.text.clone(), cause, is_misshapen: false }
    }
}

/// Puts a value where the names lead. Where they lead through something that holds no fields, that makes way.
fn put(table: &mut Table, way: &[String], last: &str, value: Value) {
    let Some((next, way)) = way.split_first() else {
        table.insert(last.to_owned(), value);
        return;
    };
    let inner = table.entry(next.clone()).or_insert_with(|| Value::Table(Table::new()));
    if !inner.is_table() {
        *inner = Value::Table(Table::new());
    }
    if let Value::Table(inner) = inner {
        put(inner, way, last, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "id = 'a'\n[[node]]\nname = 'fit'\ndo = 'train'\nsettings = { batch = 8, optimizer = 'adam' }\n\
                        data.split = { test_every = 5 }\n[[node]]\nname = 'test'\ndo = 'evaluate'\nafter = ['fit']";

    fn changed(change: &str) -> Result<Table, String> {
        changed_in(FILE, change)
    }

    fn changed_in(file: &str, change: &str) -> Result<Table, String> {
        let mut file: Table = toml::from_str(file).unwrap();
        let change: FieldChange = change.parse().map_err(|error: SubmitError| error.to_string())?;
        change.apply(&mut file).map_err(|error| error.to_string())?;
        Ok(file)
    }

    #[test]
    fn a_field_is_named_by_its_node_or_is_one_of_the_training_node_table() {
        #[rustfmt::skip]
        let cases = [
            ("settings.batch=64",                         0, "settings = { batch = 64, optimizer = 'adam' }"),
            ("fit.settings.batch = 64",                   0, "settings = { batch = 64, optimizer = 'adam' }"),
            ("settings.policy=bsp",                       0, "settings = { batch = 8, optimizer = 'adam', policy = 'bsp' }"),
            ("settings.policy=elastic-bsp:15+slack=0.1",  0, "settings = { batch = 8, optimizer = 'adam', policy = 'elastic-bsp:15+slack=0.1' }"),
            ("settings.decay={steps=[[0.5, 0.1]]}",       0, "settings = { batch = 8, optimizer = 'adam', decay = { steps = [[0.5, 0.1]] } }"),
            ("settings.optimizer.momentum.momentum=0.8",  0, "settings = { batch = 8, optimizer = { momentum = { momentum = 0.8 } } }"),
            ("data.split={test_last_percent=10}",         0, "data.split = { test_last_percent = 10 }"),
            ("test.retries=5",                            1, "retries = 5"),
        ];
        for (change, node, want) in cases {
            let file = changed(change).unwrap();
            let want: Table = toml::from_str(want).unwrap();
            let node = file["node"][node].as_table().unwrap();
            assert!(want.iter().all(|(name, value)| node.get(name) == Some(value)), "{change}: {node:?}");
        }
        assert_eq!(changed("id=b").unwrap()["id"].as_str(), Some("b"));
    }

    #[test]
    fn a_field_of_a_file_that_is_one_training_stands_at_its_top() {
        let short = "id = 'a'\nsettings = { batch = 8 }";
        for change in ["settings.batch=64", "train.settings.batch=64"] {
            assert_eq!(
                changed_in(short, change).unwrap()["settings"]["batch"].as_integer(),
                Some(64),
                "{change}"
            );
        }
        for change in ["batch=64", "train=64", "test.retries=5"] {
            let error = changed_in(short, change).unwrap_err();
            assert!(
                error.ends_with(
                    "is none of model, data, settings and id, which a file without `[[node]]` has"
                ),
                "{error}"
            );
        }
    }

    #[test]
    fn a_key_that_leads_nowhere_is_answered_with_those_that_there_are() {
        #[rustfmt::skip]
        let cases = [
            ("batch=64",     "`batch` is neither a node (fit, test) nor a field of the training node (model, data, settings, after, retries) nor id"),
            ("test=5",       "`test` is a node: name one of its fields as well"),
            ("batch",        "expected KEY=VALUE"),
            ("a..b=1",       "expected names with dots between"),
        ];
        for (change, want) in cases {
            let error = changed(change).unwrap_err();
            assert!(
                error.starts_with(&format!("[E369] `{change}` cannot be set: ")) && error.ends_with(want),
                "{error}"
            );
        }
    }
}
