//! The end of a process that waits for nothing.

/// What a shell reports for a process that Ctrl-C ended.
pub const INTERRUPTED: i32 = 130;

/// Ends the process without running what others have registered for its end: ONNX Runtime must not be taken
/// down under threads that compute.
pub fn end_at_once(code: i32) -> ! {
    // SAFETY: nothing is left to do; everything else of this process ends where it is.
    #[expect(unsafe_code, reason = "the standard library ends a process only cleanly, or with a core dump")]
    unsafe {
        libc::_exit(code)
    }
}
