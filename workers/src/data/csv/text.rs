//! What a field of a CSV file says.

/// The number that a field holds, if it holds one.
pub(super) fn number(field: &[u8]) -> Option<f64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// The beginning of a field, for a message.
pub(super) fn shown(field: &[u8]) -> String {
    String::from_utf8_lossy(field).chars().take(40).collect()
}

/// What to do about a field that is not a number.
pub(in crate::data) fn hint(line: u64, field: &str) -> Option<&'static str> {
    let bare = field.trim_matches(['"', '\'']);
    if field.contains([';', '\t']) {
        return Some(
            "columns are separated by commas, and decimals have a point: write the file again with those",
        );
    }
    if bare.len() < field.len() && number(bare.as_bytes()).is_some() {
        return Some(
            "numbers stand without quotes, or in double ones next to the commas: write the file again so",
        );
    }
    (line == 1).then_some("if the first line is a header, set skip_lines = 1")
}
