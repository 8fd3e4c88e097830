//! Models that come from elsewhere, loaded in a process of their own.
//!
//! ONNX Runtime is native code, and some models end it by a signal. What a model goes through before it is
//! submitted (derived, checked, loaded), and the first load of one that tasks run, therefore happen in a
//! child: this program starts itself again, and a crash there becomes an error here, with the signal, what
//! the child was doing, and the node if one can be found. Whoever waits does so within bounds: a child that
//! says nothing for long is ended.
//!
//! One child serves one call and brings ONNX Runtime along; the parent need not load it. In: the model and
//! what to do, through a pipe. Out: what the child does, then the answer. See docs/adr/0014.
//!
//! The binary `syncline` calls [`serve_if_asked`] first. A program that uses this library may do the same;
//! one that does not loads models in its own process, see [`ModelHost::of`].

mod child;
mod error;
mod host;
mod locate;
mod message;
mod parent;

pub use child::serve_if_asked;
pub use error::ModelError;
pub use host::{ModelHost, NamedModel};
pub use message::{ChildError, Derived, DynamicBatch, ModelChecks};
