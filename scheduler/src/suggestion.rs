//! Which name was probably meant by one that there is not. Pure.

/// The one of `names` that is nearest to `unknown`, whatever their case; `None` where more than a third of
/// its letters differ. Cost O(names · letters²).
pub fn nearest<'a>(unknown: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let unknown = unknown.to_lowercase();
    let distances =
        names.into_iter().map(|name| (strsim::osa_distance(&unknown, &name.to_lowercase()), name));
    let near = distances.filter(|(distance, name)| distance * 3 <= name.chars().count());
    near.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// The same as the end of a message, such as "; did you mean `bsp`?"; empty where no name is near.
pub fn did_you_mean<'a>(unknown: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    nearest(unknown, names).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
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
}
