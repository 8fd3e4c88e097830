//! Numbers between commas, semicolons or tabs, one sample a record, as RFC 4180 has it: fields may stand in
//! double quotes, and records end in LF or CRLF.
//!
//! Comments above the first record are passed over, a header is skipped, the columns of the label and of each
//! input may be given by name, and the columns of a test or validation file are found by their names. Labels
//! of one column that are classes may be texts. Source: www.rfc-editor.org/rfc/rfc4180.

mod classes;
mod columns;
mod comments;
mod fields;
mod header;
mod input_columns;
mod number_sink;
mod numbers_file;
mod on_disk;
mod record_reader;
mod separator;
mod stream;
mod table;
mod table_cache;
mod table_file;
mod text;
mod text_reader;

pub use columns::LabelColumn;
pub(super) use columns::LabelColumns;
pub(super) use header::{Header, listed};
pub(super) use input_columns::InputColumns;
pub(super) use on_disk::OnDisk;
pub(super) use table::{TableNames, Wanted, needs_names, read, read_names};
pub(crate) use table_cache::TableCache;
pub(super) use table_file::File;
pub(super) use text::{MISSING, comma_hint, hint, shown};
