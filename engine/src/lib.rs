//! The engine: what it keeps in Redis ([`store`]), and the service that decides ([`service`]).

pub mod service;
pub mod store;
