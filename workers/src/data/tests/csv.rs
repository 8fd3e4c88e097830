//! CSV.

use super::*;

/// A table with a header, whose separator is said.
fn separated(path: &Path, label_names: &[&str], by: Separator) -> DataSpec {
    DataSpec::new(CsvSource::new(path).label_names(label_names.iter().copied()).separator(by))
}

#[test]
fn csv_plain_and_packed() {
    let folder = TempDir::new().unwrap();
    let text = b"1,2,0\r\n 3, -4.5 ,2\n5e0,6,1.0\n\n";
    let plain = csv_spec(&write(&folder, "data.csv", text), 1, 0);
    let packed = csv_spec(&write(&folder, "data.csv.gz", &gzip(text)), 1, 0);
    let headed = csv_spec(&write(&folder, "head.csv", &[b"a,b,class\n".as_slice(), text].concat()), 1, 1);
    let marked = csv_spec(&write(&folder, "marked.csv", &["\u{feff}".as_bytes(), text].concat()), 1, 0);
    for spec in [plain, packed, headed, marked] {
        let data = Dataset::open(&DataSpec { scale: 0.5, ..spec }, &wants(CLASSES)).unwrap();
        assert_eq!((data.len(), data.input_shapes().next()), (3, Some([2].as_slice())));
        assert_eq!(samples(&data), [0.5, 1.0, 1.5, -2.25, 2.5, 3.0]);
        assert_eq!(labels(&data), [0.0, 2.0, 1.0]);
    }
}

#[test]
fn csv_with_float_targets() {
    let folder = TempDir::new().unwrap();
    let spec = csv_spec(&write(&folder, "data.csv", b"1,0.5,-1\n2,0.25,3\n"), 2, 0);
    let wanted = ModelSignature { label: Some(label(Target::Values, &[Some(2)])), ..wants(CLASSES) };
    let data = Dataset::open(&DataSpec { scale: 2.0, ..spec }, &wanted).unwrap();
    assert_eq!((samples(&data), labels(&data)), (vec![2.0, 4.0], vec![0.5, -1.0, 0.25, 3.0]));
    assert_eq!(data.label_shape(), Some([2].as_slice()));
}

#[test]
fn csv_refusals_say_where() {
    #[rustfmt::skip]
    let cases = [
        ("too few columns",  "1,2,0\n1,2\n",     "E334", "line 2: 2 columns, expected 3"),
        ("too many columns", "1,2,0\n1,2,3,0\n", "E334", "line 2: 4 columns, expected 3"),
        ("empty line",       "1,2,0\n\n1,2,0\n", "E334", "line 2: 0 columns, expected 3"),
        ("text",             "1,2,0\n1,two,0\n", "E335", "line 2, column 2: `two` is not a number"),
        ("empty field",      "1,,0\n",           "E335", "line 1, column 2: `` is not a number"),
        ("not a number",     "1,2,0\n1,NaN,0\n", "E336", "row 2, column 2: NaN is not a finite number of float32"),
        ("infinite",         "1,2,0\n-inf,2,0\n","E336", "row 2, column 1: -inf is not a finite number of float32"),
        ("too large",        "1e39,2,0\n",       "E336", "row 1, column 1: 1e39 is not a finite number of float32"),
        ("beyond float64",   "1,2,0\n1,-1e400,0\n", "E631", "line 2, column 2: `-1e400` is beyond the numbers of float64"),
        ("class too large",  "1,2,0\n1,2,3\n",   "E337", "row 2, column 3: label 3 is not one of the classes 0 to 2"),
        ("class negative",   "1,2,-1\n",         "E337", "row 1, column 3: label -1"),
        ("class broken",     "1,2,0.5\n",        "E337", "row 1, column 3: label 0.5"),
        ("class not finite", "1,2,nan\n",        "E337", "row 1, column 3: label NaN"),
        ("no features",      "1\n",              "E333", "line 1 has 1 column, which leaves no feature beside 1 column of the label"),
        ("only comments",    "#x\n# y\n",       "E333", "it has no samples"),
        ("names or not",     "# a,b,c\n1,2,0\n", "E333", "line 1 begins with `#` and has 3 columns, as the samples have: write it without the `#` if it names them, or set `skip_lines = 1`"),
        ("below a comment",  "# x\n1,two,0\n",  "E335", "line 2, column 2: `two` is not a number"),
        ("line below",       "# x\n\n1,2,0\n",  "E333", "line 2 is empty, where the header or the first sample should be: `skip_lines = 2`"),
        ("spaces",           "1 2 0\n",          "E333", "it looks as if spaces separate its columns, which commas, semicolons or tabs have to do"),
        ("empty",            "",                 "E333", "it has no samples"),
        ("only newlines",    "\n\n\n",           "E333", "it has no samples"),
        ("empty first line", "\n1,2,0\n",        "E333", "line 1 is empty, where the header or the first sample should be: `skip_lines = 1`"),
    ];
    for (name, text, code, message) in cases {
        let error = open_csv(text, CLASSES).unwrap_err();
        assert_eq!(error.code(), code, "{name}: {error}");
        assert!(error.to_string().contains(message), "{name}: {error}");
    }
}

