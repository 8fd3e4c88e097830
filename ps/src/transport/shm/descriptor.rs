//! Handing an open file to the other end of a unix socket.

use std::{
    io::{self, ErrorKind},
    mem,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

/// Room for the control message, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// A byte has to travel with a descriptor. It also tells one from the bytes of the protocol.
const MARK: u8 = b'm';

/// Sends `descriptor`, and one byte that carries it.
pub fn send(socket: &socket2::Socket, descriptor: &OwnedFd) -> io::Result<()> {
    send_all(socket, &[descriptor.as_raw_fd()])
}

/// The same for a few.
#[expect(unsafe_code, reason = "the standard library sends no descriptors")]
fn send_all(socket: &socket2::Socket, descriptors: &[RawFd]) -> io::Result<()> {
    let bytes = size_of_val(descriptors) as u32;
    let mut mark = [MARK];
    let mut control = Control([0; 64]);
    let mut part = libc::iovec { iov_base: mark.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: it only computes.
    let space = unsafe { libc::CMSG_SPACE(bytes) } as usize;
    assert!(space <= size_of::<Control>(), "too many descriptors");
    let message = message(&mut part, &mut control, space);
    // SAFETY: `message` points to `control`, which is aligned and, as was looked at, as large as the space of these
    // descriptors, and to one byte; all of them live to the end of the call.
    let sent = unsafe {
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        (*head).cmsg_level = libc::SOL_SOCKET;
        (*head).cmsg_type = libc::SCM_RIGHTS;
        (*head).cmsg_len = libc::CMSG_LEN(bytes) as _;
        let data = libc::CMSG_DATA(head).cast::<RawFd>();
        for (index, descriptor) in descriptors.iter().enumerate() {
            data.add(index).write_unaligned(*descriptor);
        }
        libc::sendmsg(socket.as_raw_fd(), &raw const message, 0)
    };
    match sent {
        1 => Ok(()),
        0 => Err(ErrorKind::WriteZero.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Receives what [`send`] sent; anything else is an error.
#[expect(unsafe_code, reason = "the standard library receives no descriptors")]
pub fn receive(socket: &socket2::Socket) -> io::Result<OwnedFd> {
    let mut mark = [0];
    let mut control = Control([0; 64]);
    let mut part = libc::iovec { iov_base: mark.as_mut_ptr().cast(), iov_len: 1 };
    // Without the padding behind it, in which a second one would have room. Of more, the kernel closes the rest.
    // SAFETY: it only computes.
    let room = unsafe { libc::CMSG_LEN(size_of::<RawFd>() as u32) } as usize;
    let mut message = message(&mut part, &mut control, room);
    // SAFETY: as in `send_all`; the kernel writes no more than the lengths say.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, CLOSE_ON_EXEC) };
    if received < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has filled `message`; a header that it gives lies within `control`.
    let descriptor = unsafe {
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        let carries_one = !head.is_null()
            && (*head).cmsg_level == libc::SOL_SOCKET
            && (*head).cmsg_type == libc::SCM_RIGHTS
            && (*head).cmsg_len as usize == libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
        // From here on it is closed whatever happens.
        carries_one.then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(head).cast::<RawFd>().read_unaligned()))
    };
    match descriptor {
        Some(descriptor) if received == 1 && mark == [MARK] => Ok(descriptor),
        _ => Err(io::Error::new(ErrorKind::InvalidData, "the other end handed over no memory")),
    }
}

#[cfg(target_os = "linux")]
const CLOSE_ON_EXEC: libc::c_int = libc::MSG_CMSG_CLOEXEC;
#[cfg(not(target_os = "linux"))]
const CLOSE_ON_EXEC: libc::c_int = 0;

/// A message of one part, with so many bytes for descriptors.
#[expect(unsafe_code, reason = "the fields of a message differ between systems")]
fn message(part: &mut libc::iovec, control: &mut Control, bytes: usize) -> libc::msghdr {
    // SAFETY: plain numbers and pointers, for all of which zero is a value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = bytes as _;
    message
}

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
            let raw: Vec<RawFd> = writers.iter().map(|writer| writer.as_raw_fd()).collect();
            send_all(&from, &raw).unwrap();
            drop(writers);
            drop(receive(&to));
            for reader in readers {
                let mut reader = File::from(OwnedFd::from(reader));
                // It would wait for ever for a pipe that somebody may still write to.
                assert_eq!(reader.read(&mut [0]).unwrap(), 0, "{count}");
            }
        }
    }
}
