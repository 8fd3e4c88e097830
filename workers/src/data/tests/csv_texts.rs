//! Labels that are texts, and comments above a table.

use super::*;

const FLOWERS: &str = "width,height,species\n5,3,virginica\n4,2,setosa\n6,1,setosa\n7,2,versicolor\n";

fn named(data: &Dataset) -> Vec<&str> {
    data.class_names().iter().map(String::as_str).collect()
}

fn parts(folder: &TempDir, train: &str, test: &str) -> DataSpec {
    let spec = |name, text: &str| csv_spec(&write(folder, name, text.as_bytes()), 1, 0);
    DataSpec { test: Some(spec("test.csv", test).source), ..spec("train.csv", train) }
}

#[test]
fn texts_are_classes_in_ascending_order_wherever_the_label_stands() {
    let data = open_csv(FLOWERS, CLASSES).unwrap();
    assert_eq!(named(&data), ["setosa", "versicolor", "virginica"]);
    assert_eq!(labels(&data), [2.0, 0.0, 0.0, 1.0]);
    assert_eq!(samples(&data), [5.0, 3.0, 4.0, 2.0, 6.0, 1.0, 7.0, 2.0]);
    let folder = TempDir::new().unwrap();
    let first = write(&folder, "first.csv", "is,a,b\nyes,1,2\n no ,3,4\n\" yes\",5,6\n".as_bytes());
    let data = Dataset::open(&named_csv_spec(&first, &["is"]), &wants(CLASSES)).unwrap();
    assert_eq!((named(&data), labels(&data)), (vec!["no", "yes"], vec![1.0, 0.0, 1.0]));
    let headless = open_csv("1,2,True\n3,4,False\n", CLASSES).unwrap();
    assert_eq!((named(&headless), labels(&headless)), (vec!["False", "True"], vec![1.0, 0.0]));
    let numbers = open_csv("1,2,0\n3,4,1\n", CLASSES).unwrap();
    assert!(numbers.class_names().is_empty());
}

#[test]
fn two_texts_are_0_and_1_for_a_loss_of_yes_or_no_also_where_only_the_job_says_that_they_are_texts() {
    let folder = TempDir::new().unwrap();
    let spec = parts(&folder, "1,2,yes\n3,4,no\n", "5,6,no\n7,8,yes\n");
    let data = Dataset::open(&spec, &wants(Target::Probabilities)).unwrap();
    assert_eq!((named(&data), labels(&data)), (vec!["no", "yes"], vec![1.0, 0.0, 0.0, 1.0]));
    // A worker knows no loss.
    refused(&spec, &wants(Target::Values), "E335", "`yes` is not a number");
    let noted = DataSpec { class_names: data.class_names().to_vec(), ..spec };
    assert_eq!(labels(&Dataset::open(&noted, &wants(Target::Values)).unwrap()), [1.0, 0.0, 0.0, 1.0]);
    // Other files are read by the names of the job.
    let other = csv_spec(&write(&folder, "other.csv", b"1,2,yes\n"), 1, 0);
    let form = Form { like: Some(&noted), is_other: true, has_classes: true, ..Form::default() };
    let found = Dataset::open_as(&other, &wants(Target::Values), form, &mut || Ok(())).unwrap().0;
    assert_eq!(labels(&found), [1.0]);
}

#[test]
fn the_training_file_decides_the_classes_of_the_test_file() {
    let folder = TempDir::new().unwrap();
    for test in ["height,species,width\n9,virginica,8\n", "8,9,virginica\n"] {
        let data = Dataset::open(&parts(&folder, FLOWERS, test), &wants(CLASSES)).unwrap();
        assert_eq!(labels(&data), [2.0, 0.0, 0.0, 1.0, 2.0], "{test}");
        assert_eq!(samples(&data)[8..], [8.0, 9.0], "{test}");
    }
    #[rustfmt::skip]
    let cases = [
        (FLOWERS,         "1,2,setosa\n1,2,Setosa\n", "E582", "test.csv line 2, column 3: label `Setosa` is none of the 3 of "),
        (FLOWERS,         "1,2,0\n",                  "E582", "line 1, column 3: label `0` is a number, and those of "),
        (FLOWERS,         "1,2,\n",                   "E582", "label `` is empty"),
        ("1,2,0\n3,4,1\n", "1,2,setosa\n",            "E335", "`setosa` is not a number"),
    ];
    for (train, test, code, words) in cases {
        refused(&parts(&folder, train, test), &wants(CLASSES), code, words);
    }
}

