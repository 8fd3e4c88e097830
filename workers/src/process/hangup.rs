//! Whether the end of the terminal is meant for us.

use std::fs;

/// The bit of SIGHUP in the masks of `/proc/PID/status`: signals are counted from 1.
const HANGUP_BIT: u64 = 1;

/// Whether SIGHUP was ignored when this process was started, as `nohup` and `trap '' HUP` do: then it is to
/// outlive the terminal, and must not listen for it. False where the system does not tell. Call it before
/// anything listens.
pub fn hangup_is_ignored() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores_hangup(&status))
}

fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).is_some_and(|mask| mask & HANGUP_BIT != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_says_it() {
        for (status, ignored) in [
            ("SigBlk:\t0000000000000001\nSigIgn:\t0000000000001000\n", false),
            ("SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n", true),
            ("SigIgn:\tnonsense\n", false),
            ("", false),
        ] {
            assert_eq!(ignores_hangup(status), ignored, "{status}");
        }
    }
}
