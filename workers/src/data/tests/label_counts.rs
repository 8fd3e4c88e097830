//! How labels are spread.

use super::*;

#[test]
fn the_deviation_of_labels_is_that_of_their_widest_number_in_the_rows_that_train() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "data.csv", b"1,1,10\n2,3,30\n3,999,999\n");
    let wanted = ModelSignature { label: Some(label(Target::Values, &[Some(2)])), ..wants(CLASSES) };
    let data = Dataset::open(&csv_spec(&path, 2, 0), &wanted).unwrap();
    assert_eq!(data.label_deviation(&[0, 1]).unwrap(), Some(10.0));
    assert_eq!(
        Dataset::open(&csv_spec(&path, 1, 0), &wants(Target::Classes { count: 1000, ignored: None }))
            .unwrap()
            .label_deviation(&[0, 1])
            .unwrap(),
        None
    );
}

#[test]
fn labels_are_counted_by_class_and_numbers_that_are_0_or_1() {
    let counts = |labels: &str, target: Target| {
        let text: String = labels.split(' ').map(|label| format!("1,{label}\n")).collect();
        let found = open_csv(&text, target).unwrap().label_counts(&[0, 1, 2]).unwrap();
        found.map(|counts| counts.into_iter().collect::<Vec<_>>())
    };
    assert_eq!(counts("1 0 1 1", Target::Classes { count: 3, ignored: None }), Some(vec![(0, 1), (1, 2)]));
    assert_eq!(counts("1 0 1", Target::Probabilities), Some(vec![(0, 1), (1, 2)]));
    assert_eq!(counts("1 0.5 1", Target::Probabilities), None);
}
