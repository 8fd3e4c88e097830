//! What values of every kind look like, and that none is read further than it is shown.

use std::{
    cell::Cell,
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
};

use serde::{Serialize, Serializer, ser::SerializeSeq};
use syncline_scheduler::tasks::{Bytes, Preview};

use super::preview;
use crate::functions::Tensor;

#[derive(Serialize)]
struct Point {
    x: i32,
    label: Option<&'static str>,
}

#[derive(Serialize)]
enum Shape {
    Empty,
    Circle(f64),
    Line(u8, u8),
    Rectangle { width: u8, height: u8 },
}

#[derive(Serialize)]
struct Wrapped(Point);

fn shown(value: &(impl Serialize + ?Sized)) -> String {
    preview(value).expect("a preview").to_string()
}

#[test]
fn values_look_as_in_json() {
    #[rustfmt::skip]
    let cases = [
        (shown(&7u64),                                        "7"),
        (shown(&(-1i8, true, 'x', ())),                       r#"[-1,true,"x",null]"#),
        (shown(&[1.0f32, 1e30, f32::NAN]),                    "[1.0,1e30,NaN]"),
        (shown("say \"no\"\n\\"),                             r#""say \"no\"\n\\""#),
        (shown(&Point { x: 1, label: None }),                 r#"{"x":1,"label":null}"#),
        (shown(&Wrapped(Point { x: 1, label: Some("a") })),   r#"{"x":1,"label":"a"}"#),
        (shown(&[Shape::Empty, Shape::Circle(0.5)]),          r#"["Empty",{"Circle":0.5}]"#),
        (shown(&Shape::Line(1, 2)),                           r#"{"Line":[1,2]}"#),
        (shown(&Shape::Rectangle { width: 1, height: 2 }),    r#"{"Rectangle":{"width":1,"height":2}}"#),
        (shown(&BTreeMap::from([((1, 2), "a"), ((3, 4), "b")])), r#"{[1,2]:"a",[3,4]:"b"}"#),
        (shown(&IpAddr::V4(Ipv4Addr::LOCALHOST)),             r#""127.0.0.1""#),
        (shown(&Bytes::from(&b"a\"\\\x00\xff"[..])),          r#""a\"\\x5c\\x00\\xff""#),
        (shown(serde_bytes::Bytes::new(b"a\"\x00")),          r#""a\"\x00""#),
        (shown(&Vec::<u8>::new()),                            "[]"),
    ];
    for (shown, wanted) in cases {
        assert_eq!(shown, wanted);
    }
}

#[test]
fn what_would_change_the_line_or_the_terminal_stands_there_by_its_number() {
    assert_eq!(shown("\u{1b}[2J\u{9b}\u{202e}\u{7f}\r"), r#""\u001b[2J\u009b\u202e\u007f\u000d""#);
}

#[test]
fn tensors_are_told_by_type_shape_and_first_numbers() {
    let tensor = Tensor::new([2, 2], vec![0.5f32, 1.0, -1.0, f32::INFINITY]).unwrap();
    assert_eq!(shown(&tensor), r#"{"type":"float32","shape":[2,2],"values":[0.5,1.0,-1.0,inf]}"#);
    let flags = Tensor::new([2], vec![true, false]).unwrap();
    assert_eq!(shown(&(1, flags)), r#"[1,{"type":"bool","shape":[2],"values":[true,false]}]"#);
    let scalar = Tensor::new([], vec![i64::MIN]).unwrap();
    assert_eq!(shown(&scalar), r#"{"type":"int64","shape":[],"values":[-9223372036854775808]}"#);
    let large = shown(&Tensor::new([1 << 20], vec![7u8; 1 << 20]).unwrap());
    assert!(large.starts_with(r#"{"type":"uint8","shape":[1048576],"values":[7,7,"#), "{large}");
    assert!(large.ends_with('…') && large.len() <= Preview::MAX_BYTES, "{large}");
}

/// A list without end that counts how many elements were asked for.
struct Endless<'a>(&'a Cell<usize>);

impl Serialize for Endless<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut list = to.serialize_seq(None)?;
        loop {
            self.0.set(self.0.get() + 1);
            list.serialize_element(&())?;
        }
    }
}

#[test]
fn no_more_is_read_than_is_shown() {
    let asked = Cell::default();
    let text = shown(&Endless(&asked));
    assert!(text.starts_with("[null,null,") && text.ends_with('…'), "{text}");
    assert!(asked.get() < Preview::MAX_BYTES, "{}", asked.get());
    // Sixteen such texts would take minutes in a test that reads them to their ends for every byte.
    let long = "é".repeat(10 << 20);
    let text = shown(&vec![&long; 16]);
    assert!(text.len() <= Preview::MAX_BYTES && text.ends_with("é…"), "{text}");
}

#[test]
fn the_bound_is_exact() {
    for length in 250..260 {
        let text = "x".repeat(length);
        let shown = shown(text.as_str());
        match length + 2 <= Preview::MAX_BYTES {
            true => assert_eq!(shown, format!("\"{text}\"")),
            false => assert_eq!(shown, format!("\"{}…", "x".repeat(252))),
        }
    }
}

#[test]
fn a_type_that_refuses_has_no_preview() {
    struct Refuses;
    impl Serialize for Refuses {
        fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("not today"))
        }
    }
    assert_eq!(preview(&(1, Refuses)), None);
}