#[test]
fn texts_that_are_no_labels_of_classes_are_refused_as_ever() {
    #[rustfmt::skip]
    let cases = [
        ("1,2,a\n1,2,3\n",                  CLASSES,        "E582", "line 2, column 3: label `3` is a number, and those before are strings"),
        ("1,2,a\n1,2,\n",                   CLASSES,        "E582", "line 2, column 3: label `` is empty"),
        ("1,2,0\n1,2,a\n",                  CLASSES,        "E335", "line 2, column 3: `a`"),
        ("1,b,a\n",                         CLASSES,        "E335", "line 1, column 2: `b`"),
        ("1,2,a\n1,2\n",                    CLASSES,        "E334", "line 2: 2 columns, expected 3"),
        ("1,2,a\n1,2,3,a\n",                CLASSES,        "E334", "line 2: 4 columns, expected 3"),
        ("1,2,a\n1,2,b\n1,2,c\n1,2,d\n",    CLASSES,        "E583", "has 4 different labels (`a`, `b`, `c`, `d`), the model tells 3 classes apart"),
        ("1,2,a\n1,2,b\n1,2,c\n",           Target::Probabilities, "E583", "has 3 different labels (`a`, `b`, `c`), the model tells 2 classes apart"),
        ("1,2,a\n1,2,0\n",                  Target::Probabilities, "E582", "label `0` is a number, and those before are strings"),
        ("1,2,a\n",                         Target::Values, "E335", "line 1, column 3: `a`"),
        ("1,2,a\n1,2,\x1b[2Jb\n1,2,c\n1,2,d\n", CLASSES,  "E583", "(`\\u{1b}[2Jb`, `a`, `c`, `d`)"),
        ("1,\x1b[2J,0\n",                    CLASSES,        "E335", "`\\u{1b}[2J` is not a number"),
    ];
    for (text, target, code, words) in cases {
        let error = open_csv(text, target).unwrap_err();
        assert!(error.code() == code && error.to_string().contains(words), "{text}: {error}");
    }
    let folder = TempDir::new().unwrap();
    let gap = write(&folder, "gap.csv", b"is,a,b\nyes,1,2\n\nno,1,2\n");
    refused(&named_csv_spec(&gap, &["is"]), &wants(CLASSES), "E334", "line 3: 0 columns, expected 3");
    let latin = write(&folder, "latin.csv", b"1,2,\xe9t\xe9\n");
    refused(&csv_spec(&latin, 1, 0), &wants(CLASSES), "E582", "is not in UTF-8");
    let two = write(&folder, "two.csv", b"1,a,b\n");
    let wanted = ModelSignature { label: Some(label(CLASSES, &[Some(2)])), ..wants(CLASSES) };
    refused(&csv_spec(&two, 2, 0), &wanted, "E335", "column 2: `a`");
    let many: String = (0..65_537).map(|number| format!("1,2,c{number}\n")).collect();
    let error = open_csv(&many, Target::Classes { count: 100_000, ignored: None }).unwrap_err();
    assert!(
        error.to_string().contains("line 65537, column 3: label `c65536` is one text more than the 65536"),
        "{error}"
    );
}

#[test]
fn other_files_are_read_by_the_names_of_the_job() {
    let folder = TempDir::new().unwrap();
    let job = csv_spec(&write(&folder, "train.csv", FLOWERS.as_bytes()), 1, 0);
    let open = |text: &str, form: Form<'_>, is_labeled: bool| {
        let path = write(&folder, "other.csv", text.as_bytes());
        let wanted = ModelSignature { label: wants(CLASSES).label.filter(|_| is_labeled), ..wants(CLASSES) };
        Dataset::open_as(&csv_spec(&path, 1, 0), &wanted, form, &mut || Ok(())).map(|(data, _)| data)
    };
    let like = Form { like: Some(&job), is_other: true, has_classes: true, ..Form::default() };
    let headed = open("species,height,width\nvirginica,3,5\n", like, true).unwrap();
    assert_eq!((labels(&headed), samples(&headed)), (vec![2.0], vec![5.0, 3.0]));
    let headless = open("5,3,versicolor\n", like, true).unwrap();
    assert_eq!((labels(&headless), headless.class_names().len()), (vec![1.0], 3));
    let unlabeled = Form { passes_over_label: true, ..like };
    assert_eq!(
        named(&open("height,width\n3,5\n", unlabeled, false).unwrap()),
        ["setosa", "versicolor", "virginica"]
    );
    assert!(open("5,3\n", unlabeled, false).unwrap().class_names().is_empty(), "nothing was read for them");
    // Its own order would be another one.
    let by_place = Form { like: None, ..like };
    assert_eq!(open("5,3,virginica\n", by_place, true).unwrap_err().code(), "E335");
    std::fs::remove_file(folder.path().join("train.csv")).unwrap();
    assert_eq!(open("5,3,versicolor\n", like, true).unwrap_err().code(), "E581");
    // A job of a release that stored no names of classes.
    assert_eq!(labels(&open("5,3,1\n", like, true).unwrap()), [1.0]);
    let names = ["setosa", "versicolor", "virginica"].map(str::to_owned).to_vec();
    let job = DataSpec { class_names: names, ..job.clone() };
    let error = open("5,3,1\n", Form { like: Some(&job), ..like }, true).unwrap_err();
    assert_eq!(error.code(), "E582");
    assert!(error.to_string().contains("label `1` is a number, and those of "), "{error}");
    let unlabeled = Form { like: Some(&job), passes_over_label: true, ..like };
    assert_eq!(samples(&open("5,3\n", unlabeled, false).unwrap()), [5.0, 3.0]);
}

#[test]
fn comments_above_the_first_record_are_passed_over() {
    let folder = TempDir::new().unwrap();
    for text in [
        "# made, by \"x\n#\n1,2,0\n3,4,2\n",
        "\u{feff}# made\r\n# by, x, today\r\na,b,class\r\n1,2,0\r\n3,4,2\r\n",
        "#a,b\n1,2,0\n3,4,2\n",
    ] {
        let data = open_csv(text, CLASSES).unwrap();
        assert_eq!((samples(&data), labels(&data)), (vec![1.0, 2.0, 3.0, 4.0], vec![0.0, 2.0]), "{text}");
    }
    // What has the name of the label is the header, and another line is none.
    for text in ["# made\n#,a,class\n1,2,0\n", "#id,a,\"class\"\n1,2,0\n", "# made\nid,a,class\n1,2,0\n"] {
        let path = write(&folder, "named.csv", text.as_bytes());
        let data = Dataset::open(&named_csv_spec(&path, &["class"]), &wants(CLASSES)).unwrap();
        assert_eq!(samples(&data), [1.0, 2.0], "{text}");
    }
}
