//! A port that somebody else has taken while its process was down.

use std::net::SocketAddr;

use super::{child::Program, process::Process, programs::is_free, say};

/// Starts in a row that have failed before the port is looked at: most failures have another reason, and who
/// has it for a moment may give it back.
const FAILED_STARTS: u32 = 3;

impl Program {
    /// Lets a process whose port is taken take any other one. Only a shard: it announces its address, while
    /// that of an engine is known to many.
    pub(super) fn leave_taken_port(&mut self) {
        let Some(address) = self.listen.filter(|_| matches!(self.process, Process::Shard(_))) else { return };
        if self.failed_starts >= FAILED_STARTS && !is_free(address) {
            say(&format!(
                "{}: somebody else has port {} by now, it takes another one",
                self.process,
                address.port()
            ));
            self.listen = Some(SocketAddr::new(address.ip(), 0));
        }
    }
}
