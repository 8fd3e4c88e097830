//! Texts of others on a terminal, such as the error of a user's function or what an engine answers.

use std::borrow::Cow;

/// A text without what a terminal would obey; its lines stay.
pub fn printable(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    match text.contains(obeyed) {
        true => text.replace(obeyed, " ").into(),
        false => text.into(),
    }
}
