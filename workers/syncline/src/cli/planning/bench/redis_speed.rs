//! What the Redis server can do alone: the limit for whoever writes down every state of every task.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, TcpStream},
    time::Instant,
};

use syncline_kit::RedisServer;

/// Commands that are sent before the first answer is read.
const PIPELINE: usize = 256;
const PIPELINES: usize = 400;
const ROUND_TRIPS: usize = 1_000;

/// One connection that speaks Redis' protocol and waits for every answer.
pub(super) struct RedisProbe {
    stream: BufReader<TcpStream>,
}

impl RedisProbe {
    pub(super) fn connect(server: &RedisServer) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port()))?;
        stream.set_nodelay(true)?;
        let mut probe = Self { stream: BufReader::new(stream) };
        let password = fs::read_to_string(server.password_file())?;
        probe.send(&command(&["AUTH", password.trim()]), 1)?;
        Ok(probe)
    }

    /// Changes of the state of one task each per second: `HSET bench:states TASK d`, in pipelines of 256.
    pub(super) fn transitions_per_s(&mut self) -> io::Result<f64> {
        let since = Instant::now();
        for pipeline in 0..PIPELINES {
            let tasks = (0..PIPELINE).map(|task| (pipeline * PIPELINE + task).to_string());
            let commands: Vec<u8> =
                tasks.flat_map(|task| command(&["HSET", "bench:states", &task, "d"])).collect();
            self.send(&commands, PIPELINE)?;
        }
        let transitions = (PIPELINE * PIPELINES) as f64 / since.elapsed().as_secs_f64();
        self.send(&command(&["DEL", "bench:states"]), 1)?;
        Ok(transitions)
    }

    /// Median time of one such change alone, in microseconds.
    pub(super) fn round_trip_us(&mut self) -> io::Result<f64> {
        let mut times_us = Vec::with_capacity(ROUND_TRIPS);
        for task in 0..ROUND_TRIPS {
            let set = command(&["HSET", "bench:states", &task.to_string(), "d"]);
            let since = Instant::now();
            self.send(&set, 1)?;
            times_us.push(since.elapsed().as_nanos() as f64 / 1e3);
        }
        self.send(&command(&["DEL", "bench:states"]), 1)?;
        times_us.sort_unstable_by(f64::total_cmp);
        Ok(times_us[ROUND_TRIPS / 2])
    }

    /// Bytes that the server has allocated.
    pub(super) fn used_memory(&mut self) -> io::Result<u64> {
        self.stream.get_mut().write_all(&command(&["INFO", "memory"]))?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let bytes = line.trim().strip_prefix('$').and_then(|bytes| bytes.parse::<usize>().ok());
        // The text ends with a line of its own.
        let mut text = vec![0; bytes.ok_or(io::ErrorKind::InvalidData)? + 2];
        self.stream.read_exact(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        let used = text.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse().ok());
        used.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Sends commands whose answers are one line each, and reads these.
    fn send(&mut self, commands: &[u8], answers: usize) -> io::Result<()> {
        self.stream.get_mut().write_all(commands)?;
        let mut line = String::new();
        for _ in 0..answers {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if line.starts_with('-') {
                return Err(io::Error::other(line.trim().to_owned()));
            }
        }
        Ok(())
    }
}

/// One command as it travels.
fn command(words: &[&str]) -> Vec<u8> {
    let written: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    format!("*{}\r\n{written}", words.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    use syncline_kit::RedisOptions;

    use super::*;

    #[test]
    fn commands_are_written_as_redis_reads_them() {
        assert_eq!(command(&["HSET", "k", "10"]), b"*3\r\n$4\r\nHSET\r\n$1\r\nk\r\n$2\r\n10\r\n");
    }

    #[test]
    fn a_server_tells_how_fast_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let program = syncline_kit::redis_server(&|_| {}).unwrap().path;
        let server = RedisServer::start(&program, RedisOptions::new(dir.path().join("redis"))).unwrap();
        let mut probe = RedisProbe::connect(&server).unwrap();
        assert!(probe.transitions_per_s().unwrap() > 100.0);
        assert!(probe.round_trip_us().unwrap() > 1.0);
        assert!(probe.used_memory().unwrap() > 100_000);
        assert!(probe.send(&command(&["NONSENSE"]), 1).unwrap_err().to_string().contains("unknown command"));
    }
}
