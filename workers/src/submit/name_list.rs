//! Names in front of people.

/// Most that are named one by one.
const MOST_NAMED: usize = 6;

/// The first ones, and how many more there are.
pub(super) fn list(names: &[impl AsRef<str>]) -> String {
    let first: Vec<String> =
        names.iter().take(MOST_NAMED).map(|name| format!("`{}`", name.as_ref())).collect();
    let more = match names.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    first.join(", ") + &more
}
