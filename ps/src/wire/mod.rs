//! The tensor connection: small headers, then raw numbers. It lives beside tarpc, on a socket of its own.
//!
//! After the greeting ([`syncline_rpc::hello`]) a connection carries frames, strictly one question and one
//! answer at a time:
//!
//! ```text
//! "SL" | kind u8 (1: question, 2: answer) | 0 | head length u16 le | check u16 le | body length u64 le | head ... | body ...
//! ```
//!
//! The check tells whether everything but the body is as it was sent; what is not ends the connection, and
//! the caller goes on over another one. The head holds one message in postcard; the body is the memory of f32
//! values, a gradient as its [`codec`](crate::codec) writes it, or a piece of a blob, and is never held
//! whole. A pull's answer ends with a second frame that says whether a round was applied while its values
//! were read. Every length is bounded before anything is allocated, and everything here works on any `Read`
//! and `Write`; only [`Duplex`](crate::transport::Duplex) knows what a transport can do beyond that.

mod error;
mod frame;
mod message;
mod raw_digest;
mod reply;
mod request;

pub use error::WireError;
pub use frame::{MAX_HEAD_BYTES, seal_frame};
pub use reply::Reply;
pub use request::{BLOBS_PER_LIST, ECHO_BYTES, MAX_BLOB_BYTES, MAX_TENSOR_BYTES, Request, SessionKey};
