//! Columns between semicolons and tabs: recognized, or said.

use super::*;

fn opened(text: &[u8], change: impl FnOnce(&mut Source)) -> Result<Dataset, DataError> {
    let folder = TempDir::new().unwrap();
    let mut spec = csv_spec(&write(&folder, "data.csv", text), 1, 0);
    change(&mut spec.source);
    Dataset::open(&spec, &wants(CLASSES))
}

fn said(source: &mut Source, by: Separator) {
    let Source::Csv(table) = source else { unreachable!("it is a table") };
    table.separator = Some(by);
}

#[test]
fn semicolons_and_tabs_are_recognized_by_the_first_lines() {
    use Separator::{Comma, Semicolon, Tab};
    #[rustfmt::skip]
    let cases: [(&str, &str, Separator); 16] = [
        ("commas",                   "1,2,0\n3,4,2\n",                              Comma),
        ("semicolons",               "1;2;0\n3;4;2\n",                              Semicolon),
        ("tabs",                     "1\t2\t0\n3\t4\t2\n",                          Tab),
        ("one line",                 "1;2;0\n",                                     Semicolon),
        ("a header",                 "a;b;class\n1;2;0\n3;4;2\n",                   Semicolon),
        ("a header with commas",     "width, cm;height, cm;class\n1;2;0\n",         Semicolon),
        ("a header, commas alike",   "a, cm;b, cm;c, of\n1;2;0\n3;4;2\n",           Semicolon),
        ("quotes",                   "\"1\";\"2\";\"0\"\r\n\"3\";\"4\";\"2\"\r\n", Semicolon),
        ("commas in quoted texts",   "\"a,b\";\"b,c\";\"c,d\"\n1;2;0\n",            Semicolon),
        ("comments",                 "# a, b, c\n# d\n1;2;0\n3;4;2\n",              Semicolon),
        ("texts as labels",          "1;2;a, b\n3;4;c, d\n",                        Semicolon),
        ("tabs beside commas",       "1,\t2,\t0\n3,\t4,\t2\n",                      Comma),
        ("spaces beside tabs",       "1 \t 2 \t 0\n",                               Tab),
        ("semicolons in a header",   "a;b,c;d,e;f\n1,2,0\n",                        Comma),
        ("a byte order mark",        "\u{feff}a;b;class\n1;2;0\n",                  Semicolon),
        ("a long title that is left out", "1;2;0\n3;4;2\n\n",                       Semicolon),
    ];
    for (name, text, want) in cases {
        let data = opened(text.as_bytes(), |_| ()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(data.separator(), Some(want), "{name}");
        assert_eq!(samples(&data)[..2], [1.0, 2.0], "{name}");
        let same = opened(text.as_bytes(), |source| said(source, want)).unwrap();
        assert_eq!((samples(&same), labels(&same)), (samples(&data), labels(&data)), "{name}");
        assert_eq!((same.separator(), data.separator()), (Some(want), Some(want)), "{name}");
    }
}

#[test]
fn a_number_with_a_comma_is_refused_with_how_to_write_that_file_again_and_never_another_number() {
    #[rustfmt::skip]
    let cases = [
        ("1,5;2,5;0\n3,5;4,5;1\n",   "line 1, column 1: `1,5`",       r#"sep=";", decimal=",""#),
        ("a;b;c\n1;2,5;0\n",         "line 2, column 2 (`b`): `2,5`", r#"sep=";", decimal=",""#),
        ("1,5\t2\t0\n3\t4\t1\n",    "line 1, column 1: `1,5`",       r#"sep="\t", decimal=",""#),
        ("1;2;0\n3;1.234,5;0\n",     "line 2, column 2: `1.234,5`",   r#"sep=";", thousands=".", decimal=",""#),
        ("1;2;0\n3;-1,5e3;0\n",      "line 2, column 2: `-1,5e3`",    r#"sep=";", decimal=",""#),
        ("1;2;0\n3;1,234,567;0\n",   "line 2, column 2: `1,234,567`", r#"sep=";", thousands=",""#),
        ("1;2;0\n3;-1,234.5;0\n",    "line 2, column 2: `-1,234.5`",  r#"sep=";", thousands=",""#),
        ("1;2;0\n3;1,234;0\n",       "line 2, column 2: `1,234`",     r#"sep=";", decimal=",""#),
        ("1;2;0,5\n3;4;1,5\n",       "line 1, column 3: `0,5`",       r#"sep=";", decimal=",""#),
        ("1,\"2,5\",0\n",            "line 1, column 2: `2,5`",       r#"FILE, decimal=",""#),
        ("1,\"1,234\",0\n",          "line 1, column 2: `1,234`",     r#"FILE, thousands=",""#),
        ("1,\"32,023.82\",0\n",      "line 1, column 2: `32,023.82`", r#"FILE, thousands=",""#),
        ("1,5;0\n2,5;1\n",           "line 1, column 1: `1,5`",       r#"sep=";", decimal=",""#),
    ];
    for (text, place, remedy) in cases {
        let error = opened(text.as_bytes(), |_| ()).unwrap_err();
        assert!(error.code() == "E589" && error.to_string().contains(place), "{text}: {error}");
        let hint = error.hint().unwrap();
        assert!(hint.contains(&format!("{remedy}).to_csv")), "{text}: {hint}");
    }
}

#[test]
fn a_separator_that_cannot_be_told_has_to_be_said() {
    let text = b"1\t2;3\n4\t5;6\n";
    let error = opened(text, |_| ()).unwrap_err();
    assert_eq!(error.code(), "E590");
    assert!(error.to_string().ends_with("data.csv may be separated by semicolons or by tabs"), "{error}");
    assert!(error.hint().unwrap().contains("`separator`"));
    let error = opened(text, |source| said(source, Separator::Tab)).unwrap_err();
    assert!(error.to_string().contains("column 2: `2;3` is not a number"), "{error}");
}

#[test]
fn a_wrong_separator_that_was_said_is_answered_with_what_the_file_shows() {
    let error = opened(b"1;2;0\n", |source| said(source, Separator::Tab)).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("it looks as if semicolons separate its columns, and it is read with tabs"),
        "{error}"
    );
}

#[test]
fn empty_fields_at_the_end_of_the_last_line_are_columns() {
    let error = opened(b"1\t2\t0\n3\t4\t\n", |_| ()).unwrap_err();
    assert!(error.to_string().contains("line 2, column 3: `` is not a number"), "{error}");
}

#[test]
fn files_of_test_and_validation_may_have_another_separator() {
    let folder = TempDir::new().unwrap();
    let mut spec = named_csv_spec(&write(&folder, "train.csv", b"a;b;y\n1;2;0\n3;4;2\n"), &["y"]);
    spec.test = Some(named_csv_spec(&write(&folder, "test.csv", b"y\tb\ta\n1\t6\t5\n"), &["y"]).source);
    spec.validation = Some(named_csv_spec(&write(&folder, "more.csv", b"b,y,a\n8,2,7\n"), &["y"]).source);
    let data = Dataset::open(&spec, &wants(CLASSES)).unwrap();
    assert_eq!(samples(&data), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    assert_eq!((labels(&data), data.separator()), (vec![0.0, 2.0, 1.0, 2.0], Some(Separator::Semicolon)));
}
