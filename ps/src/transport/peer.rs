//! Who sits at the other end of a unix socket, as the kernel knows it.

use std::io;

/// The user this process acts as.
pub(super) fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether the peer runs as our user, or as root, who could read our memory anyway.
pub(crate) fn is_same_user_or_root(socket: &socket2::Socket) -> io::Result<bool> {
    let peer = peer_user(socket)?;
    Ok(peer == 0 || peer == own_user())
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the standard library cannot tell the user at the other end of a socket")]
fn peer_user(socket: &socket2::Socket) -> io::Result<u32> {
    use std::os::fd::AsRawFd;

    // `rustix` asks for it, too, and takes the process id for one that is not zero. It is zero for a peer
    // that lives in a namespace of processes which we do not see.
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is open as long as `socket` lives, and the kernel writes at most `bytes` bytes
    // into `peer`, whose fields are plain numbers.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut bytes,
        )
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(peer.uid)
}

#[cfg(not(target_os = "linux"))]
fn peer_user(_: &socket2::Socket) -> io::Result<u32> {
    Err(io::ErrorKind::Unsupported.into())
}
