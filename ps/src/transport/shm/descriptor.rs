//! Handing an open file to the other end of a unix socket.

use std::{
    io::{self, ErrorKind, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// A byte has to travel with a descriptor. It also tells one from the bytes of the protocol.
const MARK: u8 = b'm';

/// Sends `descriptor`, and one byte that carries it.
pub fn send(socket: &socket2::Socket, descriptor: &OwnedFd) -> io::Result<()> {
    send_all(socket, &[descriptor.as_fd()])
}

/// The same for up to four.
fn send_all(socket: &socket2::Socket, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)), "too many descriptors");
    match sendmsg(socket, &[IoSlice::new(&[MARK])], &mut control, SendFlags::empty())? {
        1 => Ok(()),
        _ => Err(ErrorKind::WriteZero.into()),
    }
}

/// Receives what [`send`] sent; anything else is an error.
pub fn receive(socket: &socket2::Socket) -> io::Result<OwnedFd> {
    let mut mark = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut mark)], &mut control, CLOSE_ON_EXEC)?;
    // What is not taken here is closed: by the kernel what had no room, by `control` the rest.
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    match descriptor {
        Some(descriptor) if received.bytes == 1 && mark == [MARK] => Ok(descriptor),
        _ => Err(io::Error::new(ErrorKind::InvalidData, "the other end handed over no memory")),
    }
}

#[cfg(target_os = "linux")]
const CLOSE_ON_EXEC: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(not(target_os = "linux"))]
const CLOSE_ON_EXEC: RecvFlags = RecvFlags::empty();

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read, os::unix::net::UnixStream};

    use super::*;

    #[test]
    fn of_several_descriptors_one_is_taken_and_none_stays_open() {
        let (from, to) = UnixStream::pair().unwrap();
        let (from, to): (socket2::Socket, socket2::Socket) =
            (OwnedFd::from(from).into(), OwnedFd::from(to).into());
        for count in 1..=4 {
            let (readers, writers): (Vec<_>, Vec<_>) = (0..count).map(|_| io::pipe().unwrap()).unzip();
            let sent: Vec<BorrowedFd<'_>> = writers.iter().map(AsFd::as_fd).collect();
            send_all(&from, &sent).unwrap();
            drop(writers);
            drop(receive(&to));
            for reader in readers {
                let mut reader = File::from(OwnedFd::from(reader));
                // It would wait forever for a pipe that somebody may still write to.
                assert_eq!(reader.read(&mut [0]).unwrap(), 0, "{count}");
            }
        }
    }
}
