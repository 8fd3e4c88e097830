//! Values of settings as a job file has them.

use std::fmt::{Display, LowerExp};

/// A number, as short as it reads back: `0.005`, and `1e-4` below a thousandth.
pub fn number<T: Display + LowerExp + Into<f64> + Copy>(value: T) -> String {
    let size = value.into().abs();
    if size > 0.0 && !(1e-3..1e9).contains(&size) { format!("{value:e}") } else { value.to_string() }
}

/// A list of values that are written already, such as `[1, 28, 28]`.
pub fn list<T: Display>(values: impl IntoIterator<Item = T>) -> String {
    let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
    format!("[{}]", values.join(", "))
}

/// A list of numbers.
pub fn numbers<T: Display + LowerExp + Into<f64> + Copy>(values: &[T]) -> String {
    list(values.iter().map(|&value| number(value)))
}

/// A list of texts, each in quotes.
pub fn texts<T: AsRef<str>>(values: &[T]) -> String {
    list(values.iter().map(|value| quoted(value.as_ref())))
}

/// A text within a list or a table.
pub fn quoted(text: &str) -> String {
    if text.contains(|c: char| c == '\'' || c.is_control()) {
        // Escapes of JSON are some of TOML's.
        serde_json::to_string(text).unwrap_or_default()
    } else {
        format!("'{text}'")
    }
}

/// A name within the place of a setting: in quotes unless TOML takes it without.
pub fn key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(is_bare) { name.to_owned() } else { quoted(name) }
}

/// A table of values that are written already.
pub fn table<'a>(fields: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let fields: Vec<String> = fields.into_iter().map(|(name, value)| format!("{name} = {value}")).collect();
    if fields.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", fields.join(", ")) }
}

/// Where a file lies. Of an address neither user and password nor what follows a `?`, which may sign it: the
/// list of settings is shown to all who may see the job.
pub fn path(path: &str) -> String {
    let Some((scheme, rest)) = path.split_once("://") else { return path.to_owned() };
    let place = match (rest.rfind('@'), rest.find(['?', '#'])) {
        // A password with such a sign in it, or a signature with an `@`: one cannot tell.
        (Some(user), Some(query)) if query < user => "…",
        (Some(user), Some(query)) => &rest[user + 1..query],
        (Some(user), None) => &rest[user + 1..],
        (None, Some(query)) => &rest[..query],
        (None, None) => rest,
    };
    format!("{scheme}://{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_short_as_they_read_back() {
        #[rustfmt::skip]
        let cases = [
            (0.0,     "0"),
            (0.1,     "0.1"),
            (128.0,   "128"),
            (-0.005,  "-0.005"),
            (0.001,   "0.001"),
            (5e-4,    "5e-4"),
            (1e-4,    "1e-4"),
            (1e-8,    "1e-8"),
            (2.5e12,  "2.5e12"),
        ];
        for (value, text) in cases {
            assert_eq!(number::<f32>(value), text);
            assert_eq!(text.parse(), Ok(value), "{text}");
        }
        assert_eq!(number(0.1_f64), "0.1");
        assert_eq!(numbers(&[0.5, 1e-6]), "[0.5, 1e-6]");
    }

    #[test]
    fn texts_and_tables_are_those_of_toml() {
        assert_eq!(texts(&["*.bias", "it's", "a\nb"]), r#"['*.bias', "it's", "a\nb"]"#);
        assert_eq!(
            table([("every_s", "60".to_owned()), ("on", "true".to_owned())]),
            "{ every_s = 60, on = true }"
        );
        assert_eq!(["x-1", "x.1", "", "it's"].map(key), ["x-1", "'x.1'", "''", "\"it's\""]);
        assert_eq!((table([]), list([0u8; 0])), ("{}".to_owned(), "[]".to_owned()));
    }

    #[test]
    fn an_address_is_shown_without_what_opens_it() {
        #[rustfmt::skip]
        let cases = [
            ("/data/a@b?c.csv",                         "/data/a@b?c.csv"),
            ("s3://bucket/file.csv",                    "s3://bucket/file.csv"),
            ("https://user:secret@host:81/f.csv",       "https://host:81/f.csv"),
            ("https://user:se/cr@et@host/f.csv",        "https://host/f.csv"),
            ("https://host/f.csv?X-Signature=secret",   "https://host/f.csv"),
            ("https://user:secret@host/f?sig=secret",   "https://host/f"),
            ("https://host/f#secret",                   "https://host/f"),
            ("https://user:se?cret@host/f",             "https://…"),
            ("https://host/f?user=a@b&sig=secret",      "https://…"),
        ];
        for (address, shown) in cases {
            assert_eq!(path(address), shown);
        }
    }
}
