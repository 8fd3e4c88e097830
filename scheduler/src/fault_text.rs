//! How the code of a fault and its words stand together.

use std::borrow::Cow;

/// The words behind their code, `[E351] the loss is not finite`, once: words that name it already stay as they are.
pub fn with_code<'a>(code: &str, reason: &'a str) -> Cow<'a, str> {
    let coded = format!("[{code}]");
    match code.is_empty() || reason.contains(&coded) {
        true => reason.into(),
        false => format!("{coded} {reason}").into(),
    }
}

/// The code that the words of a fault begin with: `E351` of `[E351] the loss is not finite`.
pub fn code_of(text: &str) -> Option<&str> {
    let (code, _) = text.strip_prefix('[')?.split_once(']')?;
    (code.len() == 4 && code.starts_with('E')).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_begin_with_a_code_tell_it() {
        assert_eq!(code_of("[E027] job a: batch is 0"), Some("E027"));
        assert_eq!(code_of("a person said [E027]"), None);
        assert_eq!(code_of("[later] it said"), None);
    }

    #[test]
    fn a_code_stands_in_front_of_its_words_once_table() {
        #[rustfmt::skip]
        let cases = [
            ("E351", "the loss is NaN",              "[E351] the loss is NaN"),
            ("E351", "[E351] the loss is NaN",       "[E351] the loss is NaN"),
            ("E351", "worker a: [E351] it is NaN",   "worker a: [E351] it is NaN"),
            ("E440", "[E306] node `m` has no input", "[E440] [E306] node `m` has no input"),
            ("",     "a person said so",             "a person said so"),
        ];
        for (code, reason, want) in cases {
            assert_eq!(with_code(code, reason), want);
        }
    }
}
