//! Jobs as a user would write them. The programs are in `examples/`, the end-to-end tests in `tests/`.

pub mod digits;
