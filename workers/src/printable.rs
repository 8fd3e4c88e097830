//! Texts of others on a terminal, such as the error of a user's function or what an engine answers.

use std::borrow::Cow;

/// A text without what a terminal would obey, and without what would show it in another order or not at all;
/// its lines stay.
pub fn printable(text: &str) -> Cow<'_, str> {
    let obeyed = |c: char| c.is_control() && !matches!(c, '\n' | '\t') || is_invisible(c);
    match text.contains(obeyed) {
        true => text.replace(obeyed, " ").into(),
        false => text.into(),
    }
}

/// Characters that change how those beside them are shown, or show nothing.
pub fn is_invisible(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}
