//! When a long-running program has to end.

use std::{
    io::{self, Read},
    process,
    time::Duration,
};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
};

use super::hangup_is_ignored;

/// A process whose parent has gone ends by itself within this time, however busy it is.
const PARENT_GONE_LIMIT: Duration = Duration::from_secs(5);
/// What a shell reports for a process that Ctrl-C ended.
pub const INTERRUPTED: i32 = 130;

/// Becomes true when the process should end: Ctrl-C, SIGTERM, SIGHUP unless that was ignored at the start, or the parent
/// closed the pipe at our stdin.
///
/// The second request ends the process at once, unless somebody [hears it](Self::hearing_a_second).
#[derive(Debug, Clone)]
pub struct StopSignal(watch::Receiver<bool>);

/// The second request to end, which a process that has others to end hears. The third ends it at once.
#[derive(Debug, Clone)]
pub struct SecondStop(watch::Receiver<u32>);

impl SecondStop {
    /// Waits for the second request.
    pub async fn requested(&mut self) {
        // A sender that is gone belongs to a runtime that ends.
        let _ = self.0.wait_for(|asked| *asked > 1).await;
    }
}

impl StopSignal {
    /// Begins to listen; call it early, inside a runtime. `with_parent`: stdin is a pipe that a supervisor holds open.
    ///
    /// # Errors
    /// If the system gives no handlers or threads.
    pub fn listen(with_parent: bool) -> io::Result<Self> {
        Self::listen_until(2, with_parent).map(|(first, _)| first)
    }

    /// The same for a process that has others to end: at the second request it is told, and the third ends it at once.
    ///
    /// # Errors
    /// As [`listen`](Self::listen).
    pub fn hearing_a_second(with_parent: bool) -> io::Result<(Self, SecondStop)> {
        Self::listen_until(3, with_parent)
    }

    /// Request number `last` ends the process.
    fn listen_until(last: u32, with_parent: bool) -> io::Result<(Self, SecondStop)> {
        let (ask, mut asked) = mpsc::unbounded_channel();
        let hangup = (!hangup_is_ignored()).then(SignalKind::hangup);
        for kind in [SignalKind::interrupt(), SignalKind::terminate()].into_iter().chain(hangup) {
            let mut signals = signal(kind)?;
            let ask = ask.clone();
            tokio::spawn(async move { while signals.recv().await.is_some() && ask.send(()).is_ok() {} });
        }
        if with_parent {
            // A thread: a read of stdin cannot be given up, and a busy runtime must not keep an orphan alive.
            let watch = move || {
                wait_for_end(&mut io::stdin().lock());
                let _ = ask.send(());
                // One that has others to end gives them as long as they need to save what they have: nobody is there to say otherwise.
                if last > 2 {
                    return;
                }
                std::thread::sleep(PARENT_GONE_LIMIT);
                process::exit(INTERRUPTED);
            };
            std::thread::Builder::new().name("parent".into()).spawn(watch)?;
        }
        let (tell, told) = watch::channel(false);
        let (count, counted) = watch::channel(0);
        tokio::spawn(async move {
            for number in 1.. {
                if asked.recv().await.is_none() {
                    return;
                }
                if number >= last {
                    process::exit(INTERRUPTED);
                }
                tell.send_replace(true);
                count.send_replace(number);
            }
        });
        Ok((Self(told), SecondStop(counted)))
    }

    /// Waits for the request.
    pub async fn requested(&mut self) {
        // A sender that is gone belongs to a runtime that ends.
        let _ = self.0.wait_for(|stop| *stop).await;
    }

    /// The flag itself, for services that take one.
    pub fn flag(&self) -> watch::Receiver<bool> {
        self.0.clone()
    }
}

fn wait_for_end(input: &mut impl Read) {
    let mut ignored = [0; 64];
    loop {
        match input.read(&mut ignored) {
            Ok(0) => return,
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
