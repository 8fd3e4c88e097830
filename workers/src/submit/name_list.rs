//! Names in front of people.

/// Most that are named one by one.
const MOST_NAMED: usize = 6;

/// The first ones in quotes, and how many more there are.
pub(crate) fn list(names: &[impl AsRef<str>]) -> String {
    cut(&names.iter().map(|name| format!("`{}`", name.as_ref())).collect::<Vec<_>>())
}

/// The first ones as they are, and how many more there are.
pub(super) fn cut(said: &[String]) -> String {
    let first = said[..said.len().min(MOST_NAMED)].join(", ");
    let more = match said.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    first + &more
}
