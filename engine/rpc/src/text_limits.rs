//! Limits on the lengths of names and texts in which a worker describes itself and its tasks. It cuts them
//! before it sends them, so that a message stays one, and the engine cuts what comes: it keeps and shows
//! them.

/// Most characters of a name: of a worker, a machine, a device, a label, or an error's code.
pub const MAX_NAME_CHARS: usize = 256;
/// Most characters of a text for people, such as the reason of a failure.
pub const MAX_TEXT_CHARS: usize = 1_000;
/// Most calls of which a worker tells that they run.
pub const MAX_RUNNING_TOLD: usize = 1_000;
/// Most functions that a worker names which were told to stop and have not returned.
pub const MAX_STOPPING_NAMED: usize = 5;
/// Most shards of which a worker tells that it does not reach them.
pub const MAX_UNREACHED_TOLD: usize = 64;

/// Cuts `text` to so many characters, the last of which says that there was more.
pub fn cut(text: &mut String, chars: usize) {
    // A text of few bytes has few characters.
    if text.len() <= chars || text.chars().nth(chars).is_none() {
        return;
    }
    let kept = text.char_indices().nth(chars.saturating_sub(1)).map_or(0, |(at, _)| at);
    text.truncate(kept);
    text.push('…');
}

/// This text, cut to so many characters.
#[must_use]
pub fn shortened(mut text: String, chars: usize) -> String {
    cut(&mut text, chars);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_at_a_character_and_says_so() {
        for (text, want) in [("", ""), ("abc", "abc"), ("äöü", "äöü"), ("abcd", "ab…"), ("äöüß", "äö…")]
        {
            let mut text = text.to_owned();
            cut(&mut text, 3);
            assert_eq!(text, want);
        }
    }
}
