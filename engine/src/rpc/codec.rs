//! postcard as the codec of tarpc's frames.

use std::{io, marker::PhantomData, pin::Pin};

use serde::{Serialize, de::DeserializeOwned};
use tokio_serde::{Deserializer, Serializer};
use tokio_util::{
    bytes::{Bytes, BytesMut},
    codec::LengthDelimitedCodec,
};

/// Largest control message. Tensors never travel here.
pub const MAX_FRAME_BYTES: usize = 64 << 20;

/// Turns items into postcard bytes and back.
pub struct Postcard<Item, SinkItem>(PhantomData<fn(SinkItem) -> Item>);

impl<Item, SinkItem> Default for Postcard<Item, SinkItem> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<Item: DeserializeOwned, SinkItem> Deserializer<Item> for Postcard<Item, SinkItem> {
    type Error = io::Error;

    fn deserialize(self: Pin<&mut Self>, src: &BytesMut) -> io::Result<Item> {
        postcard::from_bytes(src).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
    }
}

impl<Item, SinkItem: Serialize> Serializer<SinkItem> for Postcard<Item, SinkItem> {
    type Error = io::Error;

    fn serialize(self: Pin<&mut Self>, item: &SinkItem) -> io::Result<Bytes> {
        postcard::to_stdvec(item).map(Into::into).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
    }
}

pub(super) fn framing() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().max_frame_length(MAX_FRAME_BYTES).new_codec()
}
