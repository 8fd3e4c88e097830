//! A network that can be cut: what is sent then waits, as packets do that are sent again, and nobody hears that it is cut.

use std::sync::Arc;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

/// The way to one address.
pub struct Network {
    /// What those behind it call that address.
    pub address: String,
    whole: Arc<watch::Sender<bool>>,
}

impl Network {
    pub async fn to(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (whole, watched) = watch::channel(true);
        let target = target.to_owned();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(&target).await else { continue };
                let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
                tokio::spawn(carry(near_in, far_out, watched.clone()));
                tokio::spawn(carry(far_in, near_out, watched.clone()));
            }
        });
        Self { address, whole: Arc::new(whole) }
    }

    pub fn cut(&self) {
        self.whole.send_replace(false);
    }

    pub fn mend(&self) {
        self.whole.send_replace(true);
    }
}

/// Carries bytes one way, while the network is whole.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut whole: watch::Receiver<bool>) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if whole.wait_for(|whole| *whole).await.is_err() || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