#[test]
fn the_hint_for_what_is_no_number_names_what_is_in_its_place() {
    #[rustfmt::skip]
    let cases = [
        ("header",          "a,2,c\n1,2,0\n",             "leave out one that has numbers"),
        ("quoted header",   "\"a\",\"2\",\"c\"\n1,2,0\n", "`skip_lines`"),
        ("quotes",          "1, \"2\",0\n",              "without quotes"),
        ("quotes below",    "1,2,0\n1,'2',0\n",           "without quotes"),
        ("decimal commas",  "1,5;2,5;0\n",                "decimal=\",\""),
        ("name",            "1,two,0\n",                  "replace names by numbers"),
        ("class below",     "1,2,0\n1,2,setosa\n",        "may be a text, in every line"),
        ("semicolons",      "1,2,0\n3,4;1,0\n",           "every line has to be separated alike"),
        ("truth",           "1,2,0\n1,True,0\n",          "1 for true and 0 for false"),
        ("date",            "1,2,0\n2021-03-04,2,0\n",    "a date or time is no number"),
        ("time",            "1,2,0\n4.3.2021 12:30,2,0\n", "a date or time is no number"),
        ("empty",           "1,2,0\n1,,0\n",              "a value that is missing"),
        ("nan of pandas",   "1,2,0\n1,nan,0\n",           "a value that is missing"),
        ("NA of R",         "1,2,0\n1,NA,0\n",            "a value that is missing"),
        ("null of SQL",     "1,2,0\n1,NULL,0\n",          "a value that is missing"),
        ("label nan",       "1,2,0\n1,2,nan\n",           "a value that is missing"),
        ("thousands",       "1,2,0\n1.234.567,2,0\n",     "points stand between its thousands"),
        ("date of points",  "1,2,0\n12.03.2024,2,0\n",    "a date or time is no number"),
        ("ragged",          "1,2,0\n1,2\n",               "a separator or a quote that is missing or too many"),
    ];
    for (name, text, want) in cases {
        let hint = open_csv(text, CLASSES).unwrap_err().hint();
        assert!(hint.as_ref().is_some_and(|hint| hint.contains(want)), "{name}: {hint:?}");
    }
}

#[test]
fn an_index_column_of_pandas_is_recognized_where_the_model_takes_one_column_less() {
    let folder = TempDir::new().unwrap();
    let wanted = wants_input(DataElement::F32, &[Some(2)]);
    for (header, said) in [(",a,b,y", "to_csv(FILE, index=False)"), ("n,a,b,y", "`label_columns`")] {
        let path = write(&folder, "index.csv", format!("{header}\n0,1,2,0\n").as_bytes());
        let error = Dataset::open(&csv_spec(&path, 1, 0), &wanted).unwrap_err();
        assert_eq!(error.code(), "E362");
        assert!(error.hint().unwrap().contains(said), "{header}: {:?}", error.hint());
    }
}

#[test]
fn quoted_numbers_are_read_as_numbers() {
    let data = open_csv("\"1\",2,\"0\"\r\n\" 3 \",\"4\",2\r\n", CLASSES).unwrap();
    assert_eq!((samples(&data), labels(&data)), (vec![1.0, 2.0, 3.0, 4.0], vec![0.0, 2.0]));
}

#[test]
fn a_first_record_without_a_number_is_a_header() {
    let body = "1,2,0\n3,4,2\n";
    #[rustfmt::skip]
    let headers = [
        "a,b,class\n", "\"a\",\"b\",\"class\"\r\n", "\"width, cm\",\"of\nthe leaf\",\"say \"\"class\"\"\"\n",
        "\u{feff}a,b,class\n", "\u{feff}\"a\",b,class\n", ",b,class\n",
    ];
    for header in headers {
        let data = open_csv(&format!("{header}{body}"), CLASSES).unwrap();
        assert_eq!((samples(&data), labels(&data)), (vec![1.0, 2.0, 3.0, 4.0], vec![0.0, 2.0]), "{header}");
    }
}

