//! Tables whose columns go to several inputs, by their names.

use std::process::Command;

use super::super::csv::TableCache;
use super::*;

const PEOPLE: &str = "id,city,age,bought,job,income\n\
                      p1,3,41,1,0,2500.5\n\
                      p2,0,19,0,7,-0.25\n\
                      p3,1,67,2,2,1e6\n";

/// Two ids and three floats, as models with embeddings have them, and a class.
fn people(numbers: usize) -> ModelSignature {
    let inputs = vec![
        input("numbers", DataElement::F32, &[Some(numbers)]),
        input("categories", DataElement::I64, &[Some(2)]),
    ];
    ModelSignature { inputs, ..wants(CLASSES) }
}

fn spec_of(path: &Path) -> DataSpec {
    named_csv_spec(path, &["bought"]).input("categories", ["job", "city"]).input("numbers", ["age", "income"])
}

/// All numbers of each input, and of the label if there is one.
fn gathered(data: &Dataset) -> Vec<(ElementType, Vec<f64>)> {
    let mut batch = data.batch();
    data.gather(&(0..data.len() as u32).collect::<Vec<_>>(), &mut batch).unwrap();
    batch.inputs().chain(batch.label()).map(|view| (view.element(), numbers(view).1)).collect()
}

/// Those of the rows above, with one more income.
fn want(rows: &[usize]) -> Vec<(ElementType, Vec<f64>)> {
    let of = |all: [&[f64]; 3]| rows.iter().flat_map(|&row| all[row].to_vec()).collect();
    vec![
        (ElementType::F32, of([&[41.0, 2500.5], &[19.0, -0.25], &[67.0, 1e6]])),
        (ElementType::I64, of([&[0.0, 3.0], &[7.0, 0.0], &[2.0, 1.0]])),
        (ElementType::I64, of([&[1.0], &[0.0], &[2.0]])),
    ]
}

#[test]
fn each_input_takes_the_columns_that_are_named_for_it_in_that_order_from_memory_and_from_the_disk() {
    let folder = TempDir::new().unwrap();
    let plain = write(&folder, "people.csv", PEOPLE.as_bytes());
    let packed = write(&folder, "people.csv.gz", &gzip(PEOPLE.as_bytes()));
    let both = CsvSource::new(vec![text(&plain), text(&packed)]).label_names(["bought"]);
    let several = DataSpec { source: both.into(), ..spec_of(&plain) };
    for (spec, rows) in
        [(spec_of(&plain), &[0, 1, 2][..]), (spec_of(&packed), &[0, 1, 2]), (several, &[0, 1, 2, 0, 1, 2])]
    {
        for most_in_memory in [1 << 30, 0] {
            let tables = TempDir::new().unwrap();
            let cache = TableCache::at(tables.path());
            let form = Form { most_in_memory, tables: Some(&cache), ..Form::default() };
            let (data, _) = Dataset::open_as(&spec, &people(2), form, &mut || Ok(())).unwrap();
            assert_eq!(gathered(&data), want(rows), "{most_in_memory}");
            let [label] = data.label_columns() else { panic!("{:?}", data.label_columns()) };
            assert_eq!((label.number, label.of, label.name.as_deref()), (4, 6, Some("bought")));
            let column = data.input_column(1, 0).unwrap();
            assert_eq!((column.number, column.of, column.name.as_deref()), (5, 6, Some("job")));
        }
    }
}

#[test]
fn floats_alone_are_scaled_and_standardized_by_the_channels_of_their_input() {
    let folder = TempDir::new().unwrap();
    let spec = spec_of(&write(&folder, "people.csv", PEOPLE.as_bytes()));
    let scaled = spec.clone().with(|d| (d.scale, d.mean, d.std) = (2.0, vec![2.0, 0.5], vec![4.0, 1.0]));
    let found = gathered(&Dataset::open(&scaled, &people(2)).unwrap());
    assert_eq!(found[0].1, [20.0, 5000.5, 9.0, -1.0, 33.0, 2e6 - 0.5]);
    assert_eq!(found[1..], want(&[0, 1, 2])[1..]);
    let set = Dataset::open(&spec.with(|d| d.standardize = true), &people(2)).unwrap();
    let standard = set.standard(&[0, 1], (0, &people(2).inputs[0]), ChannelAxis::First).unwrap();
    assert_eq!((standard.mean, standard.std), (vec![30.0, 1250.125], vec![11.0, 1250.375]));
}

