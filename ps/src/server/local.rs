//! Callers on the same machine: the unix socket, and shared memory over it.

use std::{io, path::Path, sync::Arc, thread::JoinHandle};

use syncline_rpc::ShardFault;
use tokio::runtime;
use tracing::warn;

use super::{
    Shared,
    connection::Connection,
    connections::{Connections, CountedMemory},
    listen, tensor,
};
use crate::{
    transport::{Channel, Memory, SocketFile, Transport, bind_unix},
    wire::Reply,
};

/// The unix socket of a shard, not served yet.
pub(super) struct LocalSocket {
    listener: Arc<socket2::Socket>,
    file: SocketFile,
}

/// The same with the thread that accepts on it.
pub(super) struct LocalListener {
    listener: Arc<socket2::Socket>,
    accepting: JoinHandle<()>,
    /// Removed with the listener.
    _file: SocketFile,
}

impl LocalSocket {
    /// Makes the socket. Without one the shard serves everybody over TCP, and says so.
    pub(super) fn bind() -> Option<Self> {
        match bind_unix() {
            Ok((listener, file)) => Some(Self { listener: Arc::new(listener), file }),
            Err(error) => {
                warn!(%error, "no socket for workers on this machine: they are served over TCP");
                None
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(super) fn serve(self, shared: Arc<Shared>, control: runtime::Handle) -> io::Result<LocalListener> {
        let Self { listener, file } = self;
        let accepting = listen::spawn(listener.clone(), Transport::Unix, shared, control)?;
        Ok(LocalListener { listener, accepting, _file: file })
    }
}

impl LocalListener {
    /// Waits until nothing is accepted any more. The shard is stopping already.
    pub(super) fn stop(self) {
        // This wakes the thread, unlike a connection: the file may have been removed.
        let _ = self.listener.shutdown(std::net::Shutdown::Both);
        let _ = self.accepting.join();
    }
}

/// Goes over to shared memory, if the caller sits at the unix socket and there is memory. `counted` counts it
/// from then on.
pub(super) fn share_memory<'a>(
    connections: &'a Connections,
    connection: &mut Connection<'_, Channel>,
    bytes: u64,
    counted: &mut Option<CountedMemory<'a>>,
) -> io::Result<()> {
    if connection.duplex.transport() != Transport::Unix {
        let what = format!("memory cannot be shared over {}", connection.duplex.transport());
        return connection.answer(Err(ShardFault::Invalid { what }));
    }
    let refuse = |cause: String| Err(ShardFault::Io { what: "cannot share memory".into(), cause });
    let Some(taken) = connections.count_shared(Memory::bytes_for(bytes)) else {
        return connection.answer(refuse("too many connections have some".into()));
    };
    let (memory, descriptor) = match Memory::create(bytes) {
        Ok(made) => made,
        Err(error) => return connection.answer(refuse(error.to_string())),
    };
    connection.answer(Ok(Reply::SharedMemory))?;
    connection.duplex.upgrade_server(memory, &descriptor)?;
    *counted = Some(taken);
    tensor::limit(connection.duplex)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Socket;

    #[test]
    fn who_asks_for_memory_again_is_refused_and_still_counted() {
        let (connections, mut counted) = (Connections::default(), None);
        let (socket, client) = Socket::with_peer();
        let mut channel = Channel::Socket(socket);
        let mut connection = Connection::new(&mut channel);
        for _ in 0..2 {
            share_memory(&connections, &mut connection, 1, &mut counted).unwrap();
            assert_eq!(connection.duplex.transport(), Transport::Shm);
            assert_eq!(connections.shared_bytes(), Memory::bytes_for(1));
        }
        drop((counted, client));
        assert_eq!(connections.shared_bytes(), 0);
    }
}
