//! Which field or value was probably meant where a job file has one that there is not. Pure.

use syncline_scheduler::suggestion::nearest;

/// What other programs call these fields.
const OTHER_NAMES: [(&str, &str); 6] = [
    ("lr", "learning_rate"),
    ("batch_size", "batch"),
    // What docs/data.md shows how to make such files of.
    ("parquet", "npz"),
    ("hdf5", "npz"),
    ("images", "npz"),
    ("image_folder", "npz"),
];

/// A message of serde, with what was probably meant behind what it does not know.
pub(super) fn with_suggestion(message: &str) -> String {
    let lines = message.split('\n').map(|line| match suggestion(line) {
        Some(meant) => format!("{line}; did you mean `{meant}`?"),
        None => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn suggestion(line: &str) -> Option<&str> {
    let unknown = line.split_once("unknown field `").or_else(|| line.split_once("unknown variant `"))?.1;
    let (unknown, expected) = unknown.split_once("`, expected ")?;
    let names = || expected.split('`').skip(1).step_by(2);
    let other = OTHER_NAMES.iter().find(|(other, _)| *other == unknown);
    if let Some(own) = other.and_then(|(_, own)| names().find(|name| name == own)) {
        return Some(own);
    }
    nearest(unknown, names())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_probably_meant_is_told_behind_what_is_unknown_table() {
        #[rustfmt::skip]
        let cases = [
            ("unknown field `lr`, expected one of `optimizer`, `learning_rate`",         Some("learning_rate")),
            ("unknown field `batch_size`, expected one of `batch`, `micro_batch`",       Some("batch")),
            ("unknown field `lr`, expected `onnx` or `weights`",                         None),
            ("unknown field `batch_`, expected one of `optimizer`, `batch`, `patience`",  Some("batch")),
            ("unknown field `weight`, expected `onnx` or `weights`",                     Some("weights")),
            ("unknown field `shade`, expected `onnx` or `weights`",                      None),
            ("unknown variant `macro_f1`, expected one of `loss`, `macro-f1`",           Some("macro-f1")),
            ("unknown variant `parquet`, expected one of `csv`, `idx`, `npz`",            Some("npz")),
            ("missing field `id`",                                                       None),
        ];
        for (message, meant) in cases {
            let want =
                meant.map_or(message.to_owned(), |meant| format!("{message}; did you mean `{meant}`?"));
            assert_eq!(with_suggestion(message), want);
            assert_eq!(
                with_suggestion(&format!("at line 3\n{message}\nin `a`")),
                format!("at line 3\n{want}\nin `a`")
            );
        }
    }
}
