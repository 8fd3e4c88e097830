//! Handing an open file to the other end of a unix socket.

use std::{
    io::{self, ErrorKind},
    mem,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

/// Room for the control message of one descriptor, aligned as the kernel wants it. Of more, the kernel closes the rest.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// A byte has to travel with a descriptor. It also tells one from the bytes of the protocol.
const MARK: u8 = b'm';

/// Sends `descriptor`, and one byte that carries it.
#[expect(unsafe_code, reason = "the standard library sends no descriptors")]
pub fn send(socket: &socket2::Socket, descriptor: &OwnedFd) -> io::Result<()> {
    let mut mark = [MARK];
    let mut control = Control([0; 64]);
    let mut part = libc::iovec { iov_base: mark.as_mut_ptr().cast(), iov_len: 1 };
    let message = message(&mut part, &mut control);
    // SAFETY: `message` points to `control`, which is larger than the space of one descriptor and aligned, and to one byte;
    // all of them live to the end of the call.
    let sent = unsafe {
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        (*head).cmsg_level = libc::SOL_SOCKET;
        (*head).cmsg_type = libc::SCM_RIGHTS;
        (*head).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        libc::CMSG_DATA(head).cast::<RawFd>().write_unaligned(descriptor.as_raw_fd());
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
    let mut message = message(&mut part, &mut control);
    // SAFETY: as in `send`; the kernel writes no more than the lengths say.
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

/// A message of one part, with room for one descriptor.
#[expect(unsafe_code, reason = "the fields of a message differ between systems")]
fn message(part: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: plain numbers and pointers, for all of which zero is a value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: it only computes.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<RawFd>() as u32) } as _;
    message
}