#[test]
fn label_columns_are_found_by_their_names_wherever_they_are() {
    let folder = TempDir::new().unwrap();
    let text = b"y,a,\"class, of it\",b,1998\n0.5,1,2,3,4\n-1,5,6,7,8\n";
    let path = write(&folder, "named.csv", text);
    let open = |names: &[&str]| {
        let wanted =
            ModelSignature { label: Some(label(Target::Values, &[Some(names.len())])), ..wants(CLASSES) };
        Dataset::open(&named_csv_spec(&path, names), &wanted).unwrap()
    };
    let two = open(&["class, of it", "y"]);
    assert_eq!(
        (samples(&two), labels(&two)),
        (vec![1.0, 3.0, 4.0, 5.0, 7.0, 8.0], vec![2.0, 0.5, 6.0, -1.0])
    );
    let number = open(&["1998"]);
    assert_eq!(labels(&number), [4.0, 8.0]);
    assert_eq!(samples(&number), [0.5, 1.0, 2.0, 3.0, -1.0, 5.0, 6.0, 7.0]);
}

#[test]
fn a_named_label_that_is_not_there_once_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "named.csv", b"a,b,b,c\n1,2,3,0\n");
    #[rustfmt::skip]
    let cases: [(&[&str], &str); 4] = [
        (&["d"],      "named.csv names `a`, `b`, `b`, `c` in line 1, and no `d`"),
        (&["C"],      "names `a`, `b`, `b`, `c` in line 1, and no `C`; did you mean `c`?"),
        (&["b"],      "named.csv has 2 columns of the name `b`"),
        (&["c", "c"], "`label_names` must name each column once, not `c` twice"),
    ];
    for (names, words) in cases {
        refused(&named_csv_spec(&path, names), &wants(CLASSES), "E480", words);
    }
    let narrow = write(&folder, "narrow.csv", b"a,b\n1,0\n");
    refused(&named_csv_spec(&narrow, &["a", "b"]), &wants(CLASSES), "E333", "leaves no feature");
    let wide = write(&folder, "wide.csv", &[vec![b'x'], b",x".repeat(30)].concat());
    refused(&named_csv_spec(&wide, &["y"]), &wants(CLASSES), "E480", "`x`, `x`, ... in line 1, and no `y`");
    let semicolons =
        write(&folder, "semicolons.csv", b"width;height;sugar;weight;acid;color;fruit\n1;2;3;4;5;6;0\n");
    let said = "names `width;height;sugar;weight;acid;color;fru…` in line 1, and no `fruit`; it looks as if semicolons separate its columns";
    refused(&separated(&semicolons, &["fruit"], Separator::Comma), &wants(CLASSES), "E480", said);
    let both = DataSpec::new(CsvSource::new(&path).label_names(["c"]).label_columns(2));
    refused(&both, &wants(CLASSES), "E480", "`label_columns` must be left out");
}

#[test]
fn a_named_label_that_is_not_there_may_be_between_other_separators_or_not_in_utf8() {
    let folder = TempDir::new().unwrap();
    #[rustfmt::skip]
    let cases: [(&str, &[u8], &str); 5] = [
        ("a name with a comma", b"price, EUR;area;fruit\n1;2;0\n", "names `price`, `EUR;area;fruit` in line 1, and no `fruit`; it looks as if semicolons separate its columns, and it is read with commas"),
        ("names in quotes",     b"\"a\",b;\"fruit\"\n1;0\n",       "and no `fruit`; it looks as if semicolons separate its columns, and it is read with commas"),
        ("tabs",                b"\"a, b\"\t\"fruit\"\n1\t0\n",   "and no `fruit`; it looks as if tabs separate its columns, and it is read with commas"),
        ("commas",              b"a;b,c\n1,0\n",                  "names `a;b`, `c` in line 1, and no `fruit`"),
        ("Latin-1",             b"price \xa4,fruits\n1,0\n",      "names `price \u{fffd}`, `fruits` in line 1, and no `fruit`; the file is not in UTF-8: save it as that"),
    ];
    for (name, bytes, end) in cases {
        let spec = separated(&write(&folder, "odd.csv", bytes), &["fruit"], Separator::Comma);
        let error = Dataset::open(&spec, &wants(CLASSES)).unwrap_err();
        assert!(error.code() == "E480" && error.to_string().ends_with(end), "{name}: {error}");
    }
}

