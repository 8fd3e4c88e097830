//! When a long-running program has to end.

use std::{
    io::{self, Read},
    time::Duration,
};

use syncline_rpc::threads;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
};

use super::{INTERRUPTED, end_at_once, hangup_is_ignored};

/// A process whose parent has gone ends by itself within this time, however busy it is.
const PARENT_GONE_LIMIT: Duration = Duration::from_secs(5);
/// Becomes true when the process should end: Ctrl-C, SIGTERM, SIGHUP unless that was ignored at the start, or
/// the parent closed the pipe at our stdin.
///
/// The second Ctrl-C or SIGTERM ends the process at once, unless somebody [hears it](Self::hearing_a_second).
/// The end of a terminal or of the parent never counts as a second one: a shell passes SIGHUP on that its
/// jobs have had already, and whoever stops all processes of a group has the parent close our stdin besides.
#[derive(Debug, Clone)]
pub struct StopSignal(watch::Receiver<bool>);

/// The second request to end, which a process that has others to end hears. The third ends it at once.
#[derive(Debug, Clone)]
pub struct SecondStop(watch::Receiver<u32>);

/// Who wants the process to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    /// Somebody who may ask again, by Ctrl-C or SIGTERM.
    Asked,
    /// Nobody: the terminal or the parent is gone.
    Gone,
}

/// Requests so far.
#[derive(Debug, Default)]
struct Requests {
    asked: u32,
    is_alone: bool,
}

impl Requests {
    /// Takes one in; returns how many that is.
    fn take(&mut self, request: Request) -> u32 {
        match request {
            Request::Asked => self.asked += 1,
            Request::Gone => self.is_alone = true,
        }
        self.asked.max(self.is_alone.into())
    }
}

impl SecondStop {
    /// Waits for the second request.
    pub async fn requested(&mut self) {
        // A sender that is gone belongs to a runtime that ends.
        let _ = self.0.wait_for(|asked| *asked > 1).await;
    }
}

impl StopSignal {
    /// Begins to listen; call it early, inside a runtime. `with_parent`: stdin is a pipe that a supervisor
    /// holds open.
    ///
    /// # Errors
    /// If the system gives no handlers or threads.
    pub fn listen(with_parent: bool) -> io::Result<Self> {
        Self::listen_until(2, with_parent).map(|(first, _)| first)
    }

    /// The same for a process that has others to end: at the second request it is told, and the third ends it
    /// at once.
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
        let asked_by = [SignalKind::interrupt(), SignalKind::terminate()].map(|kind| (kind, Request::Asked));
        for (kind, request) in asked_by.into_iter().chain(hangup.map(|kind| (kind, Request::Gone))) {
            let mut signals = signal(kind)?;
            let ask = ask.clone();
            tokio::spawn(async move { while signals.recv().await.is_some() && ask.send(request).is_ok() {} });
        }
        if with_parent {
            // A thread: a read of stdin cannot be given up, and a busy runtime must not keep an orphan alive.
            let watch = move || {
                wait_for_end(&mut io::stdin().lock());
                let _ = ask.send(Request::Gone);
                // One that has others to end gives them as long as they need to save what they have: nobody
                // is there to say otherwise.
                if last > 2 {
                    return;
                }
                std::thread::sleep(PARENT_GONE_LIMIT);
                end_at_once(INTERRUPTED);
            };
            threads::spawn("parent", watch)?;
        }
        let (tell, told) = watch::channel(false);
        let (count, counted) = watch::channel(0);
        tokio::spawn(async move {
            let mut requests = Requests::default();
            while let Some(request) = asked.recv().await {
                let number = requests.take(request);
                if number >= last {
                    end_at_once(INTERRUPTED);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_asks_twice_has_asked_a_second_time_table() {
        use Request::{Asked, Gone};
        #[rustfmt::skip]
        let cases: [(&str, &[Request], u32); 5] = [
            ("a shell passes on what its jobs have had",  &[Gone, Gone],         1),
            ("all of a group are told",                   &[Asked, Gone],        1),
            ("the parent was told first",                 &[Gone, Asked],        1),
            ("Ctrl-C twice",                              &[Asked, Asked],       2),
            ("even where nobody is left",                 &[Gone, Asked, Asked], 2),
        ];
        for (what, all, want) in cases {
            let mut requests = Requests::default();
            assert_eq!(all.iter().map(|one| requests.take(*one)).last(), Some(want), "{what}");
        }
    }
}
