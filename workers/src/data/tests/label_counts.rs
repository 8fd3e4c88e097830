//! How labels are spread.

use super::*;

#[test]
fn labels_are_counted_by_class_and_numbers_that_are_0_or_1() {
    let counts = |labels: &str, target: Target| {
        let text: String = labels.split(' ').map(|label| format!("1,{label}\n")).collect();
        let found = open_csv(&text, target).unwrap().label_counts(&[0, 1, 2]);
        found.map(|counts| counts.into_iter().collect::<Vec<_>>())
    };
    assert_eq!(counts("1 0 1 1", Target::Classes { count: 3, ignored: None }), Some(vec![(0, 1), (1, 2)]));
    assert_eq!(counts("1 0 1", Target::Probabilities), Some(vec![(0, 1), (1, 2)]));
    assert_eq!(counts("1 0.5 1", Target::Probabilities), None);
}
