//! The network between a worker and the engines, which can be cut: what is sent then waits, as packets do
//! that are sent again, and nobody hears that it is cut. What comes late comes all the same.

use syncline_rpc::EngineAddresses;
use tokio::{
    io::{self, AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// Bytes that are on their way at once, in each direction of a connection.
const BUFFER_BYTES: usize = 64 << 10;

/// The way to all engines. Dropping it closes every connection.
pub(super) struct Network {
    /// What those behind it call the engines.
    pub engines: EngineAddresses,
    is_whole: watch::Sender<bool>,
    _listeners: JoinSet<()>,
}

impl Network {
    /// Listens for as many engines as there are, on 127.0.0.1.
    pub(super) async fn to(engines: &EngineAddresses) -> io::Result<Self> {
        let (is_whole, watched) = watch::channel(true);
        let (mut near, mut listeners) = (None::<EngineAddresses>, JoinSet::new());
        for engine in engines.iter() {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let address = listener.local_addr()?;
            near = Some(near.map_or_else(|| address.into(), |others| others.and(address)));
            listeners.spawn(accept(listener, engine.to_owned(), watched.clone()));
        }
        let engines = near.ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { engines, is_whole, _listeners: listeners })
    }

    /// Cuts the network until what is returned is dropped.
    pub(super) fn cut(&self) -> Cut {
        self.is_whole.send_replace(false);
        Cut { is_whole: self.is_whole.clone() }
    }
}

/// A network that is cut. Dropping it delivers what has waited, and lets pass all that follows.
pub(super) struct Cut {
    is_whole: watch::Sender<bool>,
}

impl Drop for Cut {
    fn drop(&mut self) {
        self.is_whole.send_replace(true);
    }
}

async fn accept(listener: TcpListener, engine: String, is_whole: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((near, _)) = listener.accept() => {
                connections.spawn(connect(near, engine.clone(), is_whole.clone()));
            }
            Some(_) = connections.join_next() => {}
            else => return,
        }
    }
}

async fn connect(near: TcpStream, engine: String, is_whole: watch::Receiver<bool>) {
    // An engine that is not there refuses; the worker hears of that by the end of its connection.
    let Ok(far) = TcpStream::connect(&engine).await else { return };
    // Messages are short, and each is waited for.
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    tokio::select! {
        () = carry(near_in, far_out, is_whole.clone()) => {}
        () = carry(far_in, near_out, is_whole) => {}
    }
}

/// Carries bytes one way, while the network is whole.
async fn carry(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut is_whole: watch::Receiver<bool>,
) {
    let mut bytes = vec![0; BUFFER_BYTES];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if is_whole.wait_for(|whole| *whole).await.is_err() || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn what_is_sent_over_a_cut_network_arrives_once_it_is_mended() {
        let engine = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let network = Network::to(&engine.local_addr().unwrap().into()).await.unwrap();
        let mut near = TcpStream::connect(network.engines.iter().next().unwrap()).await.unwrap();
        let (mut far, _) = engine.accept().await.unwrap();
        let mut got = [0; 4];
        near.write_all(b"poll").await.unwrap();
        far.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"poll");

        let cut = network.cut();
        near.write_all(b"done").await.unwrap();
        far.write_all(b"task").await.unwrap();
        let early = tokio::time::timeout(Duration::from_millis(50), near.read(&mut got)).await;
        assert!(early.is_err(), "{early:?} came over a cut network");
        drop(cut);
        near.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"task");
        far.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"done");

        drop(network);
        assert_eq!(near.read(&mut got).await.unwrap_or(0), 0, "closed");
    }
}
