//! Data sets: read once, checked completely, and kept in memory, but for large arrays, which stay in their
//! files.
//!
//! [`Dataset::open`] reads what a [`DataSpec`](syncline_scheduler::spec::DataSpec) names, plain or `.gz`:
//! CSV, IDX (the format of MNIST), the binary format of CIFAR-10, a text as characters, arrays of numpy, or
//! named arrays in a safetensors file; each format is a file here. What comes out is what a model
//! [wants](ModelSignature): as many inputs and labels as it has, in its shapes and element types.
//!
//! Files are untrusted: sizes are bounded before anything is allocated for them, every number is checked, and
//! an error names the file, the line and the column. Afterwards no batch can be wrong: all floats are finite,
//! all classes are in range.
//!
//! A training step calls [`Dataset::gather`], which copies the rows of one batch into a [`Batch`] that is
//! used again and again: no allocation once it has grown to the largest batch. [`Dataset::gather_to_train`]
//! does the same for samples that train, which are images that change from epoch to epoch where the job
//! [asks](syncline_scheduler::spec::Augment) for it.

mod array;
mod array_parts;
mod augment;
mod batch;
mod block;
mod cifar10;
mod column;
mod contents;
mod csv;
mod dataset;
mod digests;
mod disk_array;
mod elements;
mod error;
mod file;
mod fit;
mod idx;
mod label_counts;
mod named;
mod normalization_settings;
mod note;
mod npy;
mod npz;
mod pattern;
mod remote;
mod settings;
mod signature;
mod source;
mod standard;
mod stratified;
mod tensors;
#[cfg(test)]
mod tests;
mod text;

pub use augment::Pass;
pub use batch::Batch;
pub use csv::LabelColumn;
pub use dataset::{Dataset, Parts};
pub use digests::FileDigests;
pub use error::{DataError, FileError, FitError, FormatError, Remedy, SettingError, TableError, ValueError};
pub(crate) use file::is_packed;
pub use file::{MAX_ELEMENTS, MAX_FILE_BYTES};
pub(crate) use label_counts::label_places;
pub(crate) use normalization_settings::check_standardized;
pub(crate) use pattern::expand;
#[cfg(feature = "worker")]
pub(crate) use pattern::expand_source;
pub(crate) use remote::is_url;
pub use signature::{InputSignature, LabelSignature, ModelSignature, Target};
#[cfg(feature = "worker")]
pub(crate) use source::Form;
pub(crate) use standard::Standard;
