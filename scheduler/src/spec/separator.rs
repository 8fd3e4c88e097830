//! What stands between the columns of a table.

use serde::{Deserialize, Serialize};

/// A separator of columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Separator {
    /// `,`
    #[serde(rename = ",")]
    Comma,
    /// `;`
    #[serde(rename = ";")]
    Semicolon,
    /// A tab; `tab` or the character itself in a job file.
    #[serde(rename = "tab", alias = "\t")]
    Tab,
}

impl Separator {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Comma, Self::Semicolon, Self::Tab];

    /// The character.
    pub fn byte(self) -> u8 {
        match self {
            Self::Comma => b',',
            Self::Semicolon => b';',
            Self::Tab => b'\t',
        }
    }

    /// As a job file has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Comma => ",",
            Self::Semicolon => ";",
            Self::Tab => "tab",
        }
    }

    /// As a sentence has it.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Comma => "commas",
            Self::Semicolon => "semicolons",
            Self::Tab => "tabs",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_separator_is_written_as_it_is_named_and_a_tab_also_as_itself() {
        for separator in Separator::ALL {
            let text = serde_json::to_string(separator.name()).unwrap();
            assert_eq!(serde_json::to_string(&separator).unwrap(), text);
            assert_eq!(serde_json::from_str::<Separator>(&text).unwrap(), separator);
        }
        assert_eq!(serde_json::from_str::<Separator>(r#""\t""#).unwrap(), Separator::Tab);
    }
}
