//! Classes that a part of the data does not have though it should, as where a file that is sorted by class is
//! split by place; and parts in which no label counts.

use std::collections::BTreeMap;

use super::name_list;
use crate::data::ValueError;

/// Labels of a class that are to be expected in a part before its absence is no chance, and the logarithm of
/// the number of classes more: with as many, any class at all is missing in one of 150 splits, e^-5.
const SURELY_EXPECTED: f64 = 5.0;

/// Which classes are missing in which part, where a sample has one label: those of one sample, as of a text,
/// come together. `parts`: labels by class of each, and what it is called.
pub(super) fn warnings(
    parts: &[(&str, BTreeMap<i64, u64>)],
    names: &[String],
    ignored: Option<i64>,
) -> Vec<String> {
    let count = |counts: &BTreeMap<i64, u64>| {
        counts.iter().filter(|(class, _)| Some(**class) != ignored).map(|(_, count)| count).sum::<u64>()
    };
    let mut all = BTreeMap::<i64, u64>::new();
    for (class, count) in parts.iter().flat_map(|(_, counts)| counts) {
        *all.entry(*class).or_default() += count;
    }
    let total = count(&all).max(1) as f64;
    let wanted = SURELY_EXPECTED + (all.len().max(1) as f64).ln();
    let mut said = Vec::new();
    for (part, counts) in parts {
        let share = count(counts) as f64 / total;
        let is_missing = |class: i64, labels: u64| {
            Some(class) != ignored && !counts.contains_key(&class) && labels as f64 * share >= wanted
        };
        let missing = all.iter().filter(|(class, labels)| is_missing(**class, **labels));
        let missing: Vec<String> = missing.map(|(&class, _)| named(class, names)).collect();
        if !missing.is_empty() {
            said.push(format!(
                "the {part} set has no label of class {}: where the file is sorted by class, shuffle its lines, or take the test set with `test_percent`",
                name_list::cut(&missing)
            ));
        }
    }
    said
}

/// Refuses a part in which no label counts: nothing is learned from it, and its loss is known of no
/// parameters. `weights`: of the classes, none where all count alike.
pub(super) fn check_some_count(
    parts: &[(&'static str, BTreeMap<i64, u64>)],
    names: &[String],
    ignored: Option<i64>,
    weights: &[f32],
) -> Result<(), ValueError> {
    let weight = |class: i64| usize::try_from(class).ok().and_then(|class| weights.get(class));
    let counts = |class: i64| Some(class) != ignored && weight(class).is_none_or(|weight| *weight > 0.0);
    match parts.iter().find(|(_, labels)| !labels.keys().any(|class| counts(*class))) {
        Some((part, labels)) => {
            let labels: Vec<String> = labels.keys().map(|class| named(*class, names)).collect();
            Err(ValueError::AllIgnored { part, labels: name_list::cut(&labels) })
        }
        None => Ok(()),
    }
}

/// A class by its name, or by its number.
pub(super) fn named(class: i64, names: &[String]) -> String {
    let name = usize::try_from(class).ok().and_then(|class| names.get(class));
    name.map_or_else(|| class.to_string(), |name| format!("`{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_missing_where_its_labels_were_surely_to_be_expected() {
        let counts = |counts: &[(i64, u64)]| counts.iter().copied().collect::<BTreeMap<_, _>>();
        #[rustfmt::skip]
        let cases: [(&str, [&[(i64, u64)]; 2], Option<i64>, &[(&str, &str)]); 6] = [
            ("both have all",              [&[(0, 80), (1, 20)], &[(0, 20), (1, 5)]], None,    &[]),
            ("sorted, the rare one last",  [&[(0, 98)],          &[(0, 1), (1, 9)]],  None,    &[("training", "`yes`")]),
            ("sorted in halves",           [&[(0, 50), (1, 30)], &[(1, 20)]],         None,    &[("test", "`no`")]),
            ("by chance",                  [&[(0, 90), (1, 4)],  &[(0, 10)]],         None,    &[]),
            ("what counts nothing",        [&[(0, 90), (-1, 90)], &[(0, 90)]],        Some(-1), &[]),
            ("a class without a name",     [&[(0, 90), (7, 90)], &[(0, 90)]],         None,    &[("test", "class 7:")]),
        ];
        let names = ["no".to_owned(), "yes".to_owned()];
        let many = |classes: i64| (0..classes).map(|class| (class, 60)).collect::<BTreeMap<_, _>>();
        let said = warnings(&[("training", many(512)), ("test", many(511))], &[], None);
        assert_eq!(said.len(), 1, "30 of class 511 are expected: {said:?}");
        let rare = |class: i64| BTreeMap::from([(class, 20)]);
        let all: BTreeMap<_, _> = many(512).into_iter().chain(rare(512)).collect();
        let said = warnings(&[("training", all), ("test", many(512))], &[], None);
        assert!(said.is_empty(), "10 of class 512 are expected: {said:?}");
        for (case, [train, test], ignored, want) in cases {
            let said = warnings(&[("training", counts(train)), ("test", counts(test))], &names, ignored);
            assert_eq!(said.len(), want.len(), "{case}: {said:?}");
            for (text, (part, class)) in said.iter().zip(want) {
                assert!(
                    text.starts_with(&format!("the {part} set")) && text.contains(class),
                    "{case}: {text}"
                );
            }
        }
    }
}
