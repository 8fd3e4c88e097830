//! Files that are read one after the other as one.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, SeqAccess, Visitor},
};

/// Paths of files, in the order in which their samples are counted; in a job file one text, or a list of
/// texts. The name of a file may hold `*` for any characters until the job is prepared, which puts those in
/// its place that are there then, in the order of their names.
///
/// ```
/// # use syncline_scheduler::spec::Files;
/// let one: Files = serde_json::from_str(r#""a.csv""#).unwrap();
/// let many: Files = serde_json::from_str(r#"["a.csv", "b.csv"]"#).unwrap();
/// assert_eq!((one, many), (Files::one("a.csv"), Files::of(["a.csv", "b.csv"])));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files(pub Vec<String>);

impl Files {
    /// A single file, or a pattern of some.
    pub fn one(path: impl AsRef<Path>) -> Self {
        Self::of([path])
    }

    /// These, one after the other.
    pub fn of<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Self {
        Self(paths.into_iter().map(|path| path.as_ref().to_string_lossy().into_owned()).collect())
    }

    /// Their paths.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// A blanket implementation over what is a path would leave no room for lists of paths.
macro_rules! one_file {
    ($($path:ty),+) => {$(
        impl From<$path> for Files {
            fn from(path: $path) -> Self {
                Self::one(path)
            }
        }
    )+};
}
one_file!(&str, String, &String, &Path, PathBuf, &PathBuf);

impl<P: AsRef<Path>> From<Vec<P>> for Files {
    fn from(paths: Vec<P>) -> Self {
        Self::of(paths)
    }
}

impl<P: AsRef<Path>> From<&[P]> for Files {
    fn from(paths: &[P]) -> Self {
        Self::of(paths)
    }
}

impl<P: AsRef<Path>, const N: usize> From<[P; N]> for Files {
    fn from(paths: [P; N]) -> Self {
        Self::of(paths)
    }
}

/// One text or a list where people read it, as jobs of one file have always been stored; else always a list.
impl Serialize for Files {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [path] if to.is_human_readable() => path.serialize(to),
            paths => paths.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Files {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct TextOrList;
        impl<'de> Visitor<'de> for TextOrList {
            type Value = Files;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a path or a list of paths")
            }

            fn visit_str<E: de::Error>(self, path: &str) -> Result<Files, E> {
                Ok(Files(vec![path.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Files, A::Error> {
                let mut paths = Vec::new();
                while let Some(path) = list.next_element()? {
                    paths.push(path);
                }
                Ok(Files(paths))
            }
        }
        match from.is_human_readable() {
            true => from.deserialize_any(TextOrList),
            false => Vec::deserialize(from).map(Self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_is_stored_as_it_always_was_and_several_as_a_list() {
        for (files, stored) in [
            (Files::one("a.csv"), r#""a.csv""#),
            (Files::of(["a.csv", "b.csv"]), r#"["a.csv","b.csv"]"#),
            (Files::default(), "[]"),
        ] {
            assert_eq!(serde_json::to_string(&files).unwrap(), stored);
            assert_eq!(serde_json::from_str::<Files>(stored).unwrap(), files);
            let sent = postcard::to_stdvec(&files).unwrap();
            assert_eq!(postcard::from_bytes::<Files>(&sent).unwrap(), files);
        }
        assert_eq!(serde_json::from_str::<Files>(r#"["a.csv"]"#).unwrap(), Files::one("a.csv"));
        let error = serde_json::from_str::<Files>("7").unwrap_err().to_string();
        assert!(error.contains("expected a path or a list of paths"), "{error}");
    }
}
