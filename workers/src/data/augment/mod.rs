//! Images as they train: cut out of a padded one, mirrored, with a square covered.
//!
//! [`Augmentation`] is what a job asks for, checked against its data; [`Draw`] is what it makes of one sample
//! in one epoch, and follows from the seed, the epoch and the sample alone: it does not matter who gathers
//! it, when, and beside which others. [`Draw::show`] writes the pixels into a batch.

mod augmentation;
mod draw;
mod pixels;

pub(super) use augmentation::Augmentation;
pub use draw::Pass;
use draw::{Draw, Rule};
use pixels::Channel;