#[test]
fn the_last_column_is_the_label_where_nobody_names_it_and_none_is_where_the_model_takes_none() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "data.csv", b"c,x,y\n0,0.5,2\n1,1.5,0\n");
    let spec = csv_spec(&path, 1, 0).input("x", ["x"]);
    let found = gathered(&Dataset::open(&spec, &wants(CLASSES)).unwrap());
    assert_eq!(found, [(ElementType::F32, vec![0.5, 1.5]), (ElementType::I64, vec![2.0, 0.0])]);
    let all = csv_spec(&path, 1, 0).input("x", ["y", "x"]);
    let found = gathered(&Dataset::open(&all, &ModelSignature { label: None, ..wants(CLASSES) }).unwrap());
    assert_eq!(found, [(ElementType::F32, vec![2.0, 0.5, 0.0, 1.5])]);
    refused(
        &all,
        &wants(CLASSES),
        "E636",
        "`x` takes `y`, which is the label: the last column, as `label_names`",
    );
}

#[test]
fn test_and_validation_files_have_their_columns_by_name_or_as_the_training_file_has_them() {
    let folder = TempDir::new().unwrap();
    let spec = spec_of(&write(&folder, "people.csv", PEOPLE.as_bytes()));
    let test = write(&folder, "test.csv", b"income,bought,job,city,age,note\n1,2,3,4,5,new\n");
    let bare = write(&folder, "bare.csv", b"6,7,8,0,9,10\n");
    let test = csv_spec(&test, 1, 0).source;
    let spec = spec.with(|d| (d.test, d.validation) = (Some(test), Some(csv_spec(&bare, 1, 0).source)));
    let data = Dataset::open(&spec, &people(2)).unwrap();
    let found = gathered(&data);
    assert_eq!(found[0].1[6..], [5.0, 1.0, 8.0, 10.0]);
    assert_eq!(found[1].1[6..], [3.0, 4.0, 9.0, 7.0]);
    assert_eq!(found[2].1[3..], [2.0, 0.0]);
    assert_eq!(data.parts(&spec, 0).unwrap().test, [3]);
    let lacks = csv_spec(&write(&folder, "lacks.csv", b"city,age,job,bought\n1,2,3,0\n"), 1, 0).source;
    let lacks = DataSpec { test: Some(lacks), ..spec.clone() };
    refused(
        &lacks,
        &people(2),
        "E636",
        "lacks.csv: `numbers` takes `income`, and the file names `city`, `age`",
    );
    // The label has the name that it has by its place in the training file.
    let by_place = csv_spec(&write(&folder, "data.csv", b"c,x,y\n0,0.5,2\n"), 1, 0).input("x", ["x"]);
    let with_test = |text: &[u8]| {
        let test = csv_spec(&write(&folder, "other.csv", text), 1, 0).source;
        DataSpec { test: Some(test), ..by_place.clone() }
    };
    let found = gathered(&Dataset::open(&with_test(b"y,x\n1,7\n"), &wants(CLASSES)).unwrap());
    assert_eq!((&found[0].1[1..], &found[1].1[1..]), (&[7.0][..], &[1.0][..]));
    refused(&with_test(b"x,c\n7,1\n"), &wants(CLASSES), "E477", "it names `x`, `c` in line 1, and no `y`");
}

#[test]
fn other_files_are_read_by_the_names_of_inputs_without_the_training_file_where_these_suffice() {
    let folder = TempDir::new().unwrap();
    let job = spec_of(&folder.path().join("not-there.csv"));
    let open = |text: &str, is_labeled: bool| {
        let other = DataSpec {
            inputs: job.inputs.clone(),
            ..named_csv_spec(&write(&folder, "other.csv", text.as_bytes()), &["bought"])
        };
        let form = Form {
            like: Some(&job),
            passes_over_label: !is_labeled,
            is_other: true,
            has_classes: true,
            ..Form::default()
        };
        let wanted = ModelSignature { label: wants(CLASSES).label.filter(|_| is_labeled), ..people(2) };
        Dataset::open_as(&other, &wanted, form, &mut || Ok(())).map(|(data, _)| gathered(&data))
    };
    let labeled = "bought,income,age,city,job,more\n1,2500.5,41,3,0,x\n";
    assert_eq!(open(labeled, true).unwrap(), want(&[0]));
    assert_eq!(open(labeled, false).unwrap(), want(&[0])[..2]);
    assert_eq!(open("job,age,city,income\n0,41,3,2500.5\n", false).unwrap(), want(&[0])[..2]);
    assert_eq!(open("job,age,city\n0,41,3\n", false).unwrap_err().code(), "E636");
    // Of columns without names only the training file says what they are.
    assert_eq!(open("p1,3,41,1,0,2500.5\n", false).unwrap_err().code(), "E581");
    write(&folder, "not-there.csv", PEOPLE.as_bytes());
    let digest = Dataset::open_hashed(&job, &people(2)).unwrap().1.all;
    let job = job.with(|d| d.digest = Some(digest));
    let other = DataSpec { digest: None, ..spec_of(&write(&folder, "other.csv", b"p1,3,41,1,0,2500.5\n")) };
    let form = Form { like: Some(&job), is_other: true, has_classes: true, ..Form::default() };
    let (data, _) = Dataset::open_as(&other, &people(2), form, &mut || Ok(())).unwrap();
    assert_eq!(gathered(&data), want(&[0]));
}

