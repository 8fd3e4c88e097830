//! What a field of a CSV file says.

use syncline_scheduler::spec::Separator;

/// The number that a field holds, if it holds one.
pub(super) fn number(field: &[u8]) -> Option<f64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Whether a field is a number but for a comma among its digits: in place of the decimal point, or between
/// thousands.
pub(super) fn has_comma(field: &[u8]) -> bool {
    let digits = field.strip_prefix(b"-").or(field.strip_prefix(b"+")).unwrap_or(field);
    let is_between =
        digits.windows(3).any(|at| at[1] == b',' && at[0].is_ascii_digit() && at[2].is_ascii_digit());
    is_between && digits.iter().all(|byte| byte.is_ascii_digit() || b".,eE+-".contains(byte))
}

/// Characters of a field that a message repeats.
const SHOWN_CHARS: usize = 40;

/// The beginning of a field, for a message: on one line, and without what a terminal would obey.
pub(in crate::data) fn shown(field: &[u8]) -> String {
    let text = String::from_utf8_lossy(field);
    let mut chars = text.chars();
    let mut shown = String::new();
    for char in chars.by_ref().take(SHOWN_CHARS) {
        match char.is_control() {
            true => shown.extend(char.escape_default()),
            false => shown.push(char),
        }
    }
    if !chars.as_str().is_empty() {
        shown.push('…');
    }
    shown
}

/// What to do about a value that is missing.
pub(in crate::data) const MISSING: &str = "a value that is missing: fill it before, with the mean of its column, say, and a further column of 0 and 1 that tells \
                                           where one was missing";

/// What to do about a field that is not a number; docs/data.md says the same.
pub(in crate::data) fn hint(line: u64, field: &str) -> &'static str {
    if is_missing(field) {
        return MISSING;
    }
    if ["true", "false"].iter().any(|word| field.eq_ignore_ascii_case(word)) {
        return "write 1 for true and 0 for false: in pandas get_dummies(frame, dtype=int), or frame[column].astype(int)";
    }
    if has_points_between_thousands(field) {
        return "points stand between its thousands, and a number has one point, in front of its decimals: write the file again so, in pandas \
                read_csv(FILE, thousands=\".\", decimal=\",\").to_csv(NEW, index=False)";
    }
    if is_date(field) {
        return "a date or time is no number: write what of it counts before, such as the days since the first one, the month or the day of \
                the week, in columns of their own; or leave the column out, as `[data.inputs]` does, which names those that an input takes";
    }
    let bare = field.trim_matches(['"', '\'']);
    if field.contains([';', '\t']) {
        return "it has what may separate columns: every line has to be separated alike, and `separator` under the source says by what, `,`, `;` or \
                `tab`";
    }
    if bare.len() < field.len() && number(bare.as_bytes()).is_some() {
        return "numbers stand without quotes, or in double ones next to the commas: write the file again so";
    }
    match line {
        1 => {
            "a first record without any number is a header; leave out one that has numbers, and lines above it, with \
             `skip_lines`, and replace names by numbers before: only a label of one column may be a text, in every line, where the loss \
             takes classes"
        }
        _ => {
            "every field but those of the header has to be a number: replace names by numbers before, or name the columns that an input takes under \
             `[data.inputs]`, and leave out lines above the header \
             or the first sample with `skip_lines`; only a label of one column may be a text, in every line, where the loss takes classes"
        }
    }
}

/// What to do about a field that is a number but for its commas, in a file with this separator.
pub(in crate::data) fn comma_hint(field: &str, separator: Separator) -> String {
    let point = field.find('.');
    let is_behind_points = point.is_some_and(|point| field.rfind(',').is_some_and(|comma| point < comma));
    let in_groups = are_groups(field.split('.').next().unwrap_or_default(), ',');
    // Without a point `1,234` may be both; a decimal comma seldom stands where commas separate the columns.
    let is_certain = point.is_some() || field.matches(',').count() > 1 || separator == Separator::Comma;
    let (what, how) = if is_behind_points {
        ("points between its thousands and a decimal comma", r#"thousands=".", decimal=",""#)
    } else if in_groups && is_certain {
        ("commas between its thousands", r#"thousands=",""#)
    } else {
        ("a decimal comma", r#"decimal=",""#)
    };
    let sep = match separator {
        Separator::Comma => "",
        Separator::Semicolon => r#"sep=";", "#,
        Separator::Tab => r#"sep="\t", "#,
    };
    format!(
        "it looks as if the number has {what}: write the file again, in pandas read_csv(FILE, {sep}{how}).to_csv(NEW, index=False)"
    )
}

/// What tables write where there is no value.
const MISSING_WORDS: [&str; 9] = ["", "-", "?", "na", "n/a", "<na>", "nan", "null", "none"];

fn is_missing(field: &str) -> bool {
    MISSING_WORDS.iter().any(|word| field.trim().eq_ignore_ascii_case(word))
}

/// Whether it is a number with a point between all of its groups of three digits, such as `1.234.567`.
fn has_points_between_thousands(field: &str) -> bool {
    field.matches('.').count() > 1 && are_groups(field, '.')
}

/// Whether these are digits, with a mark in front of each three of them but the first ones.
fn are_groups(field: &str, mark: char) -> bool {
    let mut groups = field.trim_start_matches(['-', '+']).split(mark);
    let are_digits = |group: &str| group.bytes().all(|byte| byte.is_ascii_digit());
    let first = groups.next().is_some_and(|group| (1..=3).contains(&group.len()) && are_digits(group));
    first && groups.all(|group| group.len() == 3 && are_digits(group))
}

/// Whether it begins as dates and times do: two or three groups of digits with `-`, `/`, `.` or `:` between.
fn is_date(field: &str) -> bool {
    let first = field.split([' ', 'T']).next().unwrap_or_default();
    let groups: Vec<&str> = first.split(['-', '/', '.', ':']).collect();
    let are_digits =
        groups.iter().all(|group| !group.is_empty() && group.bytes().all(|b| b.is_ascii_digit()));
    are_digits && (groups.len() == 3 || groups.len() == 2 && first.contains(':'))
}
