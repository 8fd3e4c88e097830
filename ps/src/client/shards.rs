//! All shards of one job, as one worker sees them.

use std::time::Duration;

use syncline_engine::rpc::Token;
use syncline_scheduler::{
    ids::{Generation, Incarnation, JobId},
    spec::ElementRange,
};

use super::{Addresses, Canceller, Link, Trouble, patience::Patience};
use crate::{PsError, shard::Want, wire::At};

/// How a client behaves when connections break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientOptions {
    /// A shard that cannot be reached for this long is an error.
    pub patience: Duration,
    /// A shard that says nothing for this long, while it owes an answer, is connected to again. Shards that wait for
    /// others say so every second.
    pub silence: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self { patience: Duration::from_secs(10), silence: Duration::from_secs(5) }
    }
}

/// Connections of one incarnation to all shards of one job in one generation.
///
/// Not shared between threads; [`Shards::canceller`] ends its calls from outside.
pub struct Shards {
    pub(super) at: At,
    pub(super) elements: u64,
    pub(super) seats: Vec<Seat>,
    pub(super) options: ClientOptions,
    pub(super) canceller: Canceller,
    addresses: Addresses,
    token: Token,
}

/// One shard's address and part, connected or not.
pub(super) struct Seat {
    pub address: String,
    pub range: ElementRange,
    pub link: Option<Link>,
    /// The pull whose answer is still to come over `link`.
    pub asked: Option<Want>,
}

impl Shards {
    /// Connects to the shards at `addresses`, in order, that hold `elements` parameters together.
    pub fn connect(
        addresses: &[String],
        token: Token,
        job: JobId,
        generation: Generation,
        incarnation: Incarnation,
        elements: u64,
    ) -> Result<Self, PsError> {
        let at = At { job, generation, incarnation };
        let (options, canceller) = (ClientOptions::default(), Canceller::default());
        Self::connect_with(&addresses.into(), token, at, elements, options, canceller)
    }

    /// As [`Shards::connect`], with addresses that may change, with options, and only as long as nobody cancels.
    pub fn connect_with(
        addresses: &Addresses,
        token: Token,
        at: At,
        elements: u64,
        options: ClientOptions,
        canceller: Canceller,
    ) -> Result<Self, PsError> {
        addresses.forget_lost();
        let now = addresses.get();
        let count = now.len() as u32;
        let seat = |(index, address): (u32, String)| Seat {
            address,
            range: ElementRange::of_shard(elements, index, count),
            link: None,
            asked: None,
        };
        let seats = (0..).zip(now).map(seat).collect();
        let mut shards =
            Self { at, elements, seats, options, canceller, addresses: addresses.clone(), token };
        let mut patience = Patience::new(options.patience);
        for index in 0..shards.seats.len() {
            while let Err(trouble) = shards.link(index) {
                shards.recover(index, trouble, &mut patience)?;
            }
        }
        Ok(shards)
    }

    /// Ends blocked calls from another thread, for good.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    /// Parameters of the whole job.
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// The connection to shard `index`, opened if need be; the flag says whether it is new.
    pub(super) fn link(&mut self, index: usize) -> Result<(&mut Link, bool), Trouble> {
        let seat = &mut self.seats[index];
        let fresh = seat.link.is_none();
        let link = match seat.link.take() {
            Some(link) => link,
            None => {
                let link = Link::open(&seat.address, &self.token, self.options.silence)?;
                self.canceller.watch(index, Some(link.socket()));
                self.addresses.reached(index);
                link
            }
        };
        Ok((seat.link.insert(link), fresh))
    }

    /// Hangs up on shard `index`, whose connection is out of step.
    pub(super) fn drop_link(&mut self, index: usize) {
        self.seats[index].asked = None;
        if self.seats[index].link.take().is_some() {
            self.canceller.watch(index, None);
        }
    }

    /// Drops the answers to pulls that [`Shards::push_and_ask`] asked for, with the connections they come on.
    pub fn forget_asked(&mut self) {
        for index in 0..self.seats.len() {
            if self.seats[index].asked.is_some() {
                self.drop_link(index);
            }
        }
    }

    /// Decides after trouble with shard `index`: pause and try again (`Ok`), or give up.
    pub(super) fn recover(
        &mut self,
        index: usize,
        trouble: Trouble,
        patience: &mut Patience,
    ) -> Result<(), PsError> {
        self.drop_link(index);
        self.canceller.check()?;
        let address = &self.seats[index].address;
        let Trouble::Broken(cause) = trouble else { return Err(trouble.into_error(address)) };
        tracing::debug!(%address, %cause, job = %self.at.job, "connection to a shard broke");
        patience.pause().map_err(|after_ms| PsError::Unreachable {
            address: address.clone(),
            after_ms,
            cause: cause.to_string(),
        })?;
        // It may have been started again elsewhere.
        if let Some(address) = self.addresses.of(index) {
            self.seats[index].address = address;
        }
        self.addresses.lost(index, &self.seats[index].address);
        self.canceller.check()
    }
}
