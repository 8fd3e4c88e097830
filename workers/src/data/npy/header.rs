//! The dictionary in front of an array of numpy: its type, the order of its axes, their sizes.

/// What it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) element: Type,
    /// Whether the first axis is the one whose neighbors lie side by side.
    pub(super) is_fortran_order: bool,
    pub(super) shape: Vec<usize>,
}

/// `descr`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Type {
    /// Such as `<f4`: order of bytes, kind, bytes.
    Simple(String),
    /// A list of fields.
    Structured,
}

impl Header {
    /// `None` for what numpy does not write.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut rest = Rest(text);
        rest.take("{")?;
        let (mut element, mut is_fortran_order, mut shape) = (None, None, None);
        while rest.take("}").is_none() {
            let key = rest.text()?;
            rest.take(":")?;
            match key {
                "descr" => {
                    if rest.peek("[") {
                        // Its fields may hold anything: nothing more is looked at.
                        return Some(Self {
                            element: Type::Structured,
                            is_fortran_order: false,
                            shape: Vec::new(),
                        });
                    }
                    element = Some(Type::Simple(rest.text()?.to_owned()));
                }
                "fortran_order" => is_fortran_order = Some(rest.boolean()?),
                "shape" => shape = Some(rest.sizes()?),
                _ => return None,
            }
            if rest.take(",").is_none() && !rest.peek("}") {
                return None;
            }
        }
        let header = Self { element: element?, is_fortran_order: is_fortran_order?, shape: shape? };
        rest.0.trim().is_empty().then_some(header)
    }
}

/// What is left to read.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn peek(&self, start: &str) -> bool {
        self.0.trim_start().starts_with(start)
    }

    fn take(&mut self, start: &str) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(start)?;
        Some(())
    }

    /// A text in quotes of either kind; none that numpy writes has a quote inside.
    fn text(&mut self) -> Option<&'a str> {
        let rest = self.0.trim_start();
        let quote = rest.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
        let (text, rest) = rest[1..].split_once(quote)?;
        self.0 = rest;
        Some(text)
    }

    fn boolean(&mut self) -> Option<bool> {
        match self.take("True") {
            Some(()) => Some(true),
            None => self.take("False").map(|()| false),
        }
    }

    /// `()`, `(3,)` or `(3, 4)`; sizes of Python 2 end in `L`.
    fn sizes(&mut self) -> Option<Vec<usize>> {
        self.take("(")?;
        let (sizes, rest) = self.0.split_once(')')?;
        self.0 = rest;
        let sizes = sizes.trim();
        let sizes = sizes.strip_suffix(',').unwrap_or(sizes);
        if sizes.is_empty() {
            return Some(Vec::new());
        }
        sizes.split(',').map(|size| size.trim().trim_end_matches('L').parse().ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_numpy_are_read_and_others_are_not() {
        let simple = |text: &str, is_fortran_order, shape: &[usize]| {
            let element = Type::Simple(text.to_owned());
            Some(Header { element, is_fortran_order, shape: shape.to_vec() })
        };
        #[rustfmt::skip]
        let cases = [
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }          \n", simple("<f4", false, &[3, 4])),
            ("{'descr': '|u1', 'fortran_order': False, 'shape': (7,), }",               simple("|u1", false, &[7])),
            ("{'descr': '<i8', 'fortran_order': True, 'shape': (), }",                  simple("<i8", true, &[])),
            ("{\"shape\":(3L, 4L),\"fortran_order\":False,\"descr\":\"<f8\"}",          simple("<f8", false, &[3, 4])),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (3, -4), }",            None),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (3 4), }",              None),
            ("{'descr': '<f4', 'fortran_order': 0, 'shape': (3,), }",                   None),
            ("{'descr': '<f4', 'shape': (3,), }",                                       None),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), 'more': 1}",      None),
            ("{'descr': '<f4' 'fortran_order': False, 'shape': (3,)}",                  None),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)} and more",        None),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", None),
            ("{'descr': '<f4",                                                          None),
            ("{",                                                                       None),
            ("",                                                                        None),
        ];
        for (text, want) in cases {
            assert_eq!(Header::parse(text), want, "{text}");
        }
        let fields =
            "{'descr': [('a', '<f4'), ('b', [('c', '}')])], 'fortran_order': False, 'shape': (3,), }";
        assert_eq!(Header::parse(fields).unwrap().element, Type::Structured);
    }
}
