//! The engine with a real Redis: its store, its lead, its callers, its bounds. One program, so that all of it
//! runs beside each other and is linked once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod bounded;
mod lead;
mod lead_and_numbers;
mod service;
mod store;
