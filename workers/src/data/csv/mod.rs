//! Comma-separated numbers, one sample a record, as RFC 4180 has it: fields may stand in double quotes, and records end
//! in LF or CRLF.
//!
//! A header is skipped, and label columns may be given by name. Source: www.rfc-editor.org/rfc/rfc4180.

mod columns;
mod fields;
mod table;
mod text;

pub(super) use columns::LabelColumns;
pub(super) use table::read;
pub(super) use text::hint;
