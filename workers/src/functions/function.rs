//! The typed name of a function.

use std::{any::type_name, fmt, marker::PhantomData};

use syncline_rpc::shortened;
use syncline_scheduler::{ids::MAX_NAME_BYTES, tasks::FunctionId};

/// The name of a function that takes the tuple `I` and gives `O`. Workers register what it does, graphs call
/// it:
///
/// ```
/// # use syncline_workers::functions::Function;
/// pub const ADD: Function<(u64, u64), u64> = Function::new("add");
/// ```
///
/// A graph and a worker whose types of the same name differ never meet: the types are a part of what a worker
/// says it has. They are compared by their names, without the modules that they stand in.
///
/// Fields are not compared, and travel in their order without their names. Where a struct or an enum keeps
/// its name and changes what is in it, give the function another name as well, such as `resize-2`: a worker
/// of the build before would read its fields by their place. One that finds too few or too many bytes fails
/// the task (E442); fields in another order are taken for each other.
pub struct Function<I, O> {
    name: &'static str,
    types: PhantomData<fn(I) -> O>,
}

impl<I, O> Clone for Function<I, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I, O> Copy for Function<I, O> {}

impl<I, O> fmt::Debug for Function<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.name, short_type_name::<I>(), short_type_name::<O>())
    }
}

impl<I, O> Function<I, O> {
    /// The function of this name: 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit.
    ///
    /// # Panics
    /// For any other name, at compile time where it makes a constant.
    pub const fn new(name: &'static str) -> Self {
        assert!(is_name(name.as_bytes()), "a function's name is 1 to 64 of a-z, 0-9, '.', '_' and '-'");
        Self { name, types: PhantomData }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// How graphs and workers call it.
    pub fn id(&self) -> FunctionId {
        let types = format!("{} -> {}", short_type_name::<I>(), short_type_name::<O>());
        let [a, b, c, d, ..] = *blake3::hash(types.as_bytes()).as_bytes();
        let name = self.name.parse().expect("the name was checked when the function was made");
        let types = shortened(types, FunctionId::MAX_TYPES_CHARS);
        FunctionId { name, signature: u32::from_le_bytes([a, b, c, d]), types }
    }
}

/// As `Name` checks it, in a constant.
const fn is_name(name: &[u8]) -> bool {
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        return false;
    }
    let mut i = 0;
    while i < name.len() {
        let plain = name[i].is_ascii_lowercase() || name[i].is_ascii_digit();
        if !(plain || i > 0 && matches!(name[i], b'.' | b'_' | b'-')) {
            return false;
        }
        i += 1;
    }
    true
}

/// `Vec<Image>` of `alloc::vec::Vec<my_crate::image::Image>`.
pub(crate) fn short_type_name<T>() -> String {
    let mut short = String::new();
    for part in type_name::<T>().split_inclusive(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')) {
        let from = part.rfind("::").map_or(0, |at| at + 2);
        short.push_str(&part[from..]);
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_known_by_its_name_and_the_names_of_its_types() {
        let add = Function::<(u64, u64), u64>::new("add").id();
        assert_eq!((add.name.as_str(), &*add.types), ("add", "(u64, u64) -> u64"));
        assert_eq!(add, Function::<(u64, u64), u64>::new("add").id());
        assert_ne!(add.signature, Function::<(u64, u32), u64>::new("add").id().signature);
        assert_ne!(add.signature, Function::<(u64, u64), u32>::new("add").id().signature);
        let types = short_type_name::<(Vec<Option<std::net::IpAddr>>, String, &str, [u8; 4])>();
        assert_eq!(types, "(Vec<Option<IpAddr>>, String, &str, [u8; 4])");
    }

    #[test]
    fn names_table() {
        for good in ["a", "0", "resize-2.x_y", &"a".repeat(64)] {
            assert!(is_name(good.as_bytes()), "{good}");
        }
        for bad in ["", "-a", "A", "a b", "ä", &"a".repeat(65)] {
            assert!(!is_name(bad.as_bytes()), "{bad}");
        }
    }
}