#[test]
fn columns_that_do_not_go_with_the_model_or_with_the_file_are_refused_with_what_is_there() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "people.csv", PEOPLE.as_bytes());
    let with = |change: &dyn Fn(DataSpec) -> DataSpec| change(spec_of(&path));
    let plain = write(&folder, "plain.csv", b"3,41,1,0,2500.5\n");
    let twice = write(&folder, "twice.csv", b"city,age,age,job,income,bought\n1,2,3,4,5,0\n");
    let semicolons = write(&folder, "semicolons.csv", b"city;age;job;income;bought\n1;2;3;4;0\n");
    let separated = |d: &mut DataSpec| {
        let Source::Csv(table) = &mut d.source else { unreachable!("it is one") };
        table.separator = Some(Separator::Comma);
    };
    let arrays = DataSpec { source: Source::npz("a.npz"), ..spec_of(&path) };
    #[rustfmt::skip]
    let cases = [
        ("an unknown input",  with(&|d| d.input("cats", ["id"])),              "E637", "it names `cats`, and the model has the inputs `numbers`, `categories`"),
        ("a misspelt input",  with(&|d| d.input("number", ["id"])),            "E637", "`categories`; did you mean `numbers`?"),
        ("an input left out", named_csv_spec(&path, &["bought"]).input("numbers", ["age", "income"]),
                                                                               "E637", "it has no columns for `categories`, and the model"),
        ("no column",         with(&|d| d.input("numbers", [""; 0])),          "E637", "it has no columns for `numbers`"),
        ("taken by both",     with(&|d| d.input("numbers", ["age", "job"])),   "E480", "`job` is in `categories` and in `numbers`"),
        ("taken twice",       with(&|d| d.input("numbers", ["age", "age"])),   "E480", "`age` is in `numbers` and in `numbers`"),
        ("the label",         with(&|d| d.input("numbers", ["age", "bought"])), "E480", "`bought` is in `label_names` and in `numbers`"),
        ("no table",          arrays,                                          "E480", "`inputs` must be left out where no source is `csv`"),
        ("a missing column",  with(&|d| d.input("numbers", ["age", "wage"])),  "E636", "`numbers` takes `wage`, and the file names `id`, `city`, `age`, `bought`, `job`, `income` in line 1, and no `wage`; did you mean `age`?"),
        ("no header",         csv_spec(&plain, 1, 0).with(|d| d.inputs = spec_of(&path).inputs),
                                                                               "E636", "`numbers` takes `age`, and the file names `3`, `41`"),
        ("a name twice",      spec_of(&twice),                                 "E636", "`numbers` takes `age`, and the file has 2 columns of the name `age`"),
        ("other separators",  spec_of(&semicolons).with(separated),            "E480", "it looks as if semicolons separate its columns"),
        ("too few columns",   with(&|d| d.input("numbers", ["age"])),          "E362", "input numbers takes samples of shape [2], the data has [1]"),
        ("no integer",        with(&|d| d.input("categories", ["income", "city"]).input("numbers", ["age", "job"])),
                                                                               "E484", "row 1, column 6 (`income`): 2500.5 is not an integer"),
        ("a text",            with(&|d| d.input("categories", ["id", "city"])), "E335", "line 2, column 1 (`id`): `p1` is not a number"),
        ("nothing named",     named_csv_spec(&path, &["bought"]),              "E363", "2 data inputs (numbers, categories)"),
    ];
    for (name, spec, code, words) in cases {
        let error = Dataset::open(&spec, &people(2)).unwrap_err();
        assert!(error.code() == code && error.to_string().contains(words), "{name}: {error}");
        assert!(error.hint().is_some(), "{name}");
    }
    let mut wanted = people(2);
    wanted.inputs[1].rows = vec![Some(7), Some(4)];
    refused(
        &spec_of(&path),
        &wanted,
        "E488",
        "row 2, column 5: 7 is not in the table of the model's input categories",
    );
}

