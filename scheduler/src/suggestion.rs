//! Which name was probably meant by one that there is not. Pure.

/// The one of `names` that is nearest to `unknown`, whatever their case; `None` where more than a third of
/// its letters differ. Cost O(names · letters²).
pub fn nearest<'a>(unknown: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = unknown.to_lowercase();
    let distances = names.into_iter().map(|name| match look_alike(unknown, name) {
        true => (0, name),
        false => (strsim::osa_distance(&lower, &name.to_lowercase()), name),
    });
    let near = distances.filter(|(distance, name)| distance * 3 <= name.chars().count());
    near.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// The same as the end of a message, such as "; did you mean `bsp`?"; empty where no name is near.
pub fn did_you_mean<'a>(unknown: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    did_you_mean_shown(unknown, names, |name| format!("`{name}`"))
}

/// The same, with the name that was probably meant as `show` shows it.
pub fn did_you_mean_shown<'a>(
    unknown: &str,
    names: impl IntoIterator<Item = &'a str>,
    show: impl Fn(&str) -> String,
) -> String {
    let Some(meant) = nearest(unknown, names) else { return String::new() };
    let how = if look_alike(unknown, meant) { " (the same letters, composed otherwise)" } else { "" };
    format!("; did you mean {}{how}?", show(meant))
}

/// Whether two different names are shown as one, because only one of them has its accents in characters of
/// their own, as file names and what is typed on a Mac often have.
fn look_alike(one: &str, other: &str) -> bool {
    let (letters, others) = (Letter::all(one), Letter::all(other));
    let alike = |(letter, other): (&Letter, &Letter)| {
        letter == other
            || letter.is_composed() && !other.marks.is_empty()
            || other.is_composed() && !letter.marks.is_empty()
    };
    one != other && letters.len() == others.len() && letters.iter().zip(&others).all(alike)
}

/// A character with the marks that combine with it.
#[derive(PartialEq)]
struct Letter {
    base: char,
    marks: Vec<char>,
}

impl Letter {
    fn all(name: &str) -> Vec<Self> {
        let mut letters: Vec<Self> = Vec::new();
        for base in name.chars() {
            let is_mark = matches!(base, '\u{300}'..='\u{36f}' | '\u{3099}' | '\u{309a}');
            match letters.last_mut() {
                Some(letter) if is_mark => letter.marks.push(base),
                _ => letters.push(Self { base, marks: Vec::new() }),
            }
        }
        letters
    }

    /// Whether it may have its accent in itself.
    fn is_composed(&self) -> bool {
        !self.base.is_ascii() && self.marks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_meant_unless_a_third_of_it_differs_table() {
        #[rustfmt::skip]
        let cases = [
            ("bps",        "asp bsp ssp",           Some("bsp")),
            ("BSP",        "asp bsp ssp",           Some("bsp")),
            ("localsgd",   "local-sgd lb-bsp",      Some("local-sgd")),
            ("weight",     "onnx weights",          Some("weights")),
            ("shade",      "onnx weights",          None),
            ("größe",      "Grösse größen",         Some("größen")),
            ("x",          "y",                     None),
            ("x",          "",                      None),
        ];
        for (unknown, names, want) in cases {
            assert_eq!(nearest(unknown, names.split_whitespace()), want, "{unknown}");
        }
        assert_eq!(did_you_mean("bps", ["bsp"]), "; did you mean `bsp`?");
        assert_eq!(did_you_mean("lamb", ["bsp"]), "");
    }

    #[test]
    fn names_that_are_shown_alike_are_said_to_be_composed_otherwise() {
        let composed_otherwise = " (the same letters, composed otherwise)?";
        for (one, other) in [
            ("gr\u{f6}\u{df}e", "gro\u{308}\u{df}e"),
            ("\u{e9}", "e\u{301}"),
            ("\u{30ac}", "\u{30ab}\u{3099}"),
        ] {
            for (unknown, known) in [(one, other), (other, one)] {
                let said = did_you_mean(unknown, ["gruppe", known]);
                assert_eq!(said, format!("; did you mean `{known}`{composed_otherwise}"));
            }
        }
        assert_eq!(
            did_you_mean("gr\u{f6}\u{df}e", ["gr\u{f6}\u{df}en"]),
            "; did you mean `gr\u{f6}\u{df}en`?"
        );
    }
}