#[test]
fn lines_and_columns_of_errors_are_those_of_the_file() {
    #[rustfmt::skip]
    let cases = [
        ("below a header",     "a,b,c\n1,2,0\n1,x,0\n",          "E335", "line 3, column 2 (`b`): `x`"),
        ("below CRLF",         "1,2,0\r\n1,2,0\r\n1,x,0\r\n",    "E335", "line 3, column 2: `x`"),
        ("below a long name",  "\"a\nb\nc\",b,c\n1,2,0\n1,x,0",  "E335", "line 5, column 2 (`b`): `x`"),
        ("a number over two lines", "1,2,0\n1,\"2\n3\",0\n",     "E335", "line 2, column 2: `2\\n3`"),
        ("a comma in quotes",  "1,2,0\n\"1,5\",2,0\n",           "E589", "line 2, column 1: `1,5`"),
        ("ragged below CRLF",  "1,2,0\r\n1,2\r\n",              "E334", "line 2: 2 columns, expected 3"),
        ("ragged and a word",  "1,2,0\n1,two\n",                 "E334", "line 2: 2 columns, expected 3"),
        ("ragged by a quote",  "1,2,0\n\"1,2\",0\n",             "E334", "line 2: 2 columns, expected 3"),
        ("wider than header",  "a,b\n1,2,0\n",                   "E334", "line 2: 3 columns, expected 2"),
        ("empty, CRLF",        "1,2,0\r\n\r\n1,2,0\r\n",        "E334", "line 2: 0 columns, expected 3"),
        ("white line",         "1,2,0\n  \n1,2,0\n",             "E334", "line 2: 0 columns, expected 3"),
        ("empty at the end",   "1,2,\n",                          "E335", "line 1, column 3: ``"),
        ("only a header",      "a,b,c\n",                         "E333", "it has no samples"),
        ("only a mark",        "\u{feff}\n",                      "E333", "it has no samples"),
        ("a quote left open",  "1,2,0\n1,\"2,0\n3,4,0\n",        "E333", "line 2, column 2: a quote opens here, and nothing closes it"),
    ];
    for (name, text, code, message) in cases {
        let error = open_csv(text, CLASSES).unwrap_err();
        assert_eq!(error.code(), code, "{name}: {error}");
        assert!(error.to_string().contains(message), "{name}: {error}");
    }
}

#[test]
fn a_number_that_float32_cannot_hold_is_told_as_it_stands_there_with_scaling_only_where_it_is_scaled() {
    let folder = TempDir::new().unwrap();
    let wide = csv_spec(&write(&folder, "wide.csv", b"0.5,2,0\n1e39,2,0\n"), 1, 0);
    let whole = csv_spec(&write(&folder, "whole.csv", b"3,2,0\n"), 1, 0);
    #[rustfmt::skip]
    let cases = [
        (wide.clone(),                                        "1e39", ""),
        (wide.clone().with(|d| d.scale = 1e5),                "1e39", " after scaling"),
        (wide.with(|d| d.std = vec![0.5]),                    "1e39", " after scaling"),
        (whole.with(|d| d.std = vec![1e-39]),                 "3.0",  " after scaling"),
    ];
    for (spec, number, after) in cases {
        let told = Dataset::open(&spec, &wants(CLASSES)).unwrap_err().to_string();
        let want = format!("column 1: {number} is not a finite number of float32{after}");
        assert!(told.ends_with(&want), "{want}: {told}");
    }
}

#[test]
fn numbers_that_are_refused_later_keep_their_column_of_the_file_and_its_name() {
    let folder = TempDir::new().unwrap();
    let path = write(&folder, "first.csv", b"y,a,b\n0,1,2\n1,2,inf\n");
    refused(
        &named_csv_spec(&path, &["y"]),
        &wants(CLASSES),
        "E336",
        "row 2, column 3 (`b`): inf is not a finite",
    );
    let last = csv_spec(&write(&folder, "last.csv", b"1,2,inf\n"), 1, 0);
    refused(&last, &wants(Target::Values), "E336", "row 1, column 3: inf is not a finite");
}

#[test]
fn skipped_lines_may_hold_anything() {
    let folder = TempDir::new().unwrap();
    let text = b"# made by \"x\n\n\"\n1,2,0\n1,x,0\n";
    let spec = |skip_lines| csv_spec(&write(&folder, "data.csv", text), 1, skip_lines);
    refused(&spec(3), &wants(CLASSES), "E335", "line 5, column 2: `x`");
    refused(&spec(9), &wants(CLASSES), "E333", "it has no samples");
}

#[test]
fn a_field_takes_no_more_memory_than_a_number_needs() {
    let long = "1".repeat(1 << 20);
    let quoted = format!("\"{}\"", "1,2,0\n".repeat(1 << 18));
    for (text, cell) in [
        (format!("1,2,0\n1,{long},0\n"), "line 2, column 2"),
        (format!("{quoted},2,0\n"), "line 1, column 1"),
        (format!("a,{long}"), "line 1, column 2"),
    ] {
        let error = open_csv(&text, CLASSES).unwrap_err();
        assert_eq!(error.code(), "E333");
        assert!(error.to_string().contains(&format!("{cell}: a field of 4096 bytes or more")), "{error}");
    }
    let exact = format!("{},2,0\n", "1".repeat(4000));
    assert_eq!(open_csv(&exact, CLASSES).unwrap_err().code(), "E631");
}