#[test]
fn floats_that_the_model_looks_up_are_rows_of_its_table() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "data.csv", b"city,age,bought\n0,41,1\n-1,19,0\n");
    let mut wanted = wants_input(DataElement::F32, &[Some(2)]);
    let spec = csv_spec(&path, 1, 0);
    assert!(Dataset::open(&spec, &wanted).is_ok(), "none is looked up");
    wanted.inputs[0].rows = vec![Some(4), None];
    refused(&spec, &wanted, "E488", "row 2, column 1: -1 is not in the table of the model's input x");
    // Beside numbers that are normalized they are looked at as well, and stay what they are.
    let by =
        |mean: [f64; 2], std: [f64; 2]| spec.clone().with(|d| (d.mean, d.std) = (mean.into(), std.into()));
    refused(&by([0.0, 30.0], [1.0, 11.0]), &wanted, "E488", "row 2, column 1: -1 is not in the table");
    let changed = "would change ids: column 1 of the model's input x is looked up in a table of 4 rows";
    for spec in
        [by([1.0, 30.0], [1.0, 11.0]), by([0.0, 30.0], [2.0, 11.0]), spec.clone().with(|d| d.scale = 0.5)]
    {
        refused(&spec, &wanted, "E639", changed);
    }
}

#[test]
fn floats_that_the_model_looks_up_as_ids_are_not_standardized() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "data.csv", b"city,age,bought\n0,41,1\n3,19,0\n");
    let mut wanted = wants_input(DataElement::F32, &[Some(2)]);
    let standard = |spec: DataSpec, wanted: &ModelSignature| {
        let set = Dataset::open(&spec.with(|d| d.standardize = true), wanted).unwrap();
        set.standard(&[0, 1], (0, &wanted.inputs[0]), ChannelAxis::First)
    };
    assert!(standard(csv_spec(&path, 1, 0), &wanted).is_ok());
    for (rows, spec, said) in [
        (
            vec![Some(4), None],
            csv_spec(&path, 1, 0),
            "column 1, `city`, of the model's input x is looked up in a table of 4 rows",
        ),
        (
            vec![None, Some(4)],
            named_csv_spec(&path, &["bought"]).input("x", ["age", "city"]),
            "column 1, `city`, of",
        ),
        (vec![Some(9)], csv_spec(&path, 1, 1), "column 1 of the model's input x"),
    ] {
        wanted.inputs[0].rows = rows;
        let error = standard(spec, &wanted).unwrap_err();
        assert!(error.code() == "E639" && error.to_string().contains(said), "{error}");
        assert!(error.hint().unwrap().contains("[data.inputs]"));
    }
}

#[test]
fn the_page_on_data_makes_of_categories_and_missing_values_what_inputs_take() {
    let has_pandas = Command::new("python3").args(["-c", "import pandas"]).output();
    if !has_pandas.is_ok_and(|tried| tried.status.success()) {
        eprintln!("SKIPPED: python3 has no pandas");
        return;
    }
    let page = include_str!("../../../../docs/data.md");
    let (_, section) = page.split_once("### Categories and missing values from pandas").unwrap();
    let mut snippets = section.split("```python\n").skip(1).map(|rest| rest.split_once("```").unwrap().0);
    let program = [snippets.next().unwrap(), snippets.next().unwrap()].concat();
    let folder = TempDir::new().unwrap();
    write(
        &folder,
        "raw.csv",
        b"name,city,age,job,income,bought\nA,Rome,20,,1.5,1\nB,,40,cook,,0\nC,Bern,,cook,2.5,1\n",
    );
    write(&folder, "new-raw.csv", b"job,city,age,income\npilot,Bern,,7\n");
    let ran = Command::new("python3").args(["-c", &program]).current_dir(folder.path()).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), "{'city': 3, 'job': 2}\n", "rows of each embedding");
    let spec = named_csv_spec(&folder.path().join("people.csv"), &["bought"])
        .input("categories", ["city", "job"])
        .input("numbers", ["age", "age_missing", "income", "income_missing"]);
    let found = gathered(&Dataset::open(&spec, &people(4)).unwrap());
    assert_eq!(found[0].1, [20.0, 0.0, 1.5, 0.0, 40.0, 0.0, 2.0, 1.0, 30.0, 1.0, 2.5, 0.0]);
    assert_eq!(found[1].1, [2.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    let new = DataSpec { inputs: spec.inputs, ..csv_spec(&folder.path().join("new.csv"), 1, 0) };
    let found = gathered(&Dataset::open(&new, &ModelSignature { label: None, ..people(4) }).unwrap());
    assert_eq!((&found[0].1, &found[1].1), (&vec![30.0, 1.0, 7.0, 0.0], &vec![1.0, 0.0]));
}
