//! Comma-separated numbers, one sample a record, as RFC 4180 has it: fields may stand in double quotes, and records end
//! in LF or CRLF.
//!
//! A header is skipped, label columns may be given by name, and the columns of a test or validation file are found by their
//! names. Source: www.rfc-editor.org/rfc/rfc4180.

mod columns;
mod fields;
mod header;
mod table;
mod text;

pub use columns::LabelColumn;
pub(super) use columns::LabelColumns;
pub(super) use header::Header;
pub(super) use table::{names_columns, read, read_header};
pub(super) use text::{MISSING, hint};
